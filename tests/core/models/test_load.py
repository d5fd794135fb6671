import json
import shutil

import pytest
import torch
from safetensors.torch import load_file, save_file

from core.models.catalog import EMBEDDED_PATH, ModelError
from core.models.corpus import VOCABULARY
from core.models.load import load_model
from core.tasks import get_task


@pytest.fixture(scope="module")
def embedded():
    return load_model("embedded")


@pytest.fixture
def copy(tmp_path):
    return shutil.copytree(EMBEDDED_PATH, tmp_path / "copy")


def test_the_model_is_the_architecture_that_it_says(embedded):
    model, _ = embedded
    config = model.config
    assert type(model).__name__ == "LlamaForCausalLM"
    assert (config.hidden_size, config.num_hidden_layers, config.num_attention_heads, config.head_dim) == (
        128,
        3,
        4,
        32,
    )
    assert config.tie_word_embeddings is False and config.initializer_range == 0.05
    assert config.vocab_size == len(VOCABULARY)
    assert not model.training and model.dtype == torch.float32
    assert not torch.equal(model.lm_head.weight, model.model.embed_tokens.weight)


def test_the_weights_are_those_of_the_file(embedded):
    for name, tensor in load_file(EMBEDDED_PATH / "model.safetensors").items():
        assert torch.equal(embedded[0].state_dict()[name], tensor)


def test_bfloat16(copy):
    model, _ = load_model(str(copy), dtype="bfloat16")
    assert model.dtype == torch.bfloat16
    with pytest.raises(ModelError, match="precision 'float8' is unknown"):
        load_model(str(copy), dtype="float8")


def test_text_goes_through_the_tokenizer_and_back(embedded):
    _, tokenizer = embedded
    text = r"7+8-3+6=?14-3+6 so 11+6 wait 12+6 then 18 check 15-3+6 ok 12+6 so 18 ok \boxed{18}"
    ids = tokenizer(text)["input_ids"]
    assert tokenizer.decode(ids) == text
    assert "".join(tokenizer.decode([i]) for i in ids) == text
    assert [tokenizer.decode([i]) for i in ids[:9]] == ["7", "+", "8", "-", "3", "+", "6", "=", "?"]
    assert tokenizer.encode(text) == tokenizer.encode(text, add_special_tokens=False)


def test_prompts_have_one_token_a_number_and_a_sign(embedded):
    _, tokenizer = embedded
    for prompt in get_task("embedded").held_out(200):
        ids = tokenizer.encode(prompt.text)
        assert tokenizer.unk_token_id not in ids
        assert len(ids) == 2 * sum(map(prompt.text.count, "+-")) + 3
        assert tokenizer.decode(ids) == prompt.text


def test_special_tokens(embedded):
    model, tokenizer = embedded
    assert tokenizer.convert_ids_to_tokens(list(range(len(tokenizer)))) == list(VOCABULARY)
    assert (tokenizer.pad_token, tokenizer.eos_token, tokenizer.bos_token) == ("<pad>", "<eos>", None)
    assert (model.config.pad_token_id, model.config.eos_token_id) == (tokenizer.pad_token_id, tokenizer.eos_token_id)
    ended = [*tokenizer.encode(r"\boxed{3}"), tokenizer.eos_token_id]
    assert tokenizer.decode(ended, skip_special_tokens=True) == r"\boxed{3}"
    assert tokenizer.unk_token_id in tokenizer.encode("hello \U0001f600 30")
    assert tokenizer(["1+1+1=?", "1+1+1+1=?"], padding=True)["input_ids"][0][:2] == [tokenizer.pad_token_id] * 2


def test_weights_that_lack_a_tensor_are_refused(copy):
    tensors = load_file(copy / "model.safetensors")
    del tensors["lm_head.weight"]
    save_file(tensors, copy / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(ModelError, match=r"weight files lack lm_head.weight"):
        load_model(str(copy))


def test_an_unknown_architecture_is_one_sentence(copy):
    config = json.loads((copy / "config.json").read_text())
    config |= {"model_type": "nonesuch", "architectures": ["NonesuchForCausalLM"]}
    (copy / "config.json").write_text(json.dumps(config))
    with pytest.raises(ModelError, match="cannot be loaded") as raised:
        load_model(str(copy))
    assert "\n" not in str(raised.value)


def test_code_beside_the_weights_is_never_run(copy, tmp_path):
    mark = tmp_path / "ran"
    (copy / "evil.py").write_text(f"open({str(mark)!r}, 'w').close()\nclass Evil: pass\n")
    config = json.loads((copy / "config.json").read_text())
    config |= {"model_type": "evil", "auto_map": {"AutoConfig": "evil.Evil", "AutoModelForCausalLM": "evil.Evil"}}
    (copy / "config.json").write_text(json.dumps(config))
    with pytest.raises(ModelError, match="cannot be loaded"):
        load_model(str(copy))
    assert not mark.exists()


def test_pickled_weights_are_never_opened(copy):
    (copy / "model.safetensors").unlink()
    torch.save({}, copy / "pytorch_model.bin")
    with pytest.raises(ModelError, match="pickled"):
        load_model(str(copy))
