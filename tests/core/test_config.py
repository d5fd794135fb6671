"""Settings: what is refused, in which words, and that text and settings are the same thing."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from core.config import ConfigError, RunConfig, dump, load, override, parse, parse_run, read_run
from core.config_yaml import in_a_line

BAD = {
    "metod: grpo": "metod: no such setting; did you mean method?",
    "look_fr: x": "look_fr: no such setting; did you mean look_for?",
    "evaluate: {evry: 3}": "evaluate.evry: no such setting; did you mean every?",
    "methods: [grpo, {nam: psr}]": "methods.1.nam: no such setting; did you mean name?",
    "zzz: 1": "zzz: no such setting",
    "steps: ten": "steps: must be a whole number, but is 'ten'",
    "steps: 1.5": "steps: must be a whole number, but is 1.5",
    "steps: true": "steps must be a number, but is true",
    "steps: 0": "steps: must be at least 1, but is 0",
    "steps:": "steps: must be a whole number, but is None",
    "seed: -1": "seed: must be at least 0, but is -1",
    "seeds: [0, a]": "seeds.1: must be a whole number, but is 'a'",
    "seeds: 3": "seeds: must be a list, but is 3",
    "seeds: [1, 1]": "seeds names the same one twice",
    f"seeds: {list(range(300))}": "methods x seeds are 300 runs: at most 256 make an experiment",
    f"group_size: 1{'0' * 400}": f"group_size: must be at most 1000000000, but is 1{'0' * 76}...",
    "methods: []": "methods is empty: name at least one",
    "methods: [psr, psr]": "methods names the same one twice",
    "{method: grpo, methods: [psr]}": "give method or methods, not both",
    "optimizer: 3": "optimizer: must be a mapping of its settings, but is 3",
    "optimizer: {lr: fast}": "optimizer.lr: must be a number, but is 'fast'",
    "optimizer: {lr: .nan}": "optimizer.lr: must be a finite number, but is nan",
    "optimizer: {betas: [0.9, 2]}": "optimizer.betas.1: must be less than 1.0, but is 2",
    "lora: {targets: 3}": "lora.targets: must be text, but is 3",
    "sampling: {temperature: 0}": "sampling.temperature: must be more than 0.0, but is 0",
    "evaluate: {prompts: 10001}": "evaluate.prompts: must be at most 10000, but is 10001",
    "evaluate: {rollouts: 1025}": "evaluate.rollouts: must be at most 1024, but is 1025",
    "device: gpu": "device: must be 'auto', 'cpu' or 'cuda', but is 'gpu'",
    "record: {after_update: maybe}": "record.after_update: must be 'all', 'probe' or 'off', but is 'maybe'",
    "sampling: {stop: ['']}": "sampling.stop.0: must not be empty, but is ''",
    "sampling: {stop: 3}": "sampling.stop: must be a list, but is 3",
    "sampling: {stop: [3]}": "sampling.stop.0: must be text, but is 3",
    f"sampling: {{stop: {list('abcdefghijklmnopq')}}}": "sampling.stop: must have 16 entries or fewer, but is "
    + repr(list("abcdefghijklmnopq"))[:77]
    + "...",
    "system_prompt: 3": "system_prompt: must be text, but is 3",
    "tis: {cap: 0.5}": "tis.cap: must be at least 1.0, but is 0.5",
    "tis: {cap: none}": "tis.cap: must be a number, but is 'none'",
    "tis: {cap: .inf}": "tis.cap: must be a finite number, but is inf",
    "tis: {gap: 0}": "tis.gap: must be more than 0.0, but is 0",
    "tis: {gap: true}": "tis: gap must be a number, but is true",
    "tis: {gp: 1}": "tis.gp: no such setting; did you mean gap?",
    "model: ''": "model: must not be empty, but is ''",
    "name: 3": "name: must be text, but is 3",
    "method: grpoo": "method: there is no method 'grpoo'; did you mean grpo?",
    "{prompts_per_step: 7, updates: {minibatches: 2}}": "prompts_per_step (7) does not divide into "
    "updates.minibatches (2): choose a divisor, minibatches take whole groups",
    "prompts_per_step: 200": "prompts_per_step is 200, but task.pool_size is 128: "
    "a step cannot hold more prompts than the pool",
    "{method: grpo, group_size: 1}": "group_size is 1, but GRPO compares a rollout with its group and needs 2 or more: "
    "raise group_size",
    "{methods: [pm1, {name: a3po, base: rloo}], group_size: 1}": "group_size is 1, but A3PO on RLOO compares a rollout "
    "with its group and needs 2 or more: raise group_size",
    "{method: {name: pass_at_k, set: {k: 6}}, group_size: 5}": "group_size is 5, but Pass@k training compares a "
    "rollout with its group and needs 6 or more: raise group_size, or lower k",
    "overlong: {buffer: 73}": "overlong.buffer is 73, but sampling.max_new_tokens is 72: "
    "the penalty grows over the last tokens of the longest response",
    "overlong: {buffer: -1}": "overlong.buffer: must be at least 0, but is -1",
    "overlong: {buffer: 1.5}": "overlong.buffer: must be a whole number, but is 1.5",
    "overlong: {factor: 0}": "overlong.factor: must be more than 0.0, but is 0",
    "overlong: {bufer: 8}": "overlong.bufer: no such setting; did you mean buffer?",
    "record: {proxy_min_p: 0}": "record.proxy_min_p: must be more than 0.0, but is 0",
    "record: {proxy_min_p: 1.5}": "record.proxy_min_p: must be at most 1.0, but is 1.5",
    "loss: {clip_low: 1.1}": "loss.clip_low: must be at most 1.0, but is 1.1",
    "loss: {objective: ppo}": "loss.objective: must be 'clip', 'ratio', 'gspo', 'cispo' or 'reinforce', but is 'ppo'",
    "method: {name: a3po, mass_matched: maybe}": "method.mass_matched: must be true or false, but is 'maybe'",
    "method: {name: a3po, mass_match: true}": "method.mass_match: no such setting; did you mean mass_matched?",
    "method: {name: fork_tokens, base: gspo}": "method: fork_tokens trains on single tokens, and the objective gspo "
    "has one ratio for a whole response: choose a base with a ratio for each token, such as dapo",
    "evaluate: {k: 9}": "evaluate.k is 9, but evaluate.rollouts is 8: pass@k needs at least k rollouts a prompt",
    "evaluate: {probes: 65}": "evaluate.probes is 65, but evaluate.prompts is 64: "
    "probes are the first of the held-out prompts",
}


@pytest.mark.parametrize(("text", "sentence"), BAD.items(), ids=list(BAD))
def test_a_bad_setting_is_one_sentence_that_names_the_field(text: str, sentence: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse(yaml.safe_load(text))
    assert str(caught.value) == sentence


def test_a_methods_own_parameters_are_checked_too() -> None:
    with pytest.raises(ConfigError, match=r"method: .*rho_positivee.*did you mean rho_positive"):
        parse({"method": {"name": "a3po", "set": {"rho_positivee": 2}}})
    with pytest.raises(ConfigError, match=r"method: .*ratio"):
        parse({"methods": ["grpo", {"name": "a3po", "set": {"ratio": 7}}]})


def test_a_misspelt_name_is_reported_before_what_it_explains() -> None:
    with pytest.raises(ConfigError, match=r"^group_sise: no such setting; did you mean group_size"):
        parse({"steps": "x", "group_sise": 4})


def test_evaluation_is_not_checked_when_it_is_off() -> None:
    assert parse_run({"evaluate": {"every": 0, "k": 99}}).evaluate.k == 99


def test_yaml_spells_off_and_small_numbers_its_own_way() -> None:
    run = parse(yaml.safe_load("record: {after_update: off}\noptimizer: {lr: 1e-3}")).run
    assert run.record.after_update == "off"
    assert run.optimizer.lr == 0.001
    assert parse(yaml.safe_load("method: {name: a3po, set: {alpha: 1e-2}}")).methods[0].set == {"alpha": 0.01}


def test_a_methods_parameter_is_set_by_its_full_name_too() -> None:
    data = {"method": {"name": "adora_amplify", "also": ["adora_attenuate"], "set": {"adora_attenuate.weight": 0.2}}}
    changed = parse(override(data, ["method.set.adora_attenuate.weight=0.3", "method.set.tau=0.4"]))
    assert changed.methods[0].set == {"adora_attenuate.weight": 0.3, "tau": 0.4}
    assert parse(yaml.safe_load(dump(changed))) == changed


MATCHED = {"methods": ["a3po", {"name": "a3po", "mass_matched": True}], "seeds": [0, 1]}


def test_a_mass_matched_twin_is_another_method_with_a_label_of_its_own() -> None:
    experiment = parse(MATCHED)
    runs = experiment.expand("id")
    assert [run.name for run in runs] == [
        "A3PO on DAPO, seed 0", "A3PO on DAPO, mass-matched, seed 0",
        "A3PO on DAPO, seed 1", "A3PO on DAPO, mass-matched, seed 1",
    ]  # fmt: skip
    assert [run.build_method().mass_matched for run in runs[:2]] == [False, True]
    assert parse(yaml.safe_load(dump(experiment))) == experiment


@pytest.mark.parametrize("start", ["adora_amplify", {"name": "adora_amplify", "base": "dapo"}])
def test_the_control_is_switched_on_from_the_command_line(start: object) -> None:
    (run,) = parse(override({"method": start}, ["method.mass_matched=true"])).expand("id")
    assert run.method.mass_matched
    assert run.name.endswith("ADORA amplify, mass-matched" if start == "adora_amplify" else "on DAPO, mass-matched")
    assert read_back(run) == run


def read_back(run: RunConfig) -> RunConfig:
    return parse_run(yaml.safe_load(dump(run)))


def test_a_schedule_belongs_to_one_weight() -> None:
    method = {"name": "adora_amplify", "base": "dapo", "also": ["a3po"]}
    run = parse_run({"method": {**method, "set": {"adora_amplify": {"schedule": "until", "schedule_steps": 50}}}})
    assert run.method.set == {"adora_amplify.schedule": "until", "adora_amplify.schedule_steps": 50}
    by_name = {rule.name: rule.params for rule in run.build_method().weights}
    assert (by_name["adora_amplify"]["schedule"], by_name["a3po"]["schedule"]) == ("until", "constant")
    assert read_back(run) == run
    with pytest.raises(ConfigError, match=r"method: schedule could mean .*a3po.*: write it in full"):
        parse_run({"method": {**method, "set": {"schedule": "until"}}})


def test_the_overlong_penalty_is_off_unless_a_buffer_is_given() -> None:
    assert (RunConfig().overlong.buffer, RunConfig().overlong.factor) == (0, 1.0)
    run = parse(override({}, ["overlong.buffer=72", "overlong.factor=0.5"])).run
    assert (run.overlong.buffer, run.overlong.factor) == (72, 0.5)
    assert read_back(run) == run


def test_the_proxys_min_p_is_lp_regs_own_or_what_is_to_be_recorded() -> None:
    assert RunConfig().proxy_min_p is None
    recording = parse_run({"record": {"proxy_min_p": 0.05}})
    assert (recording.proxy_min_p, read_back(recording)) == (0.05, recording)
    assert parse_run({"method": "lp_reg"}).proxy_min_p == 0.02
    own = {"method": {"name": "lp_reg", "set": {"min_p": 0.1}}, "record": {"proxy_min_p": 0.05}}
    with pytest.raises(ConfigError, match=r"record.proxy_min_p is 0.05, but lp_reg.min_p is 0.1 and decides: leave"):
        parse_run(own)
    assert parse_run({**own, "record": {}}).proxy_min_p == 0.1
    assert parse_run({"method": {"name": "a3po", "also": ["lp_reg"]}}).proxy_min_p == 0.02


def test_a_loss_may_have_no_clip_and_no_lower_bound() -> None:
    assert parse_run({"loss": {"objective": "ratio"}}).build_method().loss.objective == "ratio"
    assert parse_run({"loss": {"clip_low": 1}}).build_method().loss.clip_low == 1


def test_groups_may_be_as_small_as_their_rule_allows() -> None:
    for method in ("pm1", "w_reinforce", "reinforce_pp"):
        assert parse_run({"method": method, "group_size": 1}).group_size == 1
    assert parse_run({"method": "grpo", "group_size": 2}).group_size == 2
    several = parse({"methods": ["pm1", "reinforce_pp"], "group_size": 1})
    assert parse(yaml.safe_load(dump(several))) == several
    assert parse_run({"method": {"name": "pass_at_k", "set": {"k": 6}}, "group_size": 6}).group_size == 6


def test_a_config_from_before_these_settings_existed_still_loads(tmp_path: Path) -> None:
    run = parse_run({"method": {"name": "a3po", "set": {"rho_positive": 3}}, "seed": 2, "steps": 9})
    old = yaml.safe_load(dump(run))
    del old["overlong"], old["record"]["proxy_min_p"], old["method"]["mass_matched"]
    (tmp_path / "config.yaml").write_text(yaml.safe_dump(old))
    assert read_run(tmp_path / "config.yaml") == run


def test_one_layer_may_be_named_without_a_list() -> None:
    named = {text: parse_run({"lora": {"targets": text}}).lora.targets for text in ("q_proj", "all-linear", ".*_proj")}
    assert named == {"q_proj": ("q_proj",), "all-linear": "all-linear", ".*_proj": ".*_proj"}


def test_overrides_reach_any_depth_and_read_yaml_values() -> None:
    data = override({"method": "a3po", "steps": 9}, ["optimizer.lr=1e-3", "method.set.rho_positive=3", "steps=20"])
    assert data == {"method": {"name": "a3po", "set": {"rho_positive": 3}}, "steps": 20, "optimizer": {"lr": 0.001}}
    assert override({"steps": 1}, ["record.reference=true", "seeds=[0, 1e1]"]) == {
        "steps": 1,
        "record": {"reference": True},
        "seeds": [0, 10.0],
    }


def test_the_correction_of_the_sampler_can_be_set_and_switched_off() -> None:
    assert (RunConfig().tis.cap, RunConfig().tis.gap) == (2.0, 0.1)
    off = parse(override({}, ["tis.cap=null", "tis.gap=5e-2"]))
    assert (off.run.tis.cap, off.run.tis.gap) == (None, 0.05)
    assert parse(yaml.safe_load(dump(off))) == off
    assert parse_run(yaml.safe_load("tis: {cap: 3}")).tis.cap == 3


@pytest.mark.parametrize(
    "text", ["a\x85b", "a\u2028", "\x7f", "\ufeff", "\ufffe", "a\n\u202e😀\U000e0001", "'é' \"ö\" \\", "1"]
)
def test_a_text_reads_back_as_it_is_from_a_file_and_from_a_line(text: str) -> None:
    run = parse_run({"task": {"file": {"prompt": text}}})
    assert parse_run(yaml.safe_load(dump(run))) == run
    line = in_a_line(text)
    assert line.isprintable() and override({}, [f"name={line}"]) == {"name": text}


def test_overrides_leave_the_original_alone() -> None:
    original = {"optimizer": {"lr": 1}}
    override(original, ["optimizer.lr=2"])
    assert original == {"optimizer": {"lr": 1}}


def test_one_overrides_several() -> None:
    assert override({"methods": ["grpo", "psr"]}, ["method=nsr"]) == {"method": "nsr"}
    assert override({"seed": 4}, ["seeds=[1, 2]"]) == {"seeds": [1, 2]}


@pytest.mark.parametrize(
    "item", ["steps", "=3", "a..b=3", "steps=[1", "methods.0.set.rho=2", "steps.x=1", "steps=2026-13-45"]
)
def test_a_bad_override_says_which(item: str) -> None:
    with pytest.raises(ConfigError) as caught:
        override({"methods": ["grpo"], "steps": 3}, [item])
    assert str(caught.value).startswith(f"--set {item}: ")


def test_files_that_are_no_config(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"gone\.yaml: no such config file"):
        load(tmp_path / "gone.yaml")
    with pytest.raises(ConfigError, match="cannot be read"):
        load(tmp_path)
    for content, words in {
        b"steps: [1": r"line \d: not valid YAML",
        b"a: 1\nb: c: d": "line 2: not valid YAML",
        b"- 1\n- 2": "not a mapping of settings",
        b"\xff\xfe\x00": "cannot be read|not valid YAML",
        b"x: !!python/object/apply:os.system [ls]": "not valid YAML",
        b"[" * 2000: "not valid YAML",
        b"steps: " + b"9" * 5000: "not valid YAML",
        b"name: 2026-13-45": "not valid YAML",
        b"steps: 3\nlora: {r: 8, alpha: 2, r: 4}": r"line 2: not valid YAML \(r is given twice\)",
    }.items():
        (tmp_path / "bad.yaml").write_bytes(content)
        with pytest.raises(ConfigError, match=rf"bad\.yaml.*({words})") as caught:
            load(tmp_path / "bad.yaml")
        assert "\n" not in str(caught.value)


def test_an_empty_file_is_all_defaults(tmp_path: Path) -> None:
    (tmp_path / "empty.yaml").write_text("# nothing\n")
    assert load(tmp_path / "empty.yaml").run == RunConfig()


@pytest.mark.parametrize(
    ("changes", "name"),
    [
        (["method.name=a_grae"], "A-GRAE"),
        (["method={name: a3po, base: dapo}"], "A3PO on DAPO"),
        (["methods=[psr, nsr]"], "PSR, NSR"),
        (["methods=[psr]", "seeds=[0, 1]"], "PSR"),
        (["method.name=psr", "name=mine"], "mine"),
        (["method.name=grpo"], "Small pool"),
        (["method.set.eps=0.1", "steps=5"], "Small pool"),
    ],
)
def test_a_configs_name_speaks_of_its_own_methods(tmp_path: Path, changes: list[str], name: str) -> None:
    (tmp_path / "a.yaml").write_text("name: Small pool\nmethod: grpo\n")
    changed = load(tmp_path / "a.yaml", changes)
    assert changed.name == name
    assert len(changed.methods) * len(changed.seeds) > 1 or [run.name for run in changed.expand(None)] == [name]
    assert load(tmp_path / "a.yaml", changes, "given").name == "given"


def test_a_name_given_apart_wins(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text("name: one\n")
    assert load(tmp_path / "a.yaml", (), "1e3").name == "1e3"


def test_expanding_interleaves_the_methods() -> None:
    runs = parse({"methods": ["grpo", "psr"], "seeds": [4, 5], "steps": 3, "name": "x"}).expand("x-1")
    assert [(run.method.name, run.seed) for run in runs] == [("grpo", 4), ("psr", 4), ("grpo", 5), ("psr", 5)]
    assert {run.experiment for run in runs} == {"x-1"}
    assert {run.steps for run in runs} == {3}
    assert [run.name for run in runs][:2] == ["GRPO, seed 4", "PSR, seed 4"]


def test_an_experiment_of_one_is_an_ordinary_run() -> None:
    (run,) = parse({"method": "psr", "seed": 7, "name": "mine"}).expand("id")
    assert (run.name, run.experiment, run.method.name, run.seed) == ("mine", None, "psr", 7)


def test_methods_of_one_label_are_told_apart_by_their_parameters() -> None:
    methods = [{"name": "a3po", "set": {"rho_positive": rho}} for rho in (1.5, 3)]
    names = [run.name for run in parse({"methods": methods}).expand("id")]
    assert len(set(names)) == 2
    assert "rho_positive 3" in names[1]


def test_a_recorded_config_runs_again_by_itself(tmp_path: Path) -> None:
    (run,) = parse({"method": "a3po", "seed": 3, "steps": 7, "updates": {"minibatches": 2}}).expand("e-1")
    (tmp_path / "config.yaml").write_text(dump(run))
    assert read_run(tmp_path / "config.yaml") == run
    again = load(tmp_path / "config.yaml").expand("e-2")
    assert again == [run]


names = st.text(st.characters(codec="utf-8", exclude_categories=("Cc",)), max_size=40)


@settings(max_examples=25)
@given(
    name=names,
    look_for=names,
    methods=st.sampled_from(
        [["grpo"], ["psr", "nsr"], [{"name": "adora_amplify", "base": "dapo"}], MATCHED["methods"], ["gspo", "lp_reg"]]
    ),
    seeds=st.lists(st.integers(0, 2**31 - 1), min_size=1, max_size=3, unique=True),
    lr=st.floats(1e-9, 1),
    targets=st.sampled_from(["all-linear", ["q_proj", "v_proj"]]),
)
def test_what_is_dumped_loads_equal(tmp_path_factory, name, look_for, methods, seeds, lr, targets) -> None:
    data = {"name": name, "look_for": look_for, "methods": methods, "seeds": seeds}
    experiment = parse({**data, "optimizer": {"lr": lr}, "lora": {"targets": targets}})
    path = tmp_path_factory.getbasetemp() / "dumped.yaml"
    path.write_text(dump(experiment), encoding="utf-8")
    assert load(path) == experiment
    for run in experiment.expand("id"):
        path.write_text(dump(run), encoding="utf-8")
        assert read_run(path) == run


def test_settings_cannot_be_changed_in_place() -> None:
    with pytest.raises(ValueError, match="frozen"):
        RunConfig().steps = 3


def test_reading_configs_needs_no_torch() -> None:
    code = "import sys, core.config; print([m for m in ('torch', 'transformers', 'peft') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_the_embedded_model_takes_one_thread_unless_told() -> None:
    assert parse_run({}).cpu_threads == 1
    assert parse_run({"threads": 2}).cpu_threads == 2
    assert parse_run({"model": "some/folder"}).cpu_threads is None


def test_old_configs_have_no_system_prompt_and_no_stop_strings() -> None:
    old = {name: value for name, value in yaml.safe_load(dump(RunConfig())).items() if name != "system_prompt"}
    del old["sampling"]["stop"]
    assert parse_run(old) == RunConfig()
    assert (RunConfig().system_prompt, RunConfig().sampling.stop) == (None, ())


def test_stop_strings_and_system_prompts_come_back_as_they_were() -> None:
    texts = {"system_prompt": "line one\n  line two: {x}", "sampling": {"stop": ["\n\n", " #", "yes", "3", "\\n"]}}
    config = parse_run(texts)
    assert config.sampling.stop == ("\n\n", " #", "yes", "3", "\\n")
    assert parse_run(yaml.safe_load(dump(config))) == config
    assert parse_run({"sampling": {"stop": "END"}}).sampling.stop == ("END",)
