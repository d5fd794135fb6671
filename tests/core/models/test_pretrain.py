import math
import random
import re
import subprocess
import sys

import pytest
import torch

from core.models import corpus, pretrain
from core.models.load import load_model
from core.models.pretrain import INDEX, Stage, build_model, pack, schedule, train

TINY = (
    Stage("single operations", 3, 8, 2e-3, corpus.drill_example),
    Stage("mistakes", 3, 8, 1e-3, corpus.noisy_example),
)


@pytest.fixture(autouse=True)
def one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def test_packed_examples_do_not_see_each_other():
    rng = random.Random(0)
    examples = [corpus.noisy_example(rng) for _ in range(12)]
    torch.manual_seed(0)
    model = build_model(len(corpus.VOCABULARY)).eval()
    batch = pack(examples, 64)
    assert batch.ids_BT.shape[0] < len(examples)
    with torch.no_grad():
        logits_BTV = model(
            input_ids=batch.ids_BT, position_ids=batch.position_BT, attention_mask=batch.visible_B1TT
        ).logits
        real = (batch.position_BT == 0) & (batch.ids_BT != INDEX[corpus.PAD])
        starts = real.nonzero().tolist()
        assert len(starts) == len(examples)
        for (row, start), example in zip(starts, examples, strict=True):
            end = start + len(example.tokens)
            ids = torch.tensor([[INDEX[token] for token in example.tokens]])
            assert torch.equal(batch.ids_BT[row, start:end], ids[0])
            assert batch.weight_BT[row, start:end].tolist() == example.weight
            torch.testing.assert_close(logits_BTV[row, start:end], model(input_ids=ids).logits[0], atol=1e-5, rtol=1e-5)
    total = sum(sum(example.weight) for example in examples)
    assert batch.weight_BT.sum().item() == total


def test_the_rate_rises_and_only_the_last_stage_falls():
    assert schedule(0, 1000, last=False) == pytest.approx(0.02)
    assert schedule(999, 1000, last=False) == 1
    assert schedule(500, 1000, last=True) == pytest.approx(0.55)
    assert schedule(999, 1000, last=True) == pytest.approx(0.1, abs=1e-3)


def test_a_seed_gives_one_model_and_training_moves_it():
    def weights(seed, stages=TINY):
        return torch.cat([w.flatten() for w in train(seed, stages, say=lambda words: None).parameters()])

    first = weights(0)
    assert torch.equal(first, weights(0))
    assert not torch.equal(first, weights(1))
    assert not torch.equal(first, weights(0, stages=TINY[:1]))


def test_progress_is_told():
    said = []
    train(0, TINY, say=said.append)
    assert [re.sub(r"^ *\d+ s  |, loss .*", "", line) for line in said] == ["single operations: 3/3", "mistakes: 3/3"]


def test_the_loss_falls():
    stage = Stage("single operations", 40, 16, 3e-3, TINY[0].write)
    said = []
    train(0, (stage,), said.append)
    guessing = math.log(20)  # nats, among the totals there are
    assert float(said[-1].rsplit(" ", 1)[1]) < guessing - 0.3


def test_what_is_saved_is_a_model_that_loads(tmp_path):
    model = train(0, TINY, say=lambda words: None)
    pretrain.save(model, tmp_path / "new" / "model")
    loaded, tokenizer = load_model(str(tmp_path / "new" / "model"))
    assert torch.equal(loaded.lm_head.weight, model.lm_head.weight)
    assert tokenizer.decode(tokenizer.encode("7+8=?")) == "7+8=?"
    assert (tmp_path / "new" / "model" / "model.safetensors").stat().st_mode & 0o044 == 0o044


def test_the_script_names_its_options():
    done = subprocess.run(
        [sys.executable, "-m", "core.models.pretrain", "--help"], capture_output=True, text=True, check=True
    )
    assert "--out" in done.stdout and "--seed" in done.stdout
