"""KL-Cov and Clip-Cov (arXiv 2505.22617): hold back the few tokens that make entropy fall.

To first order, the entropy falls with the covariance of log-prob and advantage, most of it in a tiny share of tokens:

    cov = (A - mean A) (log p - mean log p)      over the step's kept tokens

- KL-Cov penalises the `ratio` of tokens with the highest cov by coefficient x |log p - log p_old|. Without a second
  update in the step, log p is log p_old, and nothing is penalised.
- Clip-Cov takes the gradient from a random `ratio` of tokens whose cov lies between two bounds: a factor 0 that leaves
  the loss's denominators as they are.

The authors take the current policy's log p in each minibatch, and draw Clip-Cov's tokens among those that the usual
clipping leaves; here it is the trainer's log p at the start of the step, where nothing is clipped yet.
"""

from __future__ import annotations

import numpy as np

from core.advantage.ranking import counts, rollout_index, top_of_batch
from core.advantage.rules import NOTHING, Outcome, Param, Params, State, Weight
from core.advantage.types import AdvantageError, Batch
from core.advantage.words import num, percent

COV_LOW, COV_HIGH = 1.0, 5.0


def covariance(state: State) -> np.ndarray:
    """(N, T) each kept token's part in the covariance of log-prob and advantage; 0 elsewhere."""
    kept = state.kept
    if not kept.any():
        return np.zeros(kept.shape)
    logprob = state.batch.trainer_logprob
    apart = (state.advantage - state.advantage[kept].mean()) * (logprob - logprob[kept].mean())
    return np.where(kept, apart, 0.0)


def kl_cov(state: State, params: Params) -> Outcome:
    """(N, T) the coefficient of the penalty, 0 on most tokens."""
    n = int(state.kept.sum())
    cov, count = covariance(state), int(counts(params["ratio"], np.array([n]))[0])
    chosen = top_of_batch(cov, state.kept, count, highest=True, batch=state.batch)

    def explain(i: int, t: int) -> str:
        place = f"the {count} highest of the step's {n} tokens ({percent(params['ratio'])})"
        return f"cov = {num(cov[i, t])} is {'' if chosen[i, t] else 'not '}among {place}"

    reason = f"{num(params['coefficient'])} × |log p − log p_old| on {count} of {n} tokens, those of highest cov"
    return Outcome(np.where(chosen, params["coefficient"], 0.0), reason, explain)


def clip_cov(state: State, params: Params) -> Outcome:
    """(N, T) 0 on the drawn tokens, 1 elsewhere."""
    low, high = params["cov_low"], params["cov_high"]
    n = int(state.kept.sum())
    cov, count = covariance(state), int(counts(params["ratio"], np.array([n]))[0])
    eligible = state.kept & (cov > low) & (cov < high)
    drawn = top_of_batch(_draws(state.batch), eligible, count, highest=False, batch=state.batch)

    def explain(i: int, t: int) -> str:
        inside = f"cov = {num(cov[i, t])} lies {'' if eligible[i, t] else 'not '}between {num(low)} and {num(high)}"
        if not eligible[i, t]:
            return inside
        return f"{inside}; {'drawn: no gradient' if drawn[i, t] else 'not drawn'}"

    reason = (
        f"no gradient on {int(drawn.sum())} of {n} tokens, drawn from the {int(eligible.sum())} whose cov lies between "
        f"{num(low)} and {num(high)}"
    )
    return Outcome(np.where(drawn, 0.0, 1.0), reason, explain)


def _draws(batch: Batch) -> np.ndarray:
    """(N, T) uint64 noise that depends on (seed, step, group, rollout, position) alone: SplitMix64 of each in turn."""
    noise = np.zeros((len(batch.group), batch.width), dtype=np.uint64)
    places = (batch.group[:, None], rollout_index(batch)[:, None], np.arange(batch.width)[None, :])
    with np.errstate(over="ignore"):
        for number in (np.array(batch.seed), np.array(batch.step), *places):
            noise = _mixed(noise ^ number.astype(np.int64).view(np.uint64))
    return noise


def _mixed(value: np.ndarray) -> np.ndarray:
    value = value + np.uint64(0x9E3779B97F4A7C15)
    value = (value ^ (value >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    value = (value ^ (value >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return value ^ (value >> np.uint64(31))


def _check(given: Params) -> None:
    low, high = given.get("cov_low", COV_LOW), given.get("cov_high", COV_HIGH)
    if low >= high:
        raise AdvantageError(f"clip_cov.cov_low is {num(low)}, which is not below cov_high, {num(high)}")


_NEEDS = frozenset({"trainer_logprob"})

KL_COV = Weight(
    "kl_cov",
    "token",
    kl_cov,
    "+ coefficient × |log p − log p_old| if cov is among the step's highest ratio",
    params=(
        Param("ratio", 0.002, "share of the step's tokens that is penalised; 0.0002 for 32B [P]", low=0, high=1),
        Param("coefficient", 1.0, "of the penalty [P]", low=0, high=100),
    ),
    needs=lambda params: _NEEDS if params["ratio"] else NOTHING,
    penalty="absolute",
    last=True,
)
CLIP_COV = Weight(
    "clip_cov",
    "token",
    clip_cov,
    "× 0 on a random ratio of the tokens with low < cov < high",
    params=(
        Param("ratio", 0.0002, "share of the step's tokens that loses its gradient, one at least [P]", low=0, high=1),
        Param("cov_low", COV_LOW, "only tokens of higher cov are drawn [C]", low=-100, high=100),
        Param("cov_high", COV_HIGH, "only tokens of lower cov are drawn [C]", low=-100, high=100),
    ),
    needs=lambda params: _NEEDS,
    last=True,
    check=_check,
)
