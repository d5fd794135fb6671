"""Log-probs of given tokens from hidden states, the vocabulary's numbers never kept.

With logits z = W h / T, the gradient of log p(y) in h is sum_v ([v = y] - p_v) W_v / T: E numbers a token, which the
forward pass has at hand. So a chunk of logits lives only while it is looked at, in training too.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F

from core.advantage import PROXY_DROPPED
from core.limits import CHUNK_LOGITS


def token_logprobs(
    hidden: torch.Tensor,
    weight: torch.Tensor,
    target: torch.Tensor,
    temperature: float,
    entropy: bool = False,
    min_p: float | None = None,
) -> tuple[torch.Tensor, torch.Tensor | None, torch.Tensor | None]:
    """(m,) float32 log-probs of `target` (m,), entropies if wanted, and with a `min_p` what `min_p_logprob` gives; in
    nats, of the logits weight @ hidden at `temperature`. `hidden` (m, E), `weight` (V, E). Gradients flow to `hidden`,
    through the log-probs alone.
    """
    return _TokenLogprobs.apply(hidden, weight, target, temperature, entropy, min_p)


def min_p_logprob(logprob: torch.Tensor, prob: torch.Tensor, target: torch.Tensor, min_p: float) -> torch.Tensor:
    """(m,) log-probs of `target` (m,) once tokens less likely than `min_p` times the likeliest are filtered out.

    `prob` (m, V) are the probabilities, `logprob` (m,) the targets' own; what is left is renormalised. PROXY_DROPPED
    where the target itself is filtered out.
    """
    left = prob >= min_p * prob.amax(-1, keepdim=True)
    renormalised = (logprob - (prob * left).sum(-1).log()).clamp(max=0)
    return renormalised.where(left.gather(-1, target[:, None])[:, 0], PROXY_DROPPED)


class _TokenLogprobs(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        hidden: torch.Tensor,
        weight: torch.Tensor,
        target: torch.Tensor,
        temperature: float,
        entropy: bool,
        min_p: float | None,
    ) -> tuple[torch.Tensor, torch.Tensor | None, torch.Tensor | None]:
        logprob = hidden.new_empty(len(hidden), dtype=torch.float32)
        spread = torch.empty_like(logprob) if entropy else None
        proxy = torch.empty_like(logprob) if min_p is not None else None
        slope = torch.empty_like(hidden) if ctx.needs_input_grad[0] else None
        size = max(1, CHUNK_LOGITS // len(weight))
        for start in range(0, len(hidden), size):
            rows = slice(start, start + size)
            chosen = target[rows, None]
            logits = F.linear(hidden[rows], weight).float()
            if temperature != 1:
                logits.div_(temperature)
            prob = logits.softmax(-1)
            highest, place = logits.max(-1, keepdim=True)
            rest = -prob.gather(-1, place).log_()  # log sum exp(z) beyond the highest z
            logprob[rows] = (logits.gather(-1, chosen) - highest - rest)[:, 0]
            if proxy is not None:
                proxy[rows] = min_p_logprob(logprob[rows], prob, target[rows], min_p)
            if spread is not None:  # a logit of -inf adds 0, not nan
                below = logits.sub_(highest).clamp_(min=torch.finfo(torch.float32).min)
                spread[rows] = rest[:, 0] - below.mul_(prob).sum(-1)
            if slope is not None:  # 1 - p is taken in float32: bfloat16 knows nothing between 0.996 and 1
                fall = prob.scatter_add_(-1, chosen, torch.full_like(highest, -1))
                slope[rows] = (fall.to(weight.dtype) @ weight).div_(-temperature)
        ctx.save_for_backward(slope)
        ctx.mark_non_differentiable(*(extra for extra in (spread, proxy) if extra is not None))
        return logprob, spread, proxy

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor, *_: torch.Tensor | None) -> tuple[torch.Tensor | None, ...]:
        (slope,) = ctx.saved_tensors
        return slope * grad[:, None].to(slope.dtype), None, None, None, None, None
