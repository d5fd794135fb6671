"""The tables of the store: every column with its unit and meaning, in the one place that says so.

Key of a row: (run, step, split, group, rollout, position); `run` is added by `open_runs`. Steps, groups, rollouts and
positions count from 0. `group` is the index of a prompt within its step and split, `rollout` the index in its group.
`group` is a keyword of SQL: write "group". Log-probs and entropies are in nats at the sampling temperature, lengths in
tokens (end-of-sequence included), times in seconds.

The step of a train row is the rollout step: its policy has had `step` updates. Evaluations and probes of a step are
made before its update; a finished run has one more folder, step = total, with the evaluation of the last policy alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import pyarrow as pa

SPLITS = ("train", "probe", "eval")
TABLES = ("metrics", "groups", "rollouts", "tokens", "evals", "summary", "positions", "strings")
LATER_TABLES = ("positions", "strings")
"""Tables that sealed files of earlier versions lack; they are then empty."""
KEYS = ("step", "split", "group", "rollout", "position")
FACTOR_PREFIX = "f_"

_f32, _f64, _i8, _i32, _i64 = pa.float32(), pa.float64(), pa.int8(), pa.int32(), pa.int64()
_text, _bool, _numbers = pa.string(), pa.bool_(), pa.map_(pa.string(), pa.float64())


@dataclass(frozen=True)
class Column:
    """A column: its Arrow type, its unit ("" for a pure number) and what it means."""

    name: str
    type: pa.DataType
    unit: str
    doc: str


def _table(*columns: tuple[str, pa.DataType, str, str]) -> tuple[Column, ...]:
    return tuple(Column(*column) for column in columns)


METRICS = _table(
    ("step", _i64, "", "rollout step"),
    ("time", _f64, "s", "seconds since the epoch when the step was written"),
    ("reward", _f64, "", "mean reward of the sampled rollouts"),
    ("reward_std", _f64, "", "standard deviation of the reward over rollouts"),
    ("pass_rate", _f64, "", "share of correct rollouts"),
    ("rollouts", _i64, "", "rollouts sampled, dropped groups included"),
    ("tokens", _i64, "tokens", "response tokens sampled"),
    ("groups_sampled", _i64, "", "groups sampled, refills included"),
    ("groups_kept", _i64, "", "groups that took part in the update"),
    ("refills", _i64, "", "refill rounds of dynamic sampling"),
    ("shortfall", _i64, "", "groups missing when the refill bound was hit"),
    ("no_signal_share", _f64, "", "share of sampled groups whose rewards are all equal"),
    ("all_correct_share", _f64, "", "share of sampled groups with every rollout correct"),
    ("all_wrong_share", _f64, "", "share of sampled groups with no rollout correct"),
    ("favorable_share", _f64, "", "share of groups classed favorable"),
    ("unfavorable_share", _f64, "", "share of groups classed unfavorable"),
    ("uniform_share", _f64, "", "share of groups without a defined criterion"),
    ("mean_weight", _f64, "", "mean prompt weight of the kept groups"),
    ("length", _f64, "tokens", "mean response length"),
    ("length_correct", _f64, "tokens", "mean length of correct responses"),
    ("length_wrong", _f64, "tokens", "mean length of wrong responses"),
    ("truncated_share", _f64, "", "share of rollouts stopped by the length limit"),
    ("entropy", _f64, "nats", "mean entropy over response tokens"),
    ("entropy_correct", _f64, "nats", "mean entropy over tokens of correct responses"),
    ("entropy_wrong", _f64, "nats", "mean entropy over tokens of wrong responses"),
    ("entropy_after", _f64, "nats", "mean entropy at the same tokens after the update"),
    ("mass_positive_base", _f64, "", "sum of loss weight x |base advantage| over kept tokens, correct rollouts"),
    ("mass_negative_base", _f64, "", "the same, wrong rollouts"),
    ("mass_positive", _f64, "", "sum of loss weight x |advantage| over kept tokens, correct rollouts"),
    ("mass_negative", _f64, "", "the same, wrong rollouts"),
    ("loss", _f64, "", "total loss, mean over the step's updates"),
    ("policy_loss", _f64, "", "policy part of the loss"),
    ("penalty", _f64, "", "the penalty's part of the loss, mean over updates; null where the method has none"),
    ("penalised_share", _f64, "", "share of kept tokens with a penalty in their last gradient pass; null like penalty"),
    ("kl", _f64, "nats", "k3 estimate of the KL to the base model; null where it is not computed"),
    ("clip_low_share", _f64, "", "share clipped at the lower bound in the last gradient pass, of kept tokens with one"),
    ("clip_high_share", _f64, "", "the same at the upper bound"),
    ("ratio_mean", _f64, "", "mean importance ratio in the last gradient pass"),
    ("ratio_max", _f64, "", "largest importance ratio in the last gradient pass"),
    ("gap_mean", _f64, "nats", "mean |trainer - sampler| log-prob over response tokens; null where they are one model"),
    ("gap_max", _f64, "nats", "the largest |trainer - sampler| log-prob; null like gap_mean, as are the next three"),
    ("gap_share", _f64, "", "share of response tokens where |trainer - sampler| is more than tis.gap"),
    ("tis_mean_ratio", _f64, "", "mean of exp(trainer - sampler) over response tokens, before the cap"),
    ("tis_capped_share", _f64, "", "share of response tokens that tis.cap cuts; null also without a cap"),
    ("grad_norm", _f64, "", "gradient norm before clipping, mean over updates"),
    ("update_norm", _f64, "", "norm of the change of the adapter's weights over the step"),
    ("lr", _f64, "", "learning rate of the last update"),
    ("updates", _i64, "", "optimizer steps made"),
    ("skipped", _i64, "", "minibatches skipped because no token was kept"),
    ("entropy_source", _text, "", "where `entropy` comes from: sampler or trainer"),
    ("tokens_per_second", _f64, "tokens/s", "sampled tokens over the time of the whole step"),
    ("time_sample", _f64, "s", "sampling"),
    ("time_verify", _f64, "s", "verifying and decoding"),
    ("time_forward", _f64, "s", "trainer forward without gradient, where another engine or low precision sampled"),
    ("time_reference", _f64, "s", "reference forward"),
    ("time_proxy", _f64, "s", "forward for proxy_logprob, where no other forward gives it"),
    ("time_advantage", _f64, "s", "advantages and loss weights"),
    ("time_update", _f64, "s", "forward, backward and optimizer"),
    ("time_after", _f64, "s", "after-update forward"),
    ("time_evaluate", _f64, "s", "held-out evaluation and probes"),
    ("time_write", _f64, "s", "writing the previous step and its checkpoint"),
    ("time_step", _f64, "s", "the whole step, from sampling to the end of the update and recordings"),
    ("traits", _numbers, "", "mean of each trait of the verifier over rollouts"),
    ("traits_correct", _numbers, "", "the same over correct rollouts"),
)

EVALS = _table(
    ("step", _i64, "", "updates that the evaluated policy has had"),
    ("prompts", _i64, "", "held-out prompts"),
    ("rollouts", _i64, "", "rollouts a prompt"),
    ("pass_at_1", _f64, "", "mean pass rate at the run's sampling temperature"),
    ("k", _i64, "", "the k of pass_at_k"),
    ("pass_at_k", _f64, "", "unbiased pass@k"),
    ("greedy", _f64, "", "share of prompts solved at temperature 0; null where not run"),
    ("reward", _f64, "", "mean reward"),
    ("length", _f64, "tokens", "mean response length"),
    ("length_correct", _f64, "tokens", "mean length of correct responses"),
    ("length_wrong", _f64, "tokens", "mean length of wrong responses"),
    ("truncated_share", _f64, "", "share of rollouts stopped by the length limit"),
    ("entropy", _f64, "nats", "mean entropy over response tokens; null where the engine gives none"),
    ("traits", _numbers, "", "mean of each trait over rollouts"),
    ("traits_correct", _numbers, "", "the same over correct rollouts"),
)

GROUPS = _table(
    ("step", _i64, "", "rollout step"),
    ("split", _text, "", "train, probe or eval"),
    ("group", _i32, "", "index within the step and split"),
    ("prompt_id", _text, "", "hash of the prompt's text: the same prompt at any step"),
    ("prompt", _text, "", "the prompt's text"),
    ("answer", _text, "", "the task's answer"),
    ("n", _i32, "", "rollouts of the group"),
    ("correct", _i32, "", "correct rollouts"),
    ("pass_rate", _f32, "", "correct / n"),
    ("mean_reward", _f32, "", "mean reward"),
    ("longest_correct", _f32, "tokens", "longest correct rollout; null without one"),
    ("mean_wrong_length", _f32, "tokens", "mean length of the usable (not truncated) wrong rollouts; null without one"),
    ("length_advantage", _bool, "", "ADORA's length criterion; null where not defined"),
    ("difficulty_advantage", _bool, "", "ADORA's difficulty criterion; null where not defined"),
    ("class", _text, "", "favorable, unfavorable or uniform"),
    ("weight", _f32, "", "the weight that the method gave the prompt; 1 without an ADORA weight"),
    ("kept", _bool, "", "whether the group took part in the update"),
    ("attempt", _i32, "", "0, or the refill round that drew it"),
)

ROLLOUTS = _table(
    ("step", _i64, "", "rollout step"),
    ("split", _text, "", "train, probe or eval"),
    ("group", _i32, "", "index within the step and split"),
    ("rollout", _i32, "", "index within its group"),
    ("prompt_id", _text, "", "hash of the prompt's text"),
    ("text", _text, "", "the response, special tokens left out; untrusted"),
    ("reward", _f32, "", "the reward that the advantages used"),
    ("correctness", _f32, "", "the verifier's correctness part"),
    ("correct", _bool, "", "correctness >= the run's threshold"),
    ("polarity", _i8, "", "+1 or -1"),
    ("parts", _numbers, "", "reward parts by name"),
    ("traits", _numbers, "", "typed numbers from the verifier"),
    ("length", _i32, "tokens", "response tokens; null in an import that lacks it, as is truncated"),
    ("truncated", _bool, "", "stopped by the length limit"),
    ("sequence_logprob", _f32, "nats", "sum of the sampler's log-probs"),
    ("base_advantage", _f64, "", "the base rule's advantage; null where it is per token"),
    ("kept", _bool, "", "any of its tokens took part in the update"),
    ("mass", _f64, "", "sum of loss weight x |advantage| over its kept tokens; null in probes"),
    ("base_mass", _f64, "", "the same of the base advantage"),
    ("repeated", _f32, "", "share of its token 4-grams that occurred before in it; null without tokens"),
    ("minibatch", _i32, "", "the optimizer's minibatch, from 0; null in probes"),
    ("imported_advantage", _f64, "", "of an imported run: what its trainer computed, where one a response; else null"),
)

TOKENS = _table(
    ("step", _i64, "", "rollout step"),
    ("split", _text, "", "train or probe"),
    ("group", _i32, "", "index within the step and split"),
    ("rollout", _i32, "", "index within its group"),
    ("position", _i32, "", "index within the response"),
    ("token_id", _i32, "", "id in the model's vocabulary"),
    ("token", _text, "", "the token's own text; untrusted"),
    ("sampler_logprob", _f32, "nats", "log-prob in the engine that sampled"),
    ("trainer_logprob", _f32, "nats", "log-prob in the trainer at the start of the step"),
    ("ref_logprob", _f32, "nats", "log-prob under the base model; null where not recorded"),
    ("entropy", _f32, "nats", "entropy of the sampling distribution"),
    ("proxy_logprob", _f32, "nats", "trainer_logprob under the min-p filtered policy, -10000 where dropped; or null"),
    ("base_advantage", _f32, "", "the base rule's advantage of this token"),
    ("advantage", _f32, "", "what the trainer trained on: base x factors, 0 where dropped"),
    ("kept", _bool, "", "takes part in the loss and its denominators"),
    ("penalty", _f32, "", "what multiplies the distance in its penalty, 0 without one; null where the method has none"),
    ("loss_weight", _f32, "", "what the aggregation multiplies the token's term by; null in probes"),
    ("tis", _f32, "", "min(exp(trainer - sampler log-prob), tis.cap), times the policy term; null where not applied"),
    ("ratio", _f32, "", "importance ratio at the token's last gradient pass; null without one (advantages 0, probes)"),
    ("clipped", _bool, "", "whether clipping stopped its gradient in that pass, false without one; null in probes"),
    ("after_logprob", _f32, "nats", "log-prob of the same token after the update; null where not recorded"),
    ("entropy_after", _f32, "nats", "entropy at the same place after the update; null where not recorded"),
    ("imported_advantage", _f32, "", "of an imported run: what its trainer computed; else null"),
)

SUMMARY = _table(
    ("step", _i64, "", "rollout step"),
    ("split", _text, "", "train or probe"),
    ("polarity", _i8, "", "+1 or -1"),
    ("bin", _i8, "", "tenth of the response: floor(10 position / length)"),
    ("field", _text, "", "one of SUMMARY_FIELDS"),
    ("n", _i64, "", "tokens with a value"),
    ("sum", _f64, "", "sum of the values"),
    ("sum_squares", _f64, "", "sum of the squared values"),
    ("histogram", pa.list_(_i64), "", "counts between the field's fixed edges, first and last bins open"),
)

_SUMS = (
    ("probability", _f64, "", "sum over tokens of exp(sampler_logprob)"),
    ("entropy", _f64, "nats", "sum over tokens"),
    ("advantage", _f64, "", "sum over trained tokens"),
    ("base_advantage", _f64, "", "sum over trained tokens"),
    ("push", _f64, "", "sum over trained tokens of advantage x (1 - probability)"),
    ("mass", _f64, "", "sum over trained tokens of loss_weight x |advantage|; null in probes"),
    ("change", _f64, "nats", "sum of after_logprob - trainer_logprob over changed tokens"),
    ("entropy_change", _f64, "nats", "sum of entropy_after - entropy over changed tokens"),
    ("agreed", _f64, "", "pushed tokens that moved the way their advantage pushed"),
    ("pushed", _f64, "", "trained tokens with an advantage that moved by UNMOVED or more"),
)
"""What `positions` and `strings` add up; null where no token has the value."""

POSITIONS = _table(
    ("step", _i64, "", "rollout step"),
    ("split", _text, "", "train or probe"),
    ("polarity", _i8, "", "+1 or -1"),
    ("bin", _i32, "", "of the position in the response: see position_bin"),
    ("tokens", _i64, "", "tokens"),
    ("trained", _i64, "", "kept tokens"),
    ("changed", _i64, "", "tokens with a log-prob after the update"),
    *_SUMS,
)

STRINGS = _table(
    ("step", _i64, "", "rollout step"),
    ("split", _text, "", "train or probe"),
    ("polarity", _i8, "", "+1 or -1"),
    ("token_id", _i32, "", "id in the model's vocabulary"),
    ("token", _text, "", "the token's own text; untrusted"),
    ("tokens", _i64, "", "how often it was sampled"),
    ("trained", _i64, "", "kept tokens"),
    ("changed", _i64, "", "tokens with a log-prob after the update"),
    *_SUMS,
)

STRINGS_KEPT = 1000
"""Rows of `strings` a step, split and polarity: those with the largest |push|, then the most frequent."""

UNMOVED = 1e-6
"""A smaller change of a log-prob (nats) counts as none."""

_EVERY, _OCTAVE = 64, 32


def position_bin(position: np.ndarray) -> np.ndarray:
    """The bin of a position in `positions`: one a position up to 63, then 32 bins to each doubling."""
    position = np.asarray(position, np.int64)
    octave = np.floor(np.log2(np.maximum(position, _EVERY) / _EVERY)).astype(np.int64)
    width = 2 << octave
    beyond = _EVERY + octave * _OCTAVE + (position - (_EVERY << octave)) // width
    return np.where(position < _EVERY, position, beyond).astype(np.int32)


def bin_start(number: np.ndarray) -> np.ndarray:
    """The first position of a bin of `positions`."""
    number = np.asarray(number, np.int64)
    octave, place = np.divmod(np.maximum(number - _EVERY, 0), _OCTAVE)
    return np.where(number < _EVERY, number, (_EVERY << octave) + place * (2 << octave))


SUMMARY_BINS = 10
SUMMARY_EDGES: dict[str, tuple[float, ...]] = {
    "probability": tuple(round(0.05 * i, 2) for i in range(1, 20)),
    "entropy": tuple(round(0.1 * i, 1) for i in range(1, 31)),
    "advantage": tuple(round(-3 + 0.25 * i, 2) for i in range(25)),
    "base_advantage": tuple(round(-3 + 0.25 * i, 2) for i in range(25)),
    "push": tuple(round(-3 + 0.25 * i, 2) for i in range(25)),
    "change": tuple(round(-1 + 0.1 * i, 1) for i in range(21)),
    "mass": (),
    "base_mass": (),
    "logprob": (),
    "logprob_advantage": (),
    "entropy_change": (),
    "agreed": (),
}
"""Inner histogram edges by field. probability = exp(sampler_logprob); push = advantage x (1 - probability); change =
after_logprob - trainer_logprob; mass = loss_weight x |advantage|; base_mass = loss_weight x |base_advantage|.
logprob = trainer_logprob and logprob_advantage its product with the advantage, for their covariance; entropy_change =
entropy_after - entropy; agreed = 1 where the log-prob moved the way the advantage pushed and 0 where it moved the other
way, of tokens with an advantage that moved by UNMOVED or more. Dropped tokens count in probability, entropy, change and
entropy_change, not in the others."""

SUMMARY_FIELDS = tuple(SUMMARY_EDGES)

COLUMNS: dict[str, tuple[Column, ...]] = {
    "metrics": METRICS, "groups": GROUPS, "rollouts": ROLLOUTS, "tokens": TOKENS, "evals": EVALS, "summary": SUMMARY,
    "positions": POSITIONS, "strings": STRINGS,
}  # fmt: skip


@lru_cache
def arrow(table: str, rollout_factors: tuple[str, ...] = (), token_factors: tuple[str, ...] = ()) -> pa.Schema:
    """The Arrow schema of a table, with the factor columns of one method (`f_<id>`, float32, null where absent)."""
    extra = {"rollouts": rollout_factors, "tokens": token_factors}.get(table, ())
    fields = [pa.field(column.name, column.type) for column in COLUMNS[table]]
    return pa.schema(fields + [pa.field(FACTOR_PREFIX + factor, _f32) for factor in extra])
