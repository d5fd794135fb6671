"""What a run is trained on: prompts from somewhere, a verifier, and what each part of the reward weighs."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, field_validator, model_validator

from core.config_settings import Settings


def _as_text(value: Any) -> Any:
    """YAML and `--set` read a text like 1 as a number; where text is wanted, the text is meant."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return value
    return str(int(value)) if value == value and abs(value) < 1e15 and value == int(value) else repr(value)


Text = Annotated[str, BeforeValidator(_as_text), Field(max_length=2000)]


class FileSettings(Settings):
    """The dataset of the task `file`: a row a prompt (`core.tasks.file`)."""

    path: Text = ""
    """A .jsonl, .parquet or .csv file; a relative path starts where the command runs."""
    prompt: Text = "prompt"
    """The column of the prompts; `a.b` is the field b within the column a."""
    answer: Text = "answer"
    held_out: Annotated[float, Field(ge=0.01, le=0.9)] = 0.2
    """The share of prompts that are never trained on; a hash of a prompt's text decides."""
    template: Text = "{prompt}"
    """What the model reads: the text with the row's prompt in place of {prompt}."""

    @field_validator("template")
    @classmethod
    def _has_a_place(cls, value: str) -> str:
        if "{prompt}" not in value:
            raise ValueError("must have {prompt} where the row's prompt goes")
        return value


class VerifySettings(Settings):
    """What makes a response right (`core.tasks.verifiers`)."""

    kind: Literal["auto", "exact", "numeric", "choice", "regex", "math", "function"] = "auto"
    """auto: the task's own verifier; of a file, exact."""
    read: Literal["auto", "boxed", "whole"] = "auto"
    """Where the answer stands in a response: in its last box or answer tag, else where the verifier looks for it; in a
    box alone; or the whole response."""
    tolerance: Annotated[float, Field(ge=0, le=1)] = 1e-6
    """Of numeric: the distance that counts as equal, for answers beyond 1 as a share of the answer."""
    pattern: Text = ""
    """Of regex: what finds the answer in a response, as the last match's first group."""
    ignore_case: bool = True
    """Of exact and regex."""
    seconds: Annotated[float, Field(ge=0.05, le=60)] = 5.0
    """Of math and of patterns: how long one response may take; then it is wrong, and counted as timed out."""
    function: Text = ""
    """Of function: your own Python function, module:function. Such a config runs from the command line alone."""


class RewardSettings(Settings):
    """The weights of a reward's parts; the soft penalty on long responses is `overlong`, beside them."""

    correct: Annotated[float, Field(ge=0, le=100)] = 1.0
    format: Annotated[float, Field(ge=0, le=100)] = 0.0
    """What a response gains that has the right form."""
    format_pattern: Text = ""
    """A regular expression that is found in a response of the right form; empty: one with a filled \\boxed{}."""
    length: Annotated[float, Field(ge=0, le=100)] = 0.0
    """What a response of the greatest length loses; a shorter one loses in proportion to its tokens."""

    @property
    def plain(self) -> bool:
        """Whether the reward is its correct part and nothing else."""
        return self == RewardSettings()


class GeneratorSettings(Settings):
    """How difficult the generated tasks are (`core.tasks.generators`)."""

    terms: Annotated[int, Field(ge=2, le=12)] = 3
    """arithmetic: numbers in a chain, at most; at least 2."""
    digits: Annotated[int, Field(ge=1, le=6)] = 1
    """arithmetic: digits of a number, at most."""
    products: bool = False
    """arithmetic: with multiplication and brackets too."""
    shape: Literal["angles", "triangles"] = "angles"
    """geometry: the last angle of a polygon; or an angle, or the incircle, of a triangle given by its corners."""
    sides: Annotated[int, Field(ge=3, le=10)] = 4
    """geometry: sides of a polygon, at most."""
    people: Annotated[int, Field(ge=2, le=6)] = 2
    """knights_knaves: who speaks."""
    depth: Annotated[int, Field(ge=1, le=4)] = 2
    """knights_knaves: how deep a statement nests."""
    width: Annotated[int, Field(ge=2, le=4)] = 2
    """knights_knaves: what an `and` or `or` joins, at most."""
    numbers: Annotated[int, Field(ge=3, le=6)] = 3
    """countdown: numbers to be used, at most; at least 3."""
    largest: Annotated[int, Field(ge=5, le=100)] = 25
    """countdown: the largest of them."""
    target: Annotated[int, Field(ge=20, le=999)] = 100
    """countdown: the largest number to be reached."""

    @model_validator(mode="after")
    def _statements_differ(self) -> GeneratorSettings:
        if self.width > 2 * self.people - 1:
            raise ValueError(
                f"width is {self.width}, but {self.people} people have only {2 * self.people - 1} different things to "
                "say of each other: lower it, or take more people"
            )
        return self


class TaskSettings(Settings):
    name: str = "embedded"
    pool_size: Annotated[int, Field(ge=1, le=100_000)] = 128
    """Training prompts: a fixed pool, walked in shuffled epochs, so that prompts come back."""
    file: FileSettings = FileSettings()
    verify: VerifySettings = VerifySettings()
    reward: RewardSettings = RewardSettings()
    generator: GeneratorSettings = GeneratorSettings()
