"""The nodes of a prime-rl trace: a tree of messages, each with its part of the tokens."""

from __future__ import annotations

from typing import Any

import numpy as np

from core.importers.formats._rows import Doubts, Rollout
from core.importers.formats._tokens import response_part, spread
from core.importers.formats._values import Refused, floats, ids, mask

Node = dict[str, Any]


def sampled(node: Node) -> bool:
    """Whether the policy wrote the message; where nothing says so, whether it is the assistant's."""
    given, message = node.get("sampled"), node.get("message")
    if isinstance(given, bool):
        return given
    return isinstance(message, dict) and message.get("role") == "assistant"


def longest_path(nodes: Any) -> tuple[list[Node], int]:
    """From the root to the leaf with the most tokens of the loss, of several the last; and how many leaves there are.

    Without any `parent` the nodes follow one another. Raises Refused where they form no tree.
    """
    if not isinstance(nodes, list) or not nodes or not all(isinstance(node, dict) for node in nodes):
        raise Refused("`nodes` is no list of objects")
    plain = not any("parent" in node for node in nodes)
    parents = [at - 1 if plain and at else node.get("parent") for at, node in enumerate(nodes)]
    weights: list[tuple[int, int]] = []
    for at, (node, parent) in enumerate(zip(nodes, parents, strict=True)):
        if parent is not None and (type(parent) is not int or not 0 <= parent < at):
            raise Refused("`parent` of a node is no earlier node")
        before = (0, 0) if parent is None else weights[parent]
        weights.append((before[0] + _masked_in(node), before[1] + sampled(node)))
    leaves = sorted(set(range(len(nodes))) - set(parents))
    at = max(leaves, key=lambda leaf: (weights[leaf], leaf))
    path = []
    while at is not None:
        path.append(nodes[at])
        at = parents[at]
    return path[::-1], len(leaves)


def _masked_in(node: Node) -> int:
    given = node.get("mask")
    return sum(value is True for value in given) if isinstance(given, list) else 0


def response_tokens(nodes: list[Node], doubts: Doubts, where: str) -> Rollout:
    """The token lists of the nodes from the first masked-in token to the last; nothing where ids are missing."""
    tokens, kept, logprobs, advantages = [], [], [], []
    for node in nodes:
        own = ids(node.get("token_ids"))
        if own is None:
            if any(ids(other.get("token_ids")) is not None for other in nodes):
                doubts.add("Token ids of some nodes are missing, so all tokens were left out", where)
            return {}
        let_in = mask(node.get("mask"))
        if let_in is None or len(let_in) != len(own):
            let_in = np.full(len(own), sampled(node) and node.get("mask") is None)
        tokens.append(own)
        kept.append(let_in)
        logprobs.append(_values(node, "logprobs", let_in, doubts, where))
        advantages.append(_values(node, "advantages", let_in, doubts, where))
    mask_all = np.concatenate(kept)
    part = response_part(mask_all)
    if part is None:
        return {}
    found: Rollout = {
        "token_ids": np.concatenate(tokens)[part], "kept": mask_all[part], "length": part.stop - part.start,
    }  # fmt: skip
    for name, values in (("sampler_logprob", logprobs), ("token_advantage", advantages)):
        joined = np.concatenate(values)[part]
        if not np.isnan(joined).all():
            found[name] = joined
    return found


def _values(node: Node, key: str, let_in: np.ndarray, doubts: Doubts, where: str) -> np.ndarray:
    """(T,) of the node's values, NaN where it has none."""
    given = node.get(key)
    if isinstance(given, int | float) and not isinstance(given, bool):
        given = [given] * int(let_in.sum())
    found = spread(floats(given), let_in)
    if found is None:
        if given:
            doubts.add(f"`{key}` of a node has not as many values as its mask lets in and was left empty", where)
        return np.full(len(let_in), np.nan, np.float32)
    return found
