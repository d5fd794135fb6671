"""LoRA on a CPU in vLLM's process, for the one adapter that all rows of a call share.

vLLM's own CPU kernels serve many adapters: they copy a row's adapter matrices for every token of the batch. With one
adapter each is a plain matrix product: 64 responses of SmolLM2-135M took 12 s of CPU time in place of 61 s, 64 of the
embedded model 0.3 s in place of 0.5 s.
"""

from __future__ import annotations

import torch
from vllm.lora.punica_wrapper.punica_cpu import PunicaWrapperCPU
from vllm.platforms.cpu import CpuPlatform


class OneAdapter(PunicaWrapperCPU):
    """n tokens, E features in, F out, rank r; stacked weights are (1, 1, out, in), of the one adapter slot."""

    def _apply_shrink(self, y: torch.Tensor, x: torch.Tensor, w_t_all: torch.Tensor, scale: float) -> None:
        """y (n, r) = scale x (n, E) A^T."""
        torch.mm(x.to(y.dtype), w_t_all[0, 0].T.to(y.dtype), out=y.view(-1, y.shape[-1]))
        if scale != 1:
            y *= scale

    def _apply_expand(
        self,
        y: torch.Tensor,
        x: torch.Tensor,
        w_t_all: torch.Tensor,
        y_offset: int,
        y_slice_size: int,
        add_inputs: bool = True,
    ) -> None:
        """Into columns y_offset... of y (n, F): x (n, r) B^T, added or in place of what is there."""
        columns = y.view(-1, y.shape[-1])[:, y_offset : y_offset + y_slice_size]
        columns.addmm_(x.to(y.dtype), w_t_all[0, 0].T.to(y.dtype), beta=1 if add_inputs else 0)


def install() -> None:
    """Have vLLM use it; before the engine is made."""
    CpuPlatform.get_punica_wrapper = classmethod(lambda cls: f"{OneAdapter.__module__}.{OneAdapter.__qualname__}")
