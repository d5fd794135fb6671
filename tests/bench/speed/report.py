"""A comparison in words."""

from __future__ import annotations

from collections.abc import Iterator

from tests.bench.speed.result import FIRST, SLIDER_S, Comparison

PEER_NAMES = {"trl": "TRL", "generate": "transformers' generate", "vllm": "vLLM alone", "loops": "the authors' loops"}
PHASES = ("sample", "verify", "forward", "reference", "advantage", "update", "after", "write")


def lines(name: str, found: Comparison) -> Iterator[str]:
    """What a person reads of one bench."""
    threads = "1 thread" if found.threads == 1 else f"{found.threads} threads"
    yield f"{name}: {found.what}; {threads}, medians of {found.rounds} turns"
    peer, unit = PEER_NAMES[found.peer], found.unit
    yield f"  ours {amount(found.ours)} {unit}, {peer} {amount(found.theirs)} {unit}: {found.ratio:.2f}x"
    more = found.more
    if "page_s" in more:
        yield f"  with masses and all pairs {amount(more['page_s'])} s; a slider move may take {SLIDER_S} s"
    if "full_s" in more:
        yield f"  in the first {min(FIRST, found.rounds)} of them {more['first_ratio']:.2f}x"
        yield (
            f"  with everything recorded {amount(more['full_s'])} {unit}: {more['full_ratio']:.2f}x (the pass after "
            f"the update {amount(more['full_after_s'])}, writing and a checkpoint {amount(more['full_write_s'])}, "
            f"a step's share of the evaluations {amount(more['evaluation_s'])})"
        )
        spent = (f"{phase} {amount(more[f'{phase}_s'])}" for phase in PHASES if more[f"{phase}_s"])
        yield f"  ours by phase, in seconds: {', '.join(spent)}"
        yield (
            f"  entropy {amount(more['entropy_s'])} s and the store write {amount(more['write_s'])} s: "
            f"{more['entropy_and_write_share']:.1%} of a step"
        )
        yield (
            f"  tokens a step: ours {more['ours_tokens']:.0f}, {peer} {more['trl_tokens']:.0f}; "
            f"groups of equal rewards, through which ours sends no gradient: {more['no_signal_share']:.0%}"
        )


def amount(value: float) -> str:
    """Three digits."""
    return f"{value:.0f}" if value >= 100 else f"{value:.3g}"
