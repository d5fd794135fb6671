import dataclasses

import numpy as np
import pytest
import torch

from core.advantage import Loss, Penalty, loss_weights
from core.advantage.minibatches import minibatches
from core.config import parse_run
from core.train.policy import Policy
from core.train.update import NotFiniteError, Plan, Updater
from tests.core import tiny
from tests.core.train.test_forward import sequences

GROUP = np.repeat(np.arange(5), 4)


def policy(**settings):
    config = parse_run({"lora": {"r": 4}, "prompts_per_step": 6, **settings})
    return Policy(tiny.llama(), tiny.tokenizer(), config), config


def plan(policy, count=1, trained=(True,) * 5, aggregation="token_mean", seed=1):
    rows = sequences()
    old, _ = policy.scorer.score(rows)
    kept = (np.arange(15)[None, :] < rows.length[:, None]) & np.array(trained)[GROUP][:, None]
    minibatch = minibatches(GROUP, np.array(trained)[GROUP], count)
    advantage = np.random.default_rng(seed).normal(size=20)[:, None] * kept
    return Plan(rows, old, advantage, loss_weights(kept, rows.length, 15, aggregation, minibatch), None, minibatch)


def test_one_sgd_step_is_the_plain_policy_gradient():
    """At ratio 1 every objective's gradient is -sum(weight x advantage x d log p)."""
    ours, config = policy(optimizer={"name": "sgd", "lr": 0.5, "max_grad_norm": None})
    work = plan(ours)
    expected = []
    total = 0
    for row, count in enumerate(work.sequences.length):
        ids = torch.tensor([work.sequences.prompt_ids[row] + work.sequences.token_ids[row, :count].tolist()])
        logp = ours.model(input_ids=ids).logits[0].log_softmax(-1)[-count - 1 : -1]
        terms = -torch.tensor(work.advantage[row, :count]) * logp.gather(-1, ids[0, -count:, None])[:, 0]
        total = total + (torch.tensor(work.weight[row, :count]) * terms).sum()
    total.backward()
    for parameter in ours.parameters.values():
        expected.append((parameter - 0.5 * parameter.grad).detach().flatten())
    done = Updater(ours, config, Loss()).update(work, step=0)
    torch.testing.assert_close(ours.flat(), torch.cat(expected), rtol=1e-4, atol=1e-6)
    assert done.updates == 1
    assert done.lr == 0.5
    assert done.update_norm == pytest.approx(0.5 * done.grad_norm, rel=1e-4)
    kept = work.weight > 0
    np.testing.assert_allclose(done.ratio[kept], 1, atol=1e-5)
    assert np.isnan(done.ratio[~kept]).all()
    assert done.policy_loss == pytest.approx(-(work.weight * work.advantage).sum(), abs=1e-5)


def test_minibatches_take_whole_groups_and_the_same_ones_every_epoch():
    group = np.repeat(np.arange(6), 3)
    assert minibatches(group, np.ones(18, bool), 3).tolist() == np.repeat([0, 0, 1, 1, 2, 2], 3).tolist()
    trained = np.array([True, False, True, False, True, True])
    split = minibatches(group, np.repeat(trained, 3), 2)[::3]
    assert split[trained].tolist() == [0, 0, 1, 1]

    ours, config = policy(updates={"minibatches": 2, "epochs": 2})
    work, seen = plan(ours, count=2), []
    inner = ours.scorer.pieces
    ours.scorer.pieces = lambda rows, **kw: seen.append([list(r) for r in rows.token_ids]) or inner(rows, **kw)
    updater = Updater(ours, config, Loss())
    done = updater.update(work, step=0)
    assert done.updates == updater.count == 4
    assert seen[0] == seen[2] != seen[1] == seen[3]
    assert [len(rows) for rows in seen] == [12, 8, 12, 8]
    assert np.abs(done.ratio[np.isfinite(done.ratio)] - 1).max() > 1e-3, "later passes see a policy that has moved"


def test_an_empty_minibatch_is_skipped_and_an_empty_step_changes_nothing():
    ours, config = policy(updates={"minibatches": 2})
    updater = Updater(ours, config, Loss())
    work = plan(ours, count=2)
    half = dataclasses.replace(work, weight=np.where(work.minibatch[:, None] == 0, 0, work.weight))
    done = updater.update(half, step=0)
    assert (done.updates, done.skipped, updater.count) == (1, 1, 1)
    before = ours.flat()
    done = updater.update(dataclasses.replace(work, weight=np.zeros_like(work.weight)), step=1)
    assert (done.updates, done.skipped, done.loss, done.update_norm) == (0, 2, None, 0)
    assert torch.equal(before, ours.flat())


def test_warm_up_rises_linearly_and_gradients_are_cut_to_the_norm():
    ours, config = policy(optimizer={"name": "sgd", "lr": 0.1, "warmup_steps": 4, "max_grad_norm": 0.01})
    updater = Updater(ours, config, Loss())
    rates, sizes = [], []
    for step in range(5):
        done = updater.update(plan(ours, seed=step), step)
        assert done.grad_norm > 0.01
        rates.append(done.lr)
        sizes.append(done.update_norm)
    assert rates == pytest.approx([0.025, 0.05, 0.075, 0.1, 0.1])
    assert sizes == pytest.approx([0.01 * rate for rate in rates], rel=1e-3)


def test_the_kl_pulls_towards_the_reference():
    ours, config = policy(optimizer={"name": "sgd", "lr": 0.01})
    work = plan(ours)
    reference = work.old - 0.3
    work = dataclasses.replace(work, advantage=np.zeros_like(work.advantage), reference=reference)
    done = Updater(ours, config, Loss(kl=2.0)).update(work, step=0)
    assert done.policy_loss == 0
    assert done.loss == pytest.approx(2 * (np.exp(-0.3) + 0.3 - 1), rel=1e-4)
    after, _ = ours.scorer.score(work.sequences)
    kept = work.weight > 0
    assert after[kept].mean() < work.old[kept].mean()


def test_the_correction_weighs_the_policy_term_and_not_the_kl():
    """With a weight w on every token the update is w x the policy's plus the KL's own."""
    moved = {}
    for name, changes in {
        "both": {}, "policy": {"reference": None}, "kl": {"advantage": 0.0}, "corrected": {"tis": 0.25},
    }.items():  # fmt: skip
        ours, config = policy(optimizer={"name": "sgd", "lr": 0.01, "max_grad_norm": None})
        work = plan(ours)
        work = dataclasses.replace(work, reference=work.old - 0.3)
        changes = {key: None if value is None else np.full_like(work.old, value) for key, value in changes.items()}
        before = ours.flat()
        loss = Loss() if name == "policy" else Loss(kl=2.0)
        done = Updater(ours, config, loss).update(dataclasses.replace(work, **changes), step=0)
        moved[name] = ours.flat() - before
        if name == "corrected":
            assert done.policy_loss == pytest.approx(-0.25 * (work.weight * work.advantage).sum(), abs=1e-5)
            assert np.array_equal(np.isfinite(done.ratio), work.weight > 0)
    torch.testing.assert_close(moved["both"], moved["policy"] + moved["kl"], rtol=1e-3, atol=1e-6)
    torch.testing.assert_close(moved["corrected"], 0.25 * moved["policy"] + moved["kl"], rtol=1e-3, atol=1e-6)
    assert moved["kl"].norm() > 1e-4 and moved["policy"].norm() > 1e-4


def test_each_token_has_its_own_correction():
    work, done = None, {}
    for name in ("tis", "weight"):
        ours, config = policy(optimizer={"name": "sgd", "lr": 0.01, "max_grad_norm": None})
        work = plan(ours)
        tis = np.random.default_rng(2).uniform(0, 2, work.old.shape).astype(np.float32)
        changed = {"tis": tis} if name == "tis" else {"weight": work.weight * tis}
        Updater(ours, config, Loss()).update(dataclasses.replace(work, **changed), step=0)
        done[name] = ours.flat()
    torch.testing.assert_close(done["tis"], done["weight"], rtol=1e-5, atol=1e-7)


def test_clipping_is_told_by_side():
    ours, config = policy()
    work = plan(ours)
    kept = work.weight > 0
    up = dataclasses.replace(work, advantage=1.0 * kept, old=work.old - 1)
    done = Updater(ours, config, Loss()).update(up, step=0)
    assert np.array_equal(done.clipped_high, kept)
    assert not done.clipped_low.any()
    assert done.grad_norm == 0


@pytest.mark.parametrize(("broken", "said"), [("old", "the loss"), ("advantage", "the loss")])
def test_a_loss_that_is_no_number_stops_before_the_optimizer(broken, said):
    ours, config = policy()
    updater, before = Updater(ours, config, Loss()), ours.flat()
    work = plan(ours)
    getattr(work, broken)[0, 0] = np.nan
    with pytest.raises(NotFiniteError, match=said):
        updater.update(work, step=0)
    assert torch.equal(before, ours.flat())


def test_a_gradient_that_is_no_number_stops_before_the_optimizer():
    ours, config = policy()
    updater, before = Updater(ours, config, Loss()), ours.flat()
    first = next(iter(ours.parameters.values()))
    first.register_hook(lambda gradient: gradient * float("nan"))
    with pytest.raises(NotFiniteError, match="the gradient"):
        updater.update(plan(ours), step=0)
    assert torch.equal(before, ours.flat())


def test_adapter_dropout_is_on_in_training_only_and_repeats_by_step():
    ours, _ = policy(lora={"r": 4, "dropout": 0.5})
    with torch.no_grad():
        for name, parameter in ours.parameters.items():
            if "lora_B" in name:
                parameter.normal_(std=0.5)
    rows = sequences()
    plain, _ = ours.scorer.score(rows)

    def dropped(step):
        with ours.training(0, step):
            return ours.scorer.score(rows)[0]

    assert not np.allclose(dropped(1), plain)
    assert np.array_equal(dropped(1), dropped(1))
    assert not np.array_equal(dropped(1), dropped(2))
    assert np.array_equal(ours.scorer.score(rows)[0], plain)


@pytest.mark.parametrize("kl", [0.0, 0.1])
def test_a_rollout_without_advantage_costs_no_pass_and_changes_nothing(kl):
    """With AdamW, whose step goes on by its momentum where the gradient is 0; a KL term needs every pass."""
    adapters, passes, norms = [], [], []
    for skipping in (True, False):
        ours, config = policy(optimizer={"lr": 0.01})
        work = plan(ours)
        silent = GROUP % 2 == 1
        advantage = np.where(silent[:, None], 0 if skipping else 1e-30, work.advantage)
        work = dataclasses.replace(work, advantage=advantage, reference=work.old)
        inner, seen = ours.scorer.pieces, []
        ours.scorer.pieces = lambda rows, seen=seen, inner=inner: seen.append(len(rows.length)) or inner(rows)
        updater = Updater(ours, config, Loss(kl=kl))
        done = updater.update(work, step=0)
        nothing = dataclasses.replace(work, advantage=0 * advantage)
        updater.update(nothing, step=1)
        assert updater.count == 2
        adapters.append(ours.flat())
        passes.append(seen)
        norms.append(done.grad_norm)
        kept = work.weight > 0
        assert np.isnan(done.ratio[kept & silent[:, None]]).all() == (skipping and not kl)
        np.testing.assert_allclose(done.ratio[kept & ~silent[:, None]], 1, atol=1e-5)
    assert passes == ([[20, 20]] * 2 if kl else [[12, 0], [20, 0]])
    assert norms[0] == pytest.approx(norms[1], rel=1e-5)
    torch.testing.assert_close(*adapters, rtol=0, atol=1e-6)


def penalty_of(work, form, share=0.3, coefficient=0.5):
    chosen = (np.random.default_rng(3).random(work.old.shape) < share) & (work.weight > 0)
    return Penalty("rule", form, np.where(chosen, coefficient, 0.0), "", lambda i, t: "")


@pytest.mark.parametrize("form", ["absolute", "proxy"])
def test_a_penalty_is_weighed_like_the_policy_term_and_left_out_of_the_correction(form):
    """One SGD step from a policy that has moved, against the same loss written out."""
    ours, config = policy(optimizer={"name": "sgd", "lr": 0.1, "max_grad_norm": None})
    work = plan(ours)
    random = np.random.default_rng(4)
    old = (work.old - random.normal(0, 0.3, work.old.shape)).astype(np.float32)
    proxy = (work.old + random.normal(0, 0.5, work.old.shape)).astype(np.float32)
    tis = random.uniform(0.5, 2, work.old.shape).astype(np.float32)
    work = dataclasses.replace(work, old=old, proxy=proxy, tis=tis, penalty=penalty_of(work, form))
    coefficient, weight = (torch.from_numpy(array) for array in (work.penalty.coefficient, work.weight))
    policy_loss = penalty_loss = 0
    applied = np.zeros(work.old.shape, dtype=bool)
    for row, count in enumerate(work.sequences.length):
        ids = torch.tensor([work.sequences.prompt_ids[row] + work.sequences.token_ids[row, :count].tolist()])
        logp = ours.model(input_ids=ids).logits[0].log_softmax(-1)[-count - 1 : -1]
        new = logp.gather(-1, ids[0, -count:, None])[:, 0].double()
        ratio = (new - torch.from_numpy(old[row, :count])).exp()
        advantage = torch.from_numpy(work.advantage[row, :count])
        clipped = torch.maximum(-advantage * ratio, -advantage * ratio.clamp(0.8, 1.2))
        reference = torch.from_numpy(proxy[row, :count])
        on = coefficient[row, :count] > 0
        if form == "proxy":
            on &= new < reference
            distance = (reference - new).exp() - (reference - new) - 1
        else:
            distance = (new - torch.from_numpy(old[row, :count])).abs()
        term = torch.where(on, -advantage * ratio, clipped)
        policy_loss = policy_loss + (weight[row, :count] * torch.from_numpy(tis[row, :count]) * term).sum()
        penalty_loss = penalty_loss + (weight[row, :count] * coefficient[row, :count] * distance)[on].sum()
        applied[row, :count] = on.numpy()
    (policy_loss + penalty_loss).backward()
    expected = torch.cat([(p - 0.1 * p.grad).detach().flatten() for p in ours.parameters.values()])
    done = Updater(ours, config, Loss()).update(work, step=0)
    assert 5 < applied.sum() < 100
    assert np.array_equal(done.penalised, applied)
    assert not (done.clipped & applied).any() and done.clipped.any()
    assert done.policy_loss == pytest.approx(policy_loss.item(), rel=1e-4)
    assert done.penalty == pytest.approx(penalty_loss.item(), rel=1e-4)
    assert done.loss == pytest.approx(done.policy_loss + done.penalty, rel=1e-6)
    torch.testing.assert_close(ours.flat(), expected, rtol=1e-4, atol=1e-6)


def test_a_rollout_with_a_penalty_alone_gets_its_pass():
    ours, config = policy(optimizer={"name": "sgd", "lr": 0.1})
    work = plan(ours)
    coefficient = np.zeros(work.old.shape)
    coefficient[7, 0] = 1.0
    penalty = Penalty("rule", "proxy", coefficient, "", lambda i, t: "")
    work = dataclasses.replace(work, advantage=0 * work.advantage, penalty=penalty, proxy=work.old + 1)
    done = Updater(ours, config, Loss()).update(work, step=0)
    passed = np.isfinite(done.ratio).any(axis=1)
    assert passed.tolist() == [row == 7 for row in range(20)]
    assert done.penalised.sum() == 1 and done.penalised[7, 0]
    assert (done.policy_loss, done.loss) == (0, done.penalty)
    assert done.penalty == pytest.approx(work.weight[7, 0] * (np.e - 2), rel=1e-4)
    after, _ = ours.scorer.score(work.sequences)
    assert after[7, 0] > work.old[7, 0]


def test_a_distance_that_is_rounding_pulls_nowhere():
    """With one update a step KL-Cov's policy is still the old one, but for the last digits of its log-probs."""
    moved = []
    for penalised in (True, False):
        ours, config = policy(optimizer={"name": "sgd", "lr": 0.1})
        work = plan(ours)
        random = np.random.default_rng(5)
        rounded = (work.old * (1 + random.normal(0, 1e-6, work.old.shape))).astype(np.float32)
        work = dataclasses.replace(work, old=rounded)
        if penalised:
            work = dataclasses.replace(work, penalty=penalty_of(work, "absolute"))
        done = Updater(ours, config, Loss()).update(work, step=0)
        assert (done.penalty is None) == (done.penalised is None) == (not penalised)
        if penalised:
            assert done.penalty == 0
            assert np.array_equal(done.penalised, work.penalty.coefficient > 0)
        moved.append(ours.flat())
    torch.testing.assert_close(*moved, rtol=0, atol=1e-6)
