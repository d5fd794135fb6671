"""What `core export verl` writes, in the hands of verl: its config, its registry, its call of an estimator.

`test_verl.py` makes the exports and runs this with verl's environment.
"""

from __future__ import annotations

import copy
import json
import os
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest
from hydra import compose, initialize_config_module
from omegaconf import DictConfig, OmegaConf

EXPORTS = sorted(path for path in Path(os.environ["LAB_EXPORTS"]).iterdir() if path.is_dir())
HARD = 'it\'s $HOME `x` ${y} \\ "q" = [1, 2], {z}'


def settings_of(folder: Path) -> list[str]:
    """The words that the script gives to main.py, as the shell makes them."""
    script = (folder / "run.sh").read_text(encoding="utf-8").replace("python3 main.py", "printf '%s\\0'")
    done = subprocess.run(["bash", "-c", script, str(folder / "run.sh")], capture_output=True, text=True, check=True)
    return done.stdout.split("\0")[:-1]


@pytest.fixture(params=EXPORTS, ids=lambda path: path.name)
def export(request: pytest.FixtureRequest) -> Path:
    return request.param


@cache
def _composed(folder: Path) -> DictConfig:
    with initialize_config_module("verl.trainer.config", version_base=None):
        return compose("ppo_trainer", overrides=settings_of(folder))


def config_of(folder: Path) -> DictConfig:
    """verl's config under the script's settings; putting it together takes seconds."""
    return copy.deepcopy(_composed(folder))


def test_verls_config_has_every_key_and_finds_it_valid(export: Path) -> None:
    """Hydra refuses a key that verl's config lacks. What verl asks of vLLM it can only ask where that is installed."""
    from verl.trainer.ppo.utils import need_critic, need_reference_policy
    from verl.utils.config import omega_conf_to_dataclass, validate_config

    words = settings_of(export)
    assert len(words) > 60 and not [word for word in words if word.startswith("+")]
    config = config_of(export)
    assert config.actor_rollout_ref.rollout.name == "vllm"
    config.actor_rollout_ref.rollout.name = "sglang"
    validate_config(config, need_reference_policy(config), need_critic(config))
    assert not need_critic(config)
    omega_conf_to_dataclass(config.algorithm)


def test_settings_arrive_as_they_were(export: Path) -> None:
    config, lab = config_of(export), json.loads((export / "lab.json").read_text())
    names = {"a3po": HARD, "hard": "null"}
    if export.name in names:
        assert config.trainer.experiment_name == names[export.name]
    assert config.actor_rollout_ref.rollout.n == lab["group_size"]
    assert config.data.max_response_length == lab["max_length"]
    assert config.actor_rollout_ref.actor.ppo_mini_batch_size == lab["prompts_per_step"] // lab["minibatches"]
    chat = config.actor_rollout_ref.model.custom_chat_template
    assert (chat is None) == (export.name == "hard")
    if export.name == "hard":
        assert list(config.actor_rollout_ref.model.target_modules) == ["q_proj", "v_proj"]
    else:
        import jinja2

        assert jinja2.Template(chat).render(messages=[{"role": "user", "content": "1+2=?"}]) == "1+2=?"
    if export.name == "grpo_kl":
        actor = config.actor_rollout_ref.actor
        assert (actor.use_kl_loss, actor.kl_loss_coef, actor.optim.optimizer) == (True, 0.01, "SGD")


RUN_THERE = """
import json, sys
import numpy as np, torch
sys.path.insert(0, {folder!r})
import lab_advantage, core.advantage, core.tasks
assert core.advantage.__file__.startswith({folder!r}), core.advantage.__file__
import lab_verl
from verl import DataProto
from verl.trainer.config import AlgoConfig
from verl.trainer.ppo.ray_trainer import compute_advantage
from verl.utils.import_utils import load_extern_object

draw = np.random.default_rng(0)
length = np.array([3, 8, 5, 8, 2, 6, 7, 4])
mask = torch.from_numpy((np.arange(8) < length[:, None]).astype(np.int64))
right = np.array([1, 0, 0, 1, 1, 1, 0, 0], dtype=bool)
reward = torch.zeros(8, 8)
reward[np.arange(8), length - 1] = torch.from_numpy(right.astype(np.float32))
old, entropy = (-torch.rand(8, 8) * mask for _ in range(2))
tensors = dict(token_level_rewards=reward, response_mask=mask, old_log_probs=old, entropys=-entropy)
data = DataProto.from_dict(tensors=tensors, non_tensors=dict(uid=np.array(list("aaaabbbb"), dtype=object)))
ids = torch.full((8, 8), 5)
extra = [dict(reward_extra_info=dict(acc=bool(each))) for each in right]
found = lab_verl.show(tensors | dict(responses=ids), step=3, ends={{1}}, extra=extra)
assert not found["truncated"].any() and (found["acc"] == right).all()
made = compute_advantage(data, "lab", config=AlgoConfig(adv_estimator="lab")).batch["advantages"].numpy()
score = load_extern_object({folder!r} + "/lab_reward.py", "compute_score")
said = [score("embedded", text, "3", dict(prompt="1+2=?")) for text in ("\\\\boxed{{3}}", "\\\\boxed{{4}}")]
print(json.dumps(dict(made=made.tolist(), kept=lab_verl.ESTIMATOR.kept.tolist(), old=old.tolist(),
                      entropy=(-entropy).tolist(), said=said)))
"""


@pytest.mark.parametrize("name", ["a3po", "grpo_kl"])
def test_registered_it_gives_the_labs_numbers_from_its_own_copy(name: str) -> None:
    """In a process that finds nothing of the lab but what was exported."""
    export = next(path for path in EXPORTS if path.name == name)
    import numpy as np

    from core.advantage import Batch, build, compute
    from core.tasks.overlong import soft_overlong

    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    code = RUN_THERE.format(folder=str(export))
    done = subprocess.run(
        [sys.executable, "-P", "-c", code], cwd=export, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    told = json.loads(done.stdout.splitlines()[-1])
    lab = json.loads((export / "lab.json").read_text())
    length = np.array([3, 8, 5, 8, 2, 6, 7, 4])
    right = np.array([1, 0, 0, 1, 1, 1, 0, 0], dtype=bool)
    over = lab["overlong"]
    batch = Batch(
        group=np.repeat([0, 1], 4),
        reward=right + soft_overlong(length, lab["max_length"], over["buffer"], over["factor"]),
        correct=right, length=length, truncated=np.zeros(8, dtype=bool), max_length=lab["max_length"], step=3,
        total_steps=lab["total_steps"], minibatches=lab["minibatches"], seed=lab["seed"],
        sampler_logprob=np.array(told["old"]), trainer_logprob=np.array(told["old"]), entropy=np.array(told["entropy"]),
    )  # fmt: skip
    method = lab["method"]
    trace = compute(build(method["name"], params=method["set"], loss=lab["loss"]), batch)
    np.testing.assert_allclose(np.array(told["made"]), trace.advantage, rtol=1e-5, atol=1e-6)
    assert np.abs(trace.advantage).max() > 0.1
    np.testing.assert_array_equal(np.array(told["kept"]), trace.kept)
    assert told["said"] == [{"score": 1.0, "acc": True}, {"score": 0.0, "acc": False}]


def test_the_prompts_are_rows_as_verl_reads_them(export: Path) -> None:
    import pyarrow.parquet as pq

    for name in ("train", "held_out"):
        rows = pq.read_table(export / "data" / f"{name}.parquet").to_pylist()
        assert rows and set(rows[0]) == {"data_source", "prompt", "ability", "reward_model", "extra_info"}
        assert rows[0]["prompt"][-1] == {"role": "user", "content": rows[0]["extra_info"]["prompt"]}
        assert rows[0]["reward_model"]["ground_truth"]


def test_paths_are_made_whole_where_it_runs() -> None:
    """In a process of its own: main.py is a name that anything may have."""
    folders = [path for path in EXPORTS if path.name in ("a3po", "hard")]
    code = """
import runpy, sys
from omegaconf import OmegaConf
sys.path.insert(0, sys.argv[1])
for folder, file in zip(sys.argv[1::2], sys.argv[2::2]):
    config = runpy.run_path(folder + "/main.py")["located"](OmegaConf.load(file))
    print(config.actor_rollout_ref.model.path, config.data.train_files, config.trainer.rollout_data_dir, sep="\\n")
"""
    words = [sys.executable, "-c", code]
    for folder in folders:
        config = folder.with_suffix(".yaml")
        OmegaConf.save(config_of(folder), config)
        words += [str(folder), str(config)]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    made = [str(Path("data", "train.parquet")), "rollouts"]
    whole = [[str(folder.resolve() / name) for name in made] for folder in folders]
    models = [str(folders[0].resolve() / "model"), "someone/of-no-machine"]
    assert done.stdout.splitlines()[-6:] == [models[0], *whole[0], models[1], *whole[1]]
