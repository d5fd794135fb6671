"""From a comparison over too few seeds to the launch page, filled in with the seeds that are missing."""

from __future__ import annotations

import itertools
import json
from collections.abc import Sequence

from app import progress, urls
from app.views.families import Family, own_settings
from app.words import count

ENOUGH = 5
"""Seeds a method from which more of them are not offered."""
FIRST = 3
"""What is offered first: the fewest that give an interval worth the name."""


def offer(shown: Sequence[Family]) -> None:
    """A link to Launch with these methods and the seeds they lack; nothing where there are enough, while some still
    train, or where one experiment cannot hold them (they differ in more than the method, or came from elsewhere).
    """
    if any(info.live for info in progress.family([one.info for family in shown for one in family.members])):
        return
    if params := missing(shown):
        methods, seeds = len(json.loads(params["set"][0].partition("=")[2])), params["set"][1].partition("=")[2]
        runs = count(methods * len(json.loads(seeds)), "run")
        urls.link(
            "launch", f"Train more seeds: {seeds.strip('[]')} ({runs})", icon=":material/add:",
            help="Opens Launch with the same settings, filled in; nothing starts before you say so. "
            "Then choose both experiments here.",
            **params,
        )  # fmt: skip


def missing(shown: Sequence[Family]) -> dict[str, object] | None:
    """The parameters of the launch page for seeds that none of these families has: up to 3 each, then up to 5."""
    members = [member for family in shown for member in family.members]
    if any(not member.config or member.info.imported for member in members):
        return None
    rest = {
        json.dumps({k: v for k, v in own_settings(member.config).items() if k != "method"}, sort_keys=True)
        for member in members
    }
    have = [{member.info.seed for member in family.members} for family in shown]
    least = min(map(len, have))
    if len(rest) > 1 or least >= ENOUGH:
        return None
    fresh = (seed for seed in itertools.count() if not any(seed in mine for mine in have))
    seeds = list(itertools.islice(fresh, (FIRST if least < FIRST else ENOUGH) - least))
    methods = [{name: value for name, value in family.members[0].config["method"].items() if value} for family in shown]
    return {
        "from": shown[0].members[0].id,
        "set": [f"methods={json.dumps(methods)}", f"seeds={json.dumps(seeds)}"],
    }
