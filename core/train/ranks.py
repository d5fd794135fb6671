"""Several processes that train one run together, joined through Accelerate: gloo on a CPU, NCCL on GPUs.

Every rank holds the whole policy and, after each round of sampling, all rollouts, so advantages and loss weights are
the same numbers everywhere. Only the work is split, by whole groups: sampling and verifying, scoring, and the pieces of
the gradient, which is summed before it is clipped. So the optimizer makes the same step on every rank.
"""

from __future__ import annotations

import hashlib
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path

import numpy as np
import torch
from accelerate import PartialState
from accelerate.utils import broadcast_object_list, check_cuda_p2p_ib_support, gather_object, patch_environment, reduce

from core.ranks import ALONE, Ranks, T
from core.train.forward import Scorer, Sequences
from core.train.reporter import TrainingError
from core.train.samples import Samples

PATIENCE = timedelta(hours=6)
"""How long a rank waits for the others: longer than any sampling takes. A rank that dies ends the wait at once."""


class JoinedRanks(Ranks):
    """One of several processes."""

    def __init__(self, state: PartialState):
        self.rank, self.world = state.process_index, state.num_processes

    def gather(self, value: T) -> list[T]:
        return gather_object([value])

    def broadcast(self, value: T) -> T:
        return broadcast_object_list([value])[0]

    def sum(self, tensors: list[torch.Tensor]) -> None:
        for dtype in {tensor.dtype: None for tensor in tensors}:
            alike = [tensor for tensor in tensors if tensor.dtype == dtype]
            total = reduce(torch.cat([tensor.flatten() for tensor in alike]), "sum")
            parts = total.split([tensor.numel() for tensor in alike])
            for tensor, part in zip(alike, parts, strict=True):
                tensor.copy_(part.view_as(tensor))


@contextmanager
def joined(rank: int, world: int, meeting: Path, device: str) -> Iterator[Ranks]:
    """Meet the other ranks of this machine; inside, this process is one of them. `device` is cpu or cuda.

    `meeting` is a file that does not exist yet, the same for all: they find each other through it, and through no port
    that anybody else could reach. On GPUs each rank must see its own alone (CUDA_VISIBLE_DEVICES).
    """
    if world == 1:
        yield ALONE
        return
    place = {
        "RANK": rank,
        "LOCAL_RANK": rank,
        "WORLD_SIZE": world,
        "LOCAL_WORLD_SIZE": world,
        "MASTER_PORT": 0,  # not used, but Accelerate would leave its own there
        "OMP_NUM_THREADS": torch.get_num_threads(),
        "GLOO_SOCKET_IFNAME": "lo0" if sys.platform == "darwin" else "lo",
    }
    if device == "cuda" and not check_cuda_p2p_ib_support():  # as `accelerate launch` does for cards that cannot
        os.environ.setdefault("NCCL_P2P_DISABLE", "1")
        os.environ.setdefault("NCCL_IB_DISABLE", "1")
    with patch_environment(**place):
        state = PartialState(
            cpu=device == "cpu",
            backend="gloo" if device == "cpu" else "nccl",
            init_method=meeting.absolute().as_uri(),
            rank=rank,
            world_size=world,
            timeout=PATIENCE,
        )
    yield JoinedRanks(state)
    state.destroy_process_group()  # not after an error: the others may be gone, and this process is about to end


def score(scorer: Scorer, samples: Samples, ranks: Ranks) -> tuple[np.ndarray, np.ndarray]:
    """`Scorer.score` of all rollouts, each rank's groups scored by itself."""
    logprob, entropy = _shared(scorer.score, 2, samples, ranks)
    return logprob, entropy


def score_with_proxy(
    scorer: Scorer, samples: Samples, ranks: Ranks, min_p: float
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """`Scorer.score_with_proxy` of all rollouts, each rank's groups scored by itself."""
    logprob, entropy, proxy = _shared(lambda rows: scorer.score_with_proxy(rows, min_p), 3, samples, ranks)
    return logprob, entropy, proxy


def _shared(
    scored: Callable[[Sequences], Sequence[np.ndarray]], count: int, samples: Samples, ranks: Ranks
) -> Sequence[np.ndarray]:
    """The `count` arrays (N, T), float32, that `scored` gives of some rollouts, for all of them on every rank."""
    sequences = samples.sequences
    if ranks.world == 1:
        return scored(sequences)
    mine = ranks.mine(samples.record.group, sequences.length)
    arrays = [np.zeros(sequences.token_ids.shape, dtype=np.float32) for _ in range(count)]
    if mine.any():
        for array, own in zip(arrays, scored(sequences.rows(np.flatnonzero(mine))), strict=True):
            array[mine] = own
    ranks.fill(mine, *arrays)
    return arrays


def check_alike(weights: torch.Tensor, done: int, ranks: Ranks) -> None:
    """Raises TrainingError where the ranks' adapters, (parameters,), are not the same to the last bit."""
    if ranks.world == 1:
        return
    digests = ranks.gather(hashlib.blake2b(weights.cpu().numpy().tobytes(), digest_size=16).hexdigest())
    apart = [rank for rank, digest in enumerate(digests) if digest != digests[0]]
    if apart:
        raise TrainingError(
            f"after {done} steps the adapter of rank {apart[0]} is not that of rank 0, so they no longer train one "
            "policy: resume from the last checkpoint, with processes: 1 if it happens again"
        )
