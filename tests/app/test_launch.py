"""The Launch page: a draft in the address, checked while it is put together, and the same as a command and a file."""

from __future__ import annotations

import json

import pytest
import yaml

from app.inert import inert_markdown
from app.views.settings import ELSEWHERE, all_settings
from core import config as core_config
from core.config import RunConfig, parse, read_run
from core.models.catalog import describe
from core.runs import RunError, presets
from core.runs.folders import REPO
from tests.app.conftest import texts
from tests.app.launch_form import command, launched, widget
from tests.synthetic import make_run


def leaves(model: type, prefix: str = "") -> set[str]:
    found = set()
    for name, field in model.model_fields.items():
        inner = field.annotation
        if isinstance(inner, type) and hasattr(inner, "model_fields"):
            found |= leaves(inner, f"{prefix}{name}.")
        else:
            found.add(prefix + name)
    return found


def test_the_command_names_the_folder_of_the_pages(no_runs, open_page, monkeypatch):
    assert command(open_page("launch"))[-2:] == ["--runs", str(no_runs)]
    monkeypatch.setattr("app.data.runs_root", lambda explicit=None: REPO / "runs")
    assert "--runs" not in command(open_page("launch"))


def test_the_task_stands_with_model_and_methods(no_runs, open_page):
    at = open_page("launch", preset="grpo")
    for kind, key in ((at.main.selectbox, "draft:task.name"), (at.main.number_input, "draft:task.pool_size")):
        assert widget(kind, key)
    hidden = [one.key for expander in at.expander for one in [*expander.selectbox, *expander.number_input]]
    assert "draft:engine" in hidden and not {"draft:task.name", "draft:task.pool_size"} & set(hidden)
    widget(at.number_input, "draft:task.pool_size").set_value(64).run()
    assert launched(at).run.task.pool_size == 64


def test_every_setting_of_a_run_can_be_reached():
    paths = [setting.path for setting in all_settings()]
    assert len(set(paths)) == len(paths)
    assert set(paths) | ELSEWHERE == leaves(RunConfig)
    assert all(setting.help and setting.label for setting in all_settings())


def test_the_widgets_offer_nothing_that_the_config_refuses():
    """Each limit and each choice of a setting, alone, makes a config or a sentence about another field."""
    for setting in all_settings():
        for value in [*(v for v in (setting.low, setting.high) if v is not None), *setting.choices]:
            data = core_config.override({}, [f"{setting.path}={json.dumps(value)}"])
            try:
                parse(data)
            except core_config.ConfigError as error:
                assert not str(error).startswith(f"{setting.path}:"), error


def test_it_opens_with_a_preset_its_promise_and_its_command(no_runs, open_page):
    at = open_page("launch")
    assert not at.exception
    assert at.header[0].value == "What will this run do, how long will it take, and what is the command for it?"
    said = texts(at)
    assert "About" in said
    assert "1\u00a0run of GRPO" in said
    assert "6\u202f400 rollouts" in said
    assert launched(at) == next(preset.config for preset in presets() if preset.id == "grpo")
    assert widget(at.button, "start").disabled is False


@pytest.mark.parametrize("preset", [preset.id for preset in presets()])
def test_every_preset_fills_the_form_and_gives_itself_back(no_runs, open_page, preset):
    at = open_page("launch", preset=preset)
    assert not at.exception
    wanted = next(one.config for one in presets() if one.id == preset)
    if not describe(wanted.run.model).ready:
        assert at.error[0].value == inert_markdown(describe(wanted.run.model).problem)
        assert widget(at.button, "start").disabled
        return
    assert launched(at) == wanted
    assert parse(yaml.safe_load(at.code[1].value)) == wanted


def test_a_change_goes_into_the_address_the_command_and_the_file(no_runs, open_page):
    at = open_page("launch", preset="grpo")
    widget(at.number_input, "draft:optimizer.lr").set_value(0.0005).run()
    widget(at.number_input, "draft:updates.minibatches").set_value(2).run()
    assert at.query_params["set"] == ["optimizer.lr=0.0005", "updates.minibatches=2"]
    assert launched(at).run.optimizer.lr == 0.0005
    assert launched(at).run.updates.minibatches == 2
    assert launched(at).name == "GRPO, changed"
    again = open_page("launch", preset="grpo", set=at.query_params["set"])
    assert again.code[0].value == at.code[0].value
    widget(at.button, "undo").click().run()
    assert "set" not in at.query_params


def test_other_methods_go_by_their_own_name(no_runs, open_page):
    at = open_page("launch", preset="grpo", set='methods=["a_grae"]')
    assert widget(at.text_input, "draft:name").value == launched(at).name == "A-GRAE"
    assert command(at)[4:7] == ["runs/presets/grpo.yaml", "--set", 'methods=["a_grae"]'] and "--name" not in command(at)
    assert launched(open_page("launch", preset="grpo", set='methods=["psr", "nsr"]')).name == "PSR, NSR"
    assert launched(open_page("launch", preset="small_pool", set="steps=9")).name == "Small pool, changed"


def test_a_name_that_was_typed_stays(no_runs, open_page):
    at = open_page("launch", preset="grpo", set='methods=["a_grae"]')
    widget(at.text_input, "draft:name").set_value("GRPO").run()
    assert widget(at.text_input, "draft:name").value == launched(at).name == "GRPO"
    widget(at.text_input, "draft:name").set_value("A-GRAE").run()
    assert at.query_params["set"] == 'methods=["a_grae"]'


def test_back_at_the_presets_value_nothing_is_a_change(no_runs, open_page):
    at = open_page("launch", preset="grpo", set="steps=50")
    widget(at.number_input, "draft:steps").set_value(100).run()
    assert "set" not in at.query_params


def test_methods_back_at_the_presets_are_no_change(no_runs, open_page):
    at = open_page("launch", preset="a3po_adora_dapo")
    also = "draft:methods.0.also"
    widget(at.multiselect, also).set_value([]).run()
    assert at.query_params["set"] == 'methods=[{"name": "a3po", "base": "dapo"}]'
    widget(at.multiselect, also).set_value(["adora_amplify"]).run()
    assert "set" not in at.query_params


def test_an_impossible_draft_is_one_sentence_and_cannot_start(no_runs, open_page):
    at = open_page("launch", preset="grpo", set=["prompts_per_step=6", "updates.minibatches=4"])
    assert not at.exception
    assert len(at.error) == 1
    assert "does not divide into" in at.error[0].value
    assert widget(at.button, "start").disabled
    assert at.code == []
    widget(at.number_input, "draft:updates.minibatches").set_value(3).run()
    assert not at.error
    assert not widget(at.button, "start").disabled


@pytest.mark.parametrize(
    "change",
    ["steps=many", "steps=-3", "optimizer.lr=1e9", "zork=1", "method=7", "methods=[zork]", "methods=[]", "seeds=[a]",
     "model=no/such/model", "task.name=zork", "lora=3", "lora.targets=[]", "optimizer.betas=[2,3]", "group_size=true",
     "loss.kl=.nan", "name=[1]", "methods=[{name: grpo, set: {zork: 1}}]", "methods=[{name: a3po, base: zork}]",
     "methods=[{name: a3po, also: zork}]", "steps", "=", "a.b.c=1", "steps=[", "device=cuda"],
)  # fmt: skip
def test_nonsense_in_the_address_never_breaks_the_page(no_runs, open_page, change):
    at = open_page("launch", set=change)
    assert not at.exception
    problems = [*at.error, *at.warning]
    assert len(problems) == 1, [problem.value for problem in problems]
    assert "Something went wrong" not in problems[0].value


def test_optional_settings_can_be_left_to_the_recipe(no_runs, open_page):
    at = open_page("launch", set=["loss.kl=0.01", "loss.objective=gspo"])
    assert launched(at).run.loss.kl == 0.01
    widget(at.number_input, "draft:loss.kl").set_value(None).run()
    widget(at.selectbox, "draft:loss.objective").set_value("").run()
    assert launched(at).run.loss == RunConfig().loss


def test_what_to_look_for_goes_when_the_methods_change(no_runs, open_page):
    kept = yaml.safe_load(open_page("launch", preset="quickstart", set="steps=20").code[1].value)
    gone = yaml.safe_load(open_page("launch", preset="quickstart", set="methods=[a3po, grpo]").code[1].value)
    assert "GRPO" in kept["look_for"]
    assert gone["look_for"] == ""


def test_a_runs_settings_can_be_taken_over(no_runs, open_page):
    path = make_run(no_runs, "before", method="psr", steps=3, prompts=2, group_size=2, seed=5)
    at = open_page("launch", **{"from": "before"})
    made = parse(yaml.safe_load(at.code[1].value))
    ran = read_run(path / "config.yaml")
    assert made.seeds == (5,)
    assert made.methods == (ran.method,)
    assert made.run.task == ran.task
    missing = open_page("launch", **{"from": "zork"})
    assert not missing.exception
    assert "cannot be used" in missing.warning[0].value


def test_start_creates_the_runs_and_leads_to_live(no_runs, open_page, monkeypatch):
    started = []

    def start(root, experiment):
        started.append((root, experiment))
        return [make_run(root, "new", steps=3, prompts=2, group_size=2, state="queued")]

    monkeypatch.setattr("core.runs.control.start", start)
    at = open_page("launch", preset="dapo", set="steps=7")
    widget(at.button, "start").click().run()
    assert not at.exception
    assert started[0][0] == no_runs
    assert started[0][1].run.steps == 7
    assert at.header[0].value == "Is it learning, and is anything wrong?"
    assert at.query_params["run"] == "new"


def test_an_experiment_starts_whole_and_leads_to_its_curves(no_runs, open_page, monkeypatch):
    def start(root, experiment):
        labels = [(run.method.name, run.seed) for run in experiment.expand(None)]
        small = {"steps": 3, "prompts": 2, "group_size": 2, "state": "queued", "experiment": "e"}
        return [make_run(root, f"{method}-{seed}", method=method, seed=seed, **small) for method, seed in labels]

    monkeypatch.setattr("core.runs.control.start", start)
    at = open_page("launch", preset="grpo", set="methods=[grpo, psr, nsr]")
    widget(at.button, "seeds:3").click().run()
    assert [str(seed) for seed in launched(at).seeds] == widget(at.multiselect, "draft:seeds").value == ["0", "1", "2"]
    said = texts(at)
    assert "9\u00a0runs: 3\u00a0methods × 3\u00a0seeds" in said and "every method has one finished run" in said
    assert widget(at.button, "start").label == "Start 9\u00a0runs"
    widget(at.button, "start").click().run()
    assert not at.exception and at.query_params["experiment"] == "e" and "run" not in at.query_params
    assert any(element.proto.label == "Compare all 9" for element in at.get("page_link"))


def test_too_few_seeds_to_compare_methods_is_said_before_the_start(no_runs, open_page):
    assert "One seed cannot tell" in texts(open_page("launch", preset="grpo", set="methods=[grpo, psr]"))
    two = texts(open_page("launch", preset="grpo", set=["methods=[grpo, psr]", "seeds=[0, 1]"]))
    assert "Two seeds give a very wide interval" in two
    assert "One seed cannot tell" not in texts(open_page("launch", preset="grpo"))


def test_a_full_disk_is_said_before_anything_starts(no_runs, open_page, monkeypatch):
    def full(root, configs):
        raise RunError("not enough disk space: free some")

    monkeypatch.setattr("app.pages.launch.check_space", full, raising=False)
    monkeypatch.setattr("core.runs.create.check_space", full)
    at = open_page("launch")
    assert "not enough disk space" in at.error[0].value
    assert widget(at.button, "start").disabled
    assert list(no_runs.iterdir()) == []


def test_what_is_probably_not_meant_is_hinted_at(no_runs, open_page):
    hints = [warning.value for warning in open_page("launch", set=["optimizer.lr=0.05", "evaluate.every=0"]).warning]
    assert len(hints) == 2
    assert "unusually large" in hints[0]
    assert "no pass@1" in hints[1]


def test_small_groups_are_a_concern_of_methods_that_compare_within_them(no_runs, open_page):
    small = ["group_size=2", "evaluate.k=2"]
    (hint,) = open_page("launch", preset="grpo", set=["methods=[pm1, grpo]", *small]).warning
    assert hint.value.startswith("With 2 rollouts a prompt")
    alone = open_page("launch", preset="grpo", set=["methods=[pm1, reinforce_pp]", "group_size=1"])
    assert not alone.warning and not alone.error


def test_one_update_a_step_leaves_some_methods_nothing_to_do(no_runs, open_page):
    idle = ["gspo", "cispo", {"name": "a3po", "base": "cispo"}, "kl_cov"]
    busy = ["grpo", "dapo", "lp_reg", "clip_cov", "rloo", "fork_tokens"]
    methods = f"methods={json.dumps([*idle, *busy])}"
    hints = [hint.value for hint in open_page("launch", preset="grpo", set=methods).warning]
    assert [hint.partition(". ")[0] for hint in hints] == [
        "GSPO with one update a step: every ratio is 1 and nothing can clip",
        "CISPO with one update a step: every ratio is 1 and nothing can clip",
        "A3PO on CISPO with one update a step: every ratio is 1 and nothing can clip",
        "KL-Cov on DAPO with one update a step: every ratio is 1 and nothing is penalised",
    ]
    for change in ("updates.minibatches=2", "updates.epochs=2"):
        assert not open_page("launch", preset="grpo", set=[methods, change]).warning


def test_several_gpus_are_offered_and_one_click_takes_them(no_runs, open_page, monkeypatch):
    assert "gpus" not in [button.key for button in open_page("launch").button]
    for place in ("core.runs.locks.has_cuda", "core.runs.create.has_cuda"):
        monkeypatch.setattr(place, lambda: True)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1,2")
    at = open_page("launch", preset="grpo")
    button = widget(at.button, "gpus")
    assert button.label == "Train on 3 GPUs"
    button.click().run()
    assert launched(at).run.processes == 3
    assert "trained by 3 processes together" in texts(at)
    assert "gpus" not in [button.key for button in at.button]
    assert "gpus" not in [button.key for button in open_page("launch", preset="grpo", set='device="cpu"').button]


def test_sinks_that_are_not_installed_are_said_with_their_command(no_runs, open_page, monkeypatch):
    monkeypatch.setattr("core.runs.sinks.installed", lambda name: name == "wandb")
    said = texts(open_page("launch"))
    assert 'Not installed here yet: `pip install "tensorboard' in said and 'pip install "trackio' in said
    assert 'pip install "wandb' not in said
