"""Finding rollouts and tokens: by their text, by what is striking about them, and the strings that were pushed most.

Each search gives one page of hits and how many there are in all. Columns come from the fixed lists here, every value
that a reader writes is a parameter. Texts are searched as the store keeps them (`core.store.text`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import duckdb

from core.store.errors import StoreError
from core.store.queries.tokens_run import TOKEN_VALUES
from core.store.text import encode

if TYPE_CHECKING:
    import pandas as pd

    from core.store.open import Lab

REPEATED = 0.2
"""From this share of repeated 4-grams on, a response repeats itself."""

ROLLOUT_FINDS: dict[str, tuple[str, str]] = {
    "longest": ("true", "length DESC"),
    "repeats": (f"repeated >= {REPEATED}", "repeated DESC, length DESC"),
    "truncated": ("truncated", "length DESC"),
    "lucky": ("correct AND traits['lucky'] > 0", "step DESC"),
    "suppressed": ("correct AND base_advantage < 0", "base_advantage"),
    "reinforced": ("NOT correct AND base_advantage > 0", "base_advantage DESC"),
}
"""Ready finds of rollouts: (which, in what order)."""

EXTREMES = ("advantage", "push", "change", "ratio", "kl")
"""Fields of TOKEN_VALUES whose extremes can be asked for."""

_HIT = 'step, "group", rollout'
_PLACES = 'SELECT unnest($step) AS step, unnest($group) AS "group", unnest($rollout) AS rollout'


@dataclass(frozen=True)
class Where:
    """What is searched: one split of a run, the steps first..last, answers of one polarity (+1, -1) or of both (0)."""

    run: str
    split: str
    first: int
    last: int
    polarity: int = 0

    def sql(self) -> str:
        """The condition on `rollouts` or `strings`, with the parameters of `params`."""
        either = "" if not self.polarity else " AND polarity = $polarity"
        return f"run = $run AND split = $split AND step BETWEEN $first AND $last{either}"

    def params(self) -> dict[str, Any]:
        values = {"run": self.run, "split": self.split, "first": self.first, "last": self.last}
        return values | ({"polarity": self.polarity} if self.polarity else {})


@dataclass(frozen=True)
class Text:
    """What is looked for in responses: words as they stand, or a regular expression of RE2."""

    text: str
    regex: bool = False
    case: bool = False

    @property
    def options(self) -> str:
        return "c" if self.case else "i"

    def pattern(self) -> str:
        """The pattern as SQL over the parameter `$text`."""
        return "$text" if self.regex else "regexp_escape($text)"

    def params(self) -> dict[str, Any]:
        return {"text": encode(self.text)}


def check(lab: Lab, wanted: Text) -> None:
    """Raises StoreError with one sentence if a regular expression cannot be read."""
    with lab.cursor(()) as cursor:
        try:
            cursor.execute(f"SELECT regexp_matches('', {wanted.pattern()})", wanted.params())
        except duckdb.Error as error:
            why = str(error).partition("\n")[0].removeprefix("Invalid Input Error: ")
            raise StoreError(f"This is not a regular expression: {why}") from None


def by_text(lab: Lab, where: Where, wanted: Text, limit: int, offset: int = 0) -> tuple[pd.DataFrame, int]:
    """Rollouts whose response holds the text, newest step first: (step, group, rollout; how many in all)."""
    if wanted.case and not wanted.regex:
        holds = "contains(text, $text)"
    else:
        holds = f"regexp_matches(text, {wanted.pattern()}, '{wanted.options}')"
    return _hits(lab, where, holds, "step DESC", limit, offset, wanted.params())


def by_find(lab: Lab, where: Where, find: str, limit: int, offset: int = 0) -> tuple[pd.DataFrame, int]:
    """Rollouts of one of ROLLOUT_FINDS: (step, group, rollout; how many in all)."""
    holds, order = ROLLOUT_FINDS[find]
    return _hits(lab, where, holds, order, limit, offset, {})


def same_answers(lab: Lab, where: Where, limit: int, offset: int = 0) -> tuple[pd.DataFrame, int]:
    """Texts that a group holds several times, the most frequent first: (step, group, rollout: the first that has it,
    times; how many in all). Texts are compared by a hash of 64 bits, several times as fast.
    """
    found = lab.df(
        f'SELECT step, "group", min(rollout) AS rollout, count(*) AS times, count(*) OVER () AS total FROM rollouts '
        f'WHERE {where.sql()} GROUP BY step, "group", hash(text) HAVING count(*) > 1 '
        f"ORDER BY times DESC, {_newest_first()} LIMIT $limit OFFSET $offset",
        where.params() | {"limit": limit, "offset": offset},
    )
    return _counted(found)


def extremes(
    lab: Lab, where: Where, field: str, largest: bool, limit: int, offset: int = 0, token_id: int | None = None
) -> pd.DataFrame:
    """The tokens with the largest or smallest value of a field of EXTREMES: step, group, rollout, position, token_id,
    token, value, probability. With `token_id`, of that token alone.
    """
    value = TOKEN_VALUES[field]
    one = "" if token_id is None else " AND t.token_id = $token_id"
    own = "" if token_id is None else {"token_id": token_id}
    return lab.df(
        f'SELECT t.step, t."group", t.rollout, t.position, t.token_id, t.token, {value} AS value, '
        f"exp(t.sampler_logprob) AS probability FROM {_tokens(where)}{one} AND isfinite({value}) "
        f'ORDER BY value {"DESC" if largest else "ASC"}, t.step DESC, t."group", t.rollout, t.position '
        "LIMIT $limit OFFSET $offset",
        where.params() | {"limit": limit, "offset": offset} | dict(own),
    )


def with_value(lab: Lab, where: Where, field: str, token_id: int | None = None) -> int:
    """How many tokens have a value of a field of EXTREMES."""
    one = "" if token_id is None else " AND t.token_id = $token_id"
    own = {} if token_id is None else {"token_id": token_id}
    sql = f"SELECT count(*) AS n FROM {_tokens(where)}{one} AND isfinite({TOKEN_VALUES[field]})"
    return int(lab.rows(sql, where.params() | own)[0]["n"])


def strings(lab: Lab, where: Where, reinforced: bool, limit: int, offset: int = 0) -> tuple[pd.DataFrame, int]:
    """The token strings with the largest (or most negative) sum of push over the window, and how many have one.

    token_id, token, tokens (times sampled), trained, push (sum), mean_push, mass (sum), change (mean, nats), agreed and
    pushed (counts). From `strings`, which keeps each step's foremost ones.
    """
    found = lab.df(
        f"""
        SELECT token_id, any_value(token) AS token, sum(tokens)::BIGINT AS tokens, sum(trained)::BIGINT AS trained,
            sum(push) AS push, sum(push) / nullif(sum(trained), 0) AS mean_push, sum(mass) AS mass,
            sum(change) / nullif(sum(changed), 0) AS change, sum(agreed)::BIGINT AS agreed,
            sum(pushed)::BIGINT AS pushed, count(*) OVER () AS total
        FROM strings WHERE {where.sql()} GROUP BY token_id
        HAVING sum(push) {">" if reinforced else "<"} 0
        ORDER BY push {"DESC" if reinforced else "ASC"}, token_id LIMIT $limit OFFSET $offset
        """,
        where.params() | {"limit": limit, "offset": offset},
    )
    return _counted(found)


def pushes(lab: Lab, where: Where) -> dict[str, float]:
    """Of the window: tokens (all that were sampled), up and down (the sums of all positive and negative pushes of
    strings); rows is 0 where the run keeps no strings.
    """
    sql = (
        f"WITH one AS (SELECT sum(push) AS push, sum(tokens) AS tokens, count(*) AS n FROM strings WHERE {where.sql()} "
        "GROUP BY token_id) SELECT coalesce(sum(n), 0)::BIGINT AS rows, "
        f"(SELECT coalesce(sum(n), 0) FROM summary WHERE {where.sql()} AND field = 'probability')::BIGINT AS tokens, "
        "coalesce(sum(push) FILTER (push > 0), 0) AS up, coalesce(sum(push) FILTER (push < 0), 0) AS down FROM one"
    )
    return lab.rows(sql, where.params())[0]


def recorded(lab: Lab, where: Where, find: str) -> bool:
    """Whether the window's rollouts have what one of ROLLOUT_FINDS asks for."""
    needs = {"repeats": "repeated", "lucky": "traits['lucky']"}.get(find, "base_advantage")
    if find in ("longest", "truncated"):
        return True
    sql = f"SELECT 1 AS there FROM rollouts WHERE {where.sql()} AND {needs} IS NOT NULL LIMIT 1"
    return bool(lab.rows(sql, where.params()))


def details(lab: Lab, where: Where, hits: pd.DataFrame) -> pd.DataFrame:
    """The rollouts of hits, in their order: their columns, and text, correct, polarity, reward, length (tokens),
    truncated, base_advantage, repeated, prompt, n (answers to it in that step).
    """
    if hits.empty:
        return hits
    found = lab.df(
        f"WITH wanted AS ({_PLACES}) "
        'SELECT r.step, r."group", r.rollout, r.text, r.correct, r.polarity, r.reward, r.length, r.truncated, '
        'r.base_advantage, r.repeated, g.prompt, g.n FROM wanted w JOIN rollouts r USING (step, "group", rollout) '
        'JOIN groups g ON g.run = r.run AND g.step = r.step AND g.split = r.split AND g."group" = r."group" '
        f"WHERE r.run = $run AND r.split = $split{_steps(hits, 'r')} AND g.run = $run AND g.split = $split"
        f"{_steps(hits, 'g')}",
        _where(where, hits),
    )
    keys = ["step", "group", "rollout"]
    return hits.merge(found, on=keys, how="inner")


def spans(lab: Lab, wanted: Text, texts: Sequence[str]) -> list[tuple[int, int]]:
    """Where the first match lies in each of some stored texts: (start, end) in characters; (0, 0) without one."""
    if not len(texts):
        return []
    # the shortest beginning after which the pattern matches: RE2 tells what matched, not where
    whole = f"'^((?s:.)*?)(' || {wanted.pattern()} || ')'"
    rows = lab.rows(
        f"SELECT length(regexp_extract(text, {whole}, 1, '{wanted.options}')) AS start, "
        f"length(regexp_extract(text, {whole}, 2, '{wanted.options}')) AS size "
        "FROM (SELECT unnest($texts) AS text, generate_subscripts($texts, 1) AS place) ORDER BY place",
        wanted.params() | {"texts": list(texts)},
    )
    return [(row["start"], row["start"] + row["size"]) for row in rows]


def tokens_of(lab: Lab, where: Where, hits: pd.DataFrame, around: int | None = None) -> pd.DataFrame:
    """The tokens of hits: step, group, rollout, position, token. With `around`, only those at most so far from each
    hit's `position`, which is then `at`.
    """
    near, place = "", ""
    params = _where(where, hits)
    if around is not None:
        near = f" AND t.position BETWEEN w.at - {int(around)} AND w.at + {int(around)}"
        place = ", unnest($at) AS at"
        params["at"] = hits["position"].astype(int).tolist()
    return lab.df(
        f"WITH wanted AS ({_PLACES}{place}) "
        f'SELECT t.step, t."group", t.rollout, t.position, t.token{", w.at" if place else ""} '
        'FROM tokens t JOIN wanted w USING (step, "group", rollout) '
        f"WHERE t.run = $run AND t.split = $split{_steps(hits, 't')}{near} ORDER BY ALL",
        params,
    )


def _hits(
    lab: Lab, where: Where, holds: str, order: str, limit: int, offset: int, params: dict[str, Any]
) -> tuple[pd.DataFrame, int]:
    found = lab.df(
        f"SELECT {_HIT}, count(*) OVER () AS total FROM rollouts WHERE {where.sql()} AND {holds} "
        f"ORDER BY {order}, {_newest_first()} LIMIT $limit OFFSET $offset",
        where.params() | params | {"limit": limit, "offset": offset},
    )
    return _counted(found)


def _counted(found: pd.DataFrame) -> tuple[pd.DataFrame, int]:
    return found.drop(columns="total"), int(found["total"].iloc[0]) if len(found) else 0


def _newest_first() -> str:
    return 'step DESC, "group", rollout'


def _tokens(where: Where) -> str:
    """`tokens t` restricted; joined with its rollouts only where the polarity matters."""
    window = "t.run = $run AND t.split = $split AND t.step BETWEEN $first AND $last"
    if not where.polarity:
        return f"tokens t WHERE {window}"
    return (
        'tokens t JOIN rollouts r USING (run, step, split, "group", rollout) '
        f"WHERE {window} AND r.run = $run AND r.split = $split AND r.step BETWEEN $first AND $last "
        "AND r.polarity = $polarity"
    )


def _where(where: Where, hits: pd.DataFrame) -> dict[str, Any]:
    places = {name: hits[name].astype(int).tolist() for name in ("step", "group", "rollout")}
    return {"run": where.run, "split": where.split} | places


def _steps(hits: pd.DataFrame, table: str) -> str:
    """The steps of hits as a condition, so that nothing else is read: each by its number, or where there are many,
    from the first to the last.
    """
    steps = sorted({int(step) for step in hits["step"]})
    if len(steps) > 100:
        return f" AND {table}.step BETWEEN {steps[0]} AND {steps[-1]}"
    return f" AND {table}.step IN ({', '.join(map(str, steps)) or 'NULL'})"
