"""A trained adapter leaves the lab: PEFT reads the archive, its card tells what it is, and merging changes nothing."""

from __future__ import annotations

import io
import json
import re
import tomllib
import zipfile
from pathlib import Path

import pytest
import torch
import yaml
from peft import PeftModel
from transformers import AutoModelForCausalLM, AutoTokenizer

import core
from core.cli import main
from core.config import dump, parse_run, read_run
from core.exporters import model_card
from core.exporters.adapter import ExportError, adapter_zip, has_adapter
from core.exporters.merged import merge
from core.exporters.model_card import card, model_name, settings
from core.models.load import load_model
from tests.core.models.folders import Kind, save
from tests.core.train.runs import run

KINDS = [Kind("llama", chat=True, tied=True, pad="eos"), Kind("qwen2"), Kind("gpt2", tied=True, pad="none")]
SECRET = "a-place-of-mine"
PROMPT = "7+8-3+6=?"


@pytest.fixture(scope="module", params=KINDS, ids=str)
def trained(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of two steps on a model in a folder."""
    place = tmp_path_factory.mktemp(SECRET)
    return trained_on(save(request.param, place / "small-model"), place / "run", chat=request.param.chat)


def trained_on(model: Path, run_dir: Path, chat: bool = False, **lora: object) -> Path:
    settings = {"system_prompt": "1+1=2 ```"} if chat else {}
    return run(
        run_dir, model=str(model), method="nsr_pm1", steps=2, lora={"r": 4, **lora}, **settings,
        sampling={"max_new_tokens": 8, "stop": ["5"]}, evaluate={"every": 2},
    )  # fmt: skip


def logits(model: torch.nn.Module, ids: torch.Tensor) -> torch.Tensor:
    with torch.no_grad():
        return model.eval()(ids).logits


def unpacked(run_dir: Path, place: Path) -> Path:
    with zipfile.ZipFile(io.BytesIO(adapter_zip(run_dir))) as archive:
        assert archive.testzip() is None
        archive.extractall(place)
    (folder,) = place.iterdir()
    return folder


def both(run_dir: Path, adapter: Path) -> tuple[torch.nn.Module, torch.nn.Module, torch.Tensor]:
    """The base model, the same with the adapter through plain PEFT, and some ids."""
    path = read_run(run_dir / "config.yaml").model
    base, again = (AutoModelForCausalLM.from_pretrained(path) for _ in range(2))
    ids = torch.tensor([AutoTokenizer.from_pretrained(path)(PROMPT)["input_ids"]])
    return base, PeftModel.from_pretrained(again, adapter), ids


def test_a_card_says_that_a_stopped_run_was_not_evaluated_at_its_end() -> None:
    row = {
        "step": 10, "prompts": 4, "rollouts": 4, "pass_at_1": 0.5, "k": 4, "pass_at_k": 0.5, "greedy": None,
        "truncated_share": 0.0,
    }  # fmt: skip
    config = parse_run({"method": "grpo"})
    assert "that of 14 steps; it was not evaluated" in model_card._results([row], 14, config)
    assert "not evaluated" not in model_card._results([row], 10, config)


def test_peft_reads_the_archive(trained: Path, tmp_path: Path) -> None:
    folder = unpacked(trained, tmp_path / "out")
    assert sorted(file.name for file in folder.iterdir()) == [
        "README.md", "adapter_config.json", "adapter_model.safetensors",
    ]  # fmt: skip
    base, adapted, ids = both(trained, folder)
    own = both(trained, trained / "adapter")[1]
    assert torch.equal(logits(adapted, ids), logits(own, ids))
    assert (logits(adapted, ids) - logits(base, ids)).abs().max() > 1e-4
    assert adapter_zip(trained) == adapter_zip(trained)


def test_no_path_of_the_machine_leaves_it(trained: Path, tmp_path: Path) -> None:
    assert SECRET in (trained / "adapter" / "adapter_config.json").read_text()
    folder = unpacked(trained, tmp_path / "out")
    for file in folder.iterdir():
        assert SECRET.encode() not in file.read_bytes(), file.name
    assert json.loads((folder / "adapter_config.json").read_text())["base_model_name_or_path"] == "small-model"


def test_the_card_says_what_it_is_and_how_it_was_made(trained: Path) -> None:
    config = read_run(trained / "config.yaml")
    with zipfile.ZipFile(io.BytesIO(adapter_zip(trained))) as archive:
        text = archive.read(f"{trained.name}-adapter/README.md").decode()
    _, front, body = text.split("---\n", 2)
    assert yaml.safe_load(front)["library_name"] == "peft"
    assert "base_model" not in yaml.safe_load(front), "a folder's name is no id"
    for words in (
        "NSR", "`small-model`", "Task: `embedded`", "Steps: 2 of 2", "rank 4", f"Advantage Lab {core.__version__}",
        f"torch {torch.__version__}", "PeftModel.from_pretrained(base, FOLDER)", 'They ended at: `"5"`',
        "On 4 held-out prompts of the task, 4 responses each", "| 0 | 0.00 |", "| 2 | 0.00 |",
    ):  # fmt: skip
        assert words in body, words
    if config.system_prompt is not None:
        assert "````text\n1+1=2 ```\n````" in body
    assert ("--max-lora-rank 8" in body) == ("--lora-modules policy=FOLDER" in body)
    assert ("vllm serve" in body) != ("vLLM takes no such adapter" in body)
    block = re.search(r"^(`{3,})yaml\n(.*?)\n\1$", body, re.MULTILINE | re.DOTALL)
    assert block and yaml.safe_load(block[2]) == settings(config)


def test_a_merged_model_is_base_and_adapter(trained: Path, tmp_path: Path) -> None:
    out = merge(trained, tmp_path / "merged")
    base, adapted, ids = both(trained, trained / "adapter")
    whole, tokenizer = load_model(str(out))
    assert whole.dtype == torch.float32
    torch.testing.assert_close(logits(whole, ids), logits(adapted, ids), atol=1e-5, rtol=1e-5)
    assert (logits(whole, ids) - logits(base, ids)).abs().max() > 1e-4
    theirs = AutoTokenizer.from_pretrained(read_run(trained / "config.yaml").model)
    assert tokenizer.chat_template == theirs.chat_template and len(tokenizer) == len(theirs)
    assert "merged into its weights" in (out / "README.md").read_text()
    with pytest.raises(ExportError, match="merged is already there"):
        merge(trained, out)
    assert [path.name for path in tmp_path.iterdir()] == ["merged"]


def test_an_adapter_on_a_tied_head_leaves_the_embedding_as_it_is(tmp_path: Path) -> None:
    model = save(Kind("llama", tied=True), tmp_path / "model")
    run_dir = trained_on(model, tmp_path / "run", targets=["q_proj", "lm_head"])
    whole, _ = load_model(str(merge(run_dir, tmp_path / "merged")))
    base, adapted, ids = both(run_dir, run_dir / "adapter")
    torch.testing.assert_close(logits(whole, ids), logits(adapted, ids), atol=1e-5, rtol=1e-5)
    assert torch.equal(whole.get_input_embeddings().weight, base.get_input_embeddings().weight)
    assert not torch.equal(whole.get_output_embeddings().weight, base.get_output_embeddings().weight)


def test_what_cannot_be_exported_is_one_sentence(tmp_path: Path) -> None:
    run_dir = tmp_path / "run"
    run_dir.mkdir()
    (run_dir / "config.yaml").write_text(dump(parse_run({})))
    assert not has_adapter(run_dir)
    for export in (adapter_zip, lambda path: merge(path, tmp_path / "out")):
        with pytest.raises(ExportError, match=r"^the run run has no adapter"):
            export(run_dir)
    (run_dir / "adapter").mkdir()
    (run_dir / "adapter" / "adapter_config.json").write_text("[")
    (run_dir / "adapter" / "adapter_model.safetensors").write_bytes(b"none")
    with pytest.raises(ExportError, match=r"adapter/adapter_config\.json cannot be read as JSON"):
        adapter_zip(run_dir)
    with pytest.raises(ExportError, match=r"^adapter_model\.safetensors is not an adapter of the run's config"):
        merge(run_dir, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_models_go_by_a_name_that_others_know(tmp_path: Path) -> None:
    assert model_name("embedded") == "embedded"
    assert model_name("smollm2-135m") == "smollm2-135m"
    assert model_name("org/small-1.5b") == "org/small-1.5b"
    assert model_name(str(tmp_path / "mine")) == model_name("~/deep/mine") == model_name("C:\\deep\\mine") == "mine"


def test_the_card_of_another_base_says_where_it_is_from(tmp_path: Path) -> None:
    packaged = card(tmp_path, parse_run({"model": "smollm2-135m"}), {})
    assert "HuggingFaceTB/SmolLM2-135M-Instruct" in packaged and "close to it but not the same" in packaged
    hub = card(tmp_path, parse_run({"model": "org/small"}), {"lab": "<b>1</b>"})
    assert yaml.safe_load(hub.split("---\n")[1])["base_model"] == "org/small"
    assert "\\<b\\>" in hub
    assert "never evaluated" in hub


def test_the_command_line_writes_both(trained: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    archive = tmp_path / "a.zip"
    assert main(["export", "adapter", str(trained), "-o", str(archive)]) == 0
    assert archive.read_bytes() == adapter_zip(trained)
    assert main(["export", "merged", str(trained), "-o", str(tmp_path / "merged")]) == 0
    assert (tmp_path / "merged" / "model.safetensors").is_file()
    capsys.readouterr()
    for what, place in (("adapter", archive), ("merged", tmp_path / "merged")):
        assert main(["export", what, str(trained), "-o", str(place)]) == 2
        assert "is already there" in capsys.readouterr().err


def test_the_version_is_the_projects() -> None:
    project = tomllib.loads((Path(__file__).parents[3] / "pyproject.toml").read_text())
    assert core.__version__ == project["project"]["version"]
