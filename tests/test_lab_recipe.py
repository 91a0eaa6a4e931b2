"""`--loss auto`: what it comes to, that it gives cross-entropy's own network when it keeps it, that
it takes what is better by more than noise, and its guards on planted cases.
"""

import json
import os
import re
import signal
import subprocess
import sys
import time
from dataclasses import replace
from functools import partial
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from recipe_data import options, same, weights, write_items
from test_lab_train import SLOW_NET
from training_data import write_segmentation

from evalgrad_lab import (
    branches,
    decisions,
    recipe,
    train,
    training,
    trials,
)
from evalgrad_lab import ready as ready_module
from evalgrad_lab.comparison import own, own_trials
from evalgrad_lab.data.batches import Batch
from evalgrad_lab.errors import UserError
from evalgrad_lab.performance import Performance
from evalgrad_lab.ready import prepare


@pytest.mark.parametrize(
    ("planted", "take"), [((0.02, 0.01), True), ((0.02, 0.03), False), ((0.0, 0.0), False)]
)
def test_it_returns_the_branch_that_validation_finds_better(tmp_path, monkeypatch, planted, take):
    """With the difference planted: below the standard error the result is cross-entropy's."""
    monkeypatch.setattr(branches, "better_by", lambda *_: planted)
    auto = train(options(tmp_path))
    assert ("took the branch" in auto.recipe["why"]) == take
    assert (auto.recipe["difference"], auto.recipe["standard_error"]) == planted
    plain = train(options(tmp_path, loss="bce", out=tmp_path / "bce"))
    assert same(weights(tmp_path / "run"), weights(tmp_path / "bce")) != take
    assert (auto.test == plain.test) != take


def test_the_second_branch_costs_less_than_a_third_of_the_steps(tmp_path):
    ready = prepare(options(tmp_path, iterations=100))
    assert sum(phase.steps for phase in ready.phases()) == 100
    assert sum(phase.steps for phase in ready.branch(0, 30).phases()) == 30
    assert ready.forked == pytest.approx(0.3)
    assert prepare(options(tmp_path, loss="bce")).forked == 0
    assert prepare(options(tmp_path, iterations=1)).forked == 0  # it has no room


def test_what_the_second_branch_cost_is_told(tmp_path, capsys, monkeypatch):
    result = train(options(tmp_path, iterations=20))
    assert "The second branch took 6 more steps (30 %)." in result.recipe["why"]
    assert (result.steps, result.recipe["more_steps"]) == (20, pytest.approx(0.3))
    told = capsys.readouterr().err
    assert re.search(r"first branch: 20 steps in \S+ s; second branch: 6 steps in \S+ s$", told)
    trained = SimpleNamespace(seconds=2.6, step=20)
    monkeypatch.setattr(trials, "_loss_seconds", lambda _: 0.0)
    nothing = SimpleNamespace(curve=[], megabytes=0.0)
    found = trials.costs(trained, nothing, nothing, result.recipe["more_steps"])
    assert found["milliseconds_per_step"] == pytest.approx(100)
    logs = [[{"step": steps, "seconds": float(steps)}] for steps in (20, 6, 5)]
    training._say_cost(logs)
    two = "first branch: 20 steps in 20.0 s; second branch: 6 steps in 6.0 s"
    assert capsys.readouterr().err == f"{two}; its repeat: 5 steps in 5.0 s\n"


def test_a_fork_is_made_anew_in_a_longer_run_and_knows_its_step():
    def at(fork, step, value):
        network = torch.nn.Linear(1, 1, bias=False)
        torch.nn.init.constant_(network.weight, value)
        fork.after_step(SimpleNamespace(step=step, network=network))

    fork = recipe.Fork(7)
    for step in (6, 7, 8):
        at(fork, step, step)
    assert (float(fork.weights["weight"]), fork.taken_at) == (7, 7)
    again, longer = recipe.Fork(7), recipe.Fork(9)
    for other in (again, longer):
        other.load_state_dict(fork.state_dict())
    assert (float(again.weights["weight"]), again.taken_at) == (7, 7)
    assert not longer.weights
    at(longer, 11, 11)  # of a run that was continued from its tenth step
    assert (float(longer.weights["weight"]), longer.taken_at) == (11, 11)


def test_equal_time_counts_the_steps_of_the_second_branch_by_its_own_time(tmp_path, monkeypatch):
    """Steps of 1, 2 and 3 seconds, and of the branch of the second loss 10: 2 + 0.3 * 10."""
    monkeypatch.setattr(own_trials, "interleaved", lambda *_: [[1.0], [2.0], [3.0], [10.0]])
    methods = [{"loss": loss, "hyper": {}} for loss in ("bce", "auto", "hinge")]
    asked = own.plain(options(tmp_path, iterations=100))
    found = own_trials.step_seconds(options=asked, data="", methods=methods)
    assert found["steps"] == pytest.approx([1.0, 5.0, 3.0])


def test_the_share_of_the_metrics_loss_can_be_given(tmp_path):
    def branch(attempt, **own):
        return prepare(options(tmp_path, loss_options=own)).recipe.branch(attempt)

    assert [branch(i, share=0.2)[1]["share"] for i in (0, 1)] == pytest.approx([0.2, 0.04])
    loss, own = branch(0, share=0.2, epsilon=3.0)
    assert loss == "bce+direct_average_precision"
    assert own["direct_average_precision"]["epsilon"] == 3.0
    assert branch(0, share=0.0) == ("bce", {})  # the schedule that begins again, alone
    for wrong in (1.0, -0.1, "half", False):
        with pytest.raises(UserError, match="share of --loss auto must be at least 0 and below 1"):
            branch(0, share=wrong)


def test_class_weights_of_the_start_can_be_given(tmp_path):
    def recipe_of(**given):
        return prepare(options(tmp_path, **given)).recipe

    found = recipe_of(loss_options={"positive_weight": 3.0, "epsilon": 2.0})
    assert (found.first, found.first_options) == ("bce", {"positive_weight": 3.0})
    assert found.second_options["epsilon"] == 2.0
    assert recipe_of(loss_options={"positive_weight": 1.0}).first_options == {}
    classes = {"task": "classification", "metric": "f1"}
    found = recipe_of(loss_options={"weight_power": 1.0}, **classes)
    assert (found.first, found.first_options) == ("weighted_cross_entropy", {"weight_power": 1.0})
    assert recipe_of(loss_options={"weight_power": 0.0}, **classes).first == "cross_entropy"


def test_one_positive_is_told_as_one():
    """And one step."""
    labels = torch.tensor([1, *[0] * 30])
    said = "validation has 1 positive, too few to choose a branch (at least 20)"
    assert recipe._too_few_labels(labels) == said
    assert recipe._too_few_labels(1 - labels).startswith("validation has 1 negative, ")
    assert branches._cost([1], 2) == " The second branch took 1 more step (50 %)."


def test_two_positives_in_validation_are_too_few_to_choose_by(tmp_path, capsys):
    data = write_items(tmp_path / "items.npz", 400, positives=0.03)
    asked = options(tmp_path, data=data, metric="f1")
    count = int(prepare(asked).data.validation.labels().sum())
    result = train(asked)
    assert result.recipe["chosen"] == "bce"
    assert f"validation has {count} positives, too few to choose a branch" in result.recipe["why"]
    assert f"threshold chosen on {count} positives" in capsys.readouterr().err
    training._say_few(prepare(asked), decisions.plain(True))
    assert not capsys.readouterr().err  # 0 was not chosen


@pytest.mark.parametrize(("count", "enough"), [(90, False), (110, True)])
def test_few_examples_of_one_of_two_classes_are_too_few_to_choose_by(tmp_path, count, enough):
    """A fifth of the items is held out, and of its classes the first is the rarer."""
    x, target = np.random.rand(600, 3).astype(np.float32), (np.arange(600) >= count).astype(int)
    np.savez(tmp_path / "classes.npz", inputs=x, target=target)
    asked = {"data": tmp_path / "classes.npz", "task": "classification", "metric": "f1", "test": 0}
    found = prepare(options(tmp_path, **asked)).recipe
    assert (found.second is not None) == enough
    assert enough or "examples of class 0, too few to choose a branch" in found.why


@pytest.mark.parametrize("metric", ["image-iou", "image-dice", "miou"])
@pytest.mark.parametrize(("count", "enough"), [(19, False), (20, True)])
def test_few_images_with_foreground_are_too_few_to_choose_by(tmp_path, metric, count, enough):
    """60 images to validate on, of which so many hold foreground."""
    masks = np.zeros((60, 8, 8), int)
    masks[:count, :2] = 1
    images = np.random.rand(60, 8, 8).astype(np.float32)
    train = np.tile(np.arange(8) % 2, (60, 8, 1))
    arrays = {"inputs": images, "target": train, "val_inputs": images, "val_target": masks}
    np.savez(tmp_path / "masks.npz", **arrays)
    asked = {"data": tmp_path / "masks.npz", "task": "segmentation", "metric": metric, "test": 0}
    found = prepare(options(tmp_path, **asked)).recipe
    assert (found.second is not None) == enough
    few = "validation has 19 images with pixels of class 1, too few to choose a branch (at least"
    assert enough or few in found.why


@pytest.mark.parametrize("metric", ["accuracy", "auc"])
def test_a_metric_that_no_loss_follows_more_closely_has_no_second_branch(tmp_path, metric):
    """Cross-entropy does not optimise the area under the curve, and is not said to."""
    result = train(options(tmp_path, task="classification", metric=metric))
    assert result.recipe["chosen"] == "cross_entropy"
    said = f"trained on cross_entropy alone: no loss here follows {metric} more closely."
    assert said in result.recipe["why"]


@pytest.mark.parametrize("length", [{"iterations": 1}, {"epochs": 1, "batch_size": 512}])
def test_one_step_has_no_second_branch(tmp_path, length):
    result = train(options(tmp_path, **length))
    assert "one step leaves no room" in result.recipe["why"]


def test_few_lists_are_too_few_to_choose_by(tmp_path):
    x, target, group = np.random.rand(600, 3), np.arange(600) % 3 == 0, np.arange(600) // 20
    np.savez(tmp_path / "lists.npz", inputs=x, target=target.astype(int), group=group)
    found = prepare(options(tmp_path, data=tmp_path / "lists.npz")).recipe
    assert found.second is None
    assert "lists, too few to choose a branch" in found.why


def test_a_run_begun_again_has_nothing_of_the_old_one(tmp_path):
    train(options(tmp_path, loss="bce"))
    again = options(tmp_path, loss="bce", resume="never", learning_rate=1e30)
    with pytest.raises(UserError, match="not finite"):
        train(again)
    with pytest.raises(UserError, match="not finite"):
        train(replace(again, resume="auto"))


def test_patience_is_remembered_by_a_resume(tmp_path, monkeypatch):
    asked = {"patience": 2, "epochs": 40, "learning_rate": 0.05}
    whole = train(options(tmp_path, **asked, out=tmp_path / "whole"))
    assert whole.epochs < 40
    with monkeypatch.context() as patch:
        patch.setattr(branches, "better_by", lambda *_: 1 / 0)  # dies after the second branch
        with pytest.raises(ZeroDivisionError):
            train(options(tmp_path, **asked))
    assert train(options(tmp_path, **asked)).plain() == whole.plain()
    assert whole.recipe["more_steps"] < 0.5
    assert whole.recipe["fork_epoch"] == whole.epochs  # it stopped before the fork


def test_a_run_continued_from_another_folder_has_its_own_second_branch(tmp_path):
    """The folder has a finished branch of a run that was there before."""
    train(options(tmp_path))
    asked = {"seed": 1, "out": tmp_path / "other"}
    other = train(options(tmp_path, **asked))
    last = str(tmp_path / "other" / "last.ckpt")
    found = train(options(tmp_path, **{**asked, "out": tmp_path / "run"}, resume=last))
    assert found.plain() == other.plain()


def test_a_longer_run_does_not_go_on_with_the_branch_of_the_shorter_one(tmp_path):
    train(options(tmp_path))
    (tmp_path / "run" / "branch0.ckpt").write_bytes(b"")
    (tmp_path / "run" / "branches").mkdir()  # of the user
    assert train(options(tmp_path, epochs=6)).epochs == 6
    assert (tmp_path / "run" / "branches").exists()


def test_the_second_branch_starts_from_the_fork(tmp_path, monkeypatch):
    """Not from the end of the first, nor from its best look."""
    seen, trained = {}, branches._trained

    def kept(branch, start, *rest):
        seen.update(start)
        return trained(branch, start, *rest)

    monkeypatch.setattr(branches, "_trained", kept)
    train(options(tmp_path, iterations=20))
    state = torch.load(tmp_path / "run" / "last.ckpt", weights_only=True)
    (fork,) = (hook for hook in state["hooks"] if "taken_at" in hook)
    assert (fork["taken_at"], state["step"]) == (14, 20)
    assert same(seen, fork["weights"])
    assert not same(seen, state["network"])


def untrained(monkeypatch):
    """Second branches that take no step, and are taken; the hooks that each would have."""
    seen = []
    monkeypatch.setattr(branches, "fit", lambda training, batches, hooks, _: seen.append(hooks))
    monkeypatch.setattr(branches, "better_by", lambda *_: (0.02, 0.01))
    return seen


def test_a_second_branch_that_takes_no_step_is_the_fork(tmp_path, monkeypatch):
    untrained(monkeypatch)
    assert train(options(tmp_path, iterations=20)).recipe["taken"]
    state = torch.load(tmp_path / "run" / "last.ckpt", weights_only=True)
    (fork,) = (hook for hook in state["hooks"] if "taken_at" in hook)
    assert same(weights(tmp_path / "run"), fork["weights"])


def test_the_sampler_follows_the_second_branch_too(tmp_path, monkeypatch):
    seen = untrained(monkeypatch)
    write_segmentation(tmp_path / "data", count=120)
    asked = {"task": "segmentation", "metric": "miou", "data": tmp_path / "data"}
    train(options(tmp_path, **asked, iterations=2, batch_size=8, sampler="performance"))
    assert Performance in [type(hook) for hook in seen[0]]


def test_the_second_branch_is_returned_as_it_was_at_its_best_look(tmp_path, monkeypatch):
    """With looks planted, of which that after the first of its epochs is the best."""
    monkeypatch.setattr(ready_module, "SMOOTH", 1)
    monkeypatch.setattr(branches, "better_by", lambda *_: (0.02, 0.01))
    kept = {}

    def fit(training, batches, hooks, checkpoint):
        looked = hooks[0]
        for value in (0.6, 0.9, 0.7):
            with torch.no_grad():
                [*training.network.parameters()][-1].fill_(value)
            looked.measure = lambda value=value: value
            training.loss = torch.tensor(0.0)
            looked.after_epoch(training)
        kept.update(looked.weights)

    monkeypatch.setattr(branches, "fit", fit)
    train(options(tmp_path, iterations=20))
    last = [*kept.values()][-1]
    assert torch.equal(last, torch.full_like(last, 0.9))
    assert same(weights(tmp_path / "run"), kept)


def test_the_seconds_of_the_second_branch_count(tmp_path, monkeypatch):
    ready = prepare(options(tmp_path, iterations=20))
    first, other = ready.training(), SimpleNamespace(step=6, seconds=2.0)
    first.step, first.seconds = 20, 5.0
    monkeypatch.setattr(branches, "_trained", lambda *_: (other, SimpleNamespace(why="planted")))
    branches.take_better(ready, first, recipe.Fork(14), None, lambda _: [])
    assert first.seconds == 5 + 2 + 2  # it was repeated


def test_the_choice_leaves_out_whole_lists(tmp_path, monkeypatch):
    x, target, group = np.random.rand(600, 3), np.arange(600) % 3 == 0, np.arange(600) // 6
    np.savez(tmp_path / "lists.npz", inputs=x, target=target.astype(int), group=group)
    seen = []
    monkeypatch.setattr(branches, "better_by", lambda *given: seen.append(given[3]) or (0.0, 1.0))
    ready = prepare(options(tmp_path, data=tmp_path / "lists.npz"))
    branches._chosen(ready, ready.training(), ready.training(), "", "")
    assert ready.recipe.second is not None
    assert torch.equal(seen[0], torch.arange(20).repeat_interleave(6))


def test_the_second_branch_keeps_the_class_weights_of_the_start(tmp_path):
    ready = prepare(options(tmp_path, iterations=20, loss_options={"positive_weight": 3.0}))
    (phase,) = ready.branch(0, 6).phases()
    scores, target = torch.randn(8), torch.arange(8) % 2
    batch = Batch(torch.zeros(8, 3), target, torch.arange(8))
    baseline, own = (one(scores, target) for one in phase.loss.loss.losses)
    weighted = torch.nn.functional.binary_cross_entropy_with_logits(
        scores, target.float(), pos_weight=torch.tensor(3.0)
    )
    torch.testing.assert_close(baseline, weighted)
    torch.testing.assert_close(phase.loss(scores, batch), (weighted + own) / 2)


def test_each_branch_is_judged_by_its_own_best_decision(tmp_path, monkeypatch):
    """Scores that are shifted far from 0 are as good, with a threshold that follows them."""
    seen = []
    monkeypatch.setattr(branches, "better_by", lambda value, *rows: seen.append(rows) or (0.0, 1.0))
    ready = prepare(options(tmp_path, metric="f1"))
    plain, shifted = ready.training(), ready.training()
    with torch.no_grad():
        [*shifted.network.parameters()][-1].add_(50.0)
    branches._chosen(ready, plain, shifted, "", "")
    ((first, second, _),) = seen
    assert torch.equal(first, second)
    assert 0 < float(first[:, 0].mean()) < 1


def test_a_branch_is_judged_by_all_rules_and_looks_are_smoothed(tmp_path, monkeypatch):
    """During the training thresholds alone are tried, which are quick."""
    ready, seen, decision = prepare(options(tmp_path)), [], ready_module.Ready.decision
    training = ready.training()
    assert ready.validation(training).smooth == 3
    last = replace(ready, options=replace(ready.options, choose="last"))
    assert last.validation(training).smooth == 1

    def kept(self, training, last=False):
        seen.append(last)
        return decision(self, training, last)

    monkeypatch.setattr(ready_module.Ready, "decision", kept)
    ready.rows(training)
    ready.validation(training).measure()
    assert seen == [True, False]


def mean(rows):
    return float(rows.double().mean())


def test_the_jackknife_has_the_standard_error_of_a_mean():
    generator = torch.Generator().manual_seed(0)
    first, second = torch.randn(2, 60, generator=generator).double()
    by, error = recipe.better_by(mean, first, second, torch.arange(60))
    difference = second - first
    assert by == pytest.approx(float(difference.mean()))
    assert error == pytest.approx(float(difference.std()) / 60**0.5)


@pytest.mark.parametrize(("effect", "least", "most"), [(0.0, 0.05, 0.3), (1.0, 0.98, 1.0)])
def test_noise_is_seldom_taken_and_an_effect_nearly_always(effect, least, most):
    """Above its standard error noise comes in 16 of 100 cases."""
    generator, taken = torch.Generator().manual_seed(0), 0
    for _ in range(200):
        first, second = torch.randn(2, 100, generator=generator).double()
        by, error = recipe.better_by(mean, first, second + effect, recipe.groups_of(first, None))
        taken += by > error
    assert least <= taken / 200 <= most


def test_the_items_of_a_list_are_in_one_group():
    lists = torch.tensor([3, 3, 8, 3, 8, 1])
    groups = recipe.groups_of(lists, lists)
    assert groups.tolist() == [1, 1, 2, 1, 2, 0]


def test_rare_classes_weigh_more_from_the_start(tmp_path):
    write_segmentation(tmp_path / "data", count=120)
    asked = partial(options, tmp_path, data=tmp_path / "data", task="segmentation")
    assert prepare(asked(metric="miou")).recipe.first == "weighted_cross_entropy"
    assert prepare(asked(metric="auc")).recipe.first == "cross_entropy"
    said = "Class weights (frequency to the power -0.5): some classes are rare, and miou is a mean"
    quick = {"metric": "miou", "iterations": 1, "limit": 4}
    assert said in train(asked(**quick)).recipe["why"]
    own = train(asked(**quick, loss_options={"weight_power": 0.5}, out=tmp_path / "own"))
    assert "rare" not in own.recipe["why"]


def test_the_masks_are_read_once_to_count_the_classes(tmp_path, monkeypatch):
    """Not by every loss that has weights, in every check and in every branch."""
    write_segmentation(tmp_path / "data", count=120)
    ready = prepare(options(tmp_path, data=tmp_path / "data", task="segmentation", metric="miou"))
    assert ready.recipe.first == "weighted_cross_entropy"
    monkeypatch.setattr(torch, "bincount", lambda *_, **__: 1 / 0)
    ready.phases()
    ready.branch(1, 3).phases()


def test_of_more_than_255_classes_none_is_void(tmp_path):
    """255 is void in masks alone."""
    target = np.arange(900) % 300
    x = np.random.rand(900, 2).astype(np.float32)
    named = {
        f"{part}{name}": a
        for part in ("", "val_")
        for name, a in (("inputs", x), ("target", target))
    }
    np.savez(tmp_path / "classes.npz", **named)
    asked = {"data": tmp_path / "classes.npz", "task": "classification", "test": 0}
    ready = prepare(options(tmp_path, **asked, metric="f1"))
    assert ready.given.class_counts.tolist() == [3] * 300
    result = train(options(tmp_path, **asked, metric="accuracy", iterations=1))
    assert [sum(row) for row in result.confusion] == [3] * 300


def test_a_run_killed_in_the_second_branch_ends_as_an_uninterrupted_one(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "slow_net.py").write_text(SLOW_NET)
    write_segmentation(tmp_path / "data", count=120)
    asked = {"task": "segmentation", "metric": "miou", "data": tmp_path / "data", "epochs": 7}
    asked |= {"model": "slow_net:Net", "learning_rate": None, "batch_size": 24}
    whole = train(options(tmp_path, **asked, out=tmp_path / "whole"))
    run = options(tmp_path, **asked, out=tmp_path / "parts")
    code = "import sys; from evalgrad_lab.cli import main; sys.exit(main())"
    command = [sys.executable, "-c", code, "train", *run.arguments()]
    environment = {**os.environ, "SLOW": "0.1", "OMP_NUM_THREADS": str(torch.get_num_threads())}
    process = subprocess.Popen(command, env=environment)
    while not (tmp_path / "parts" / "branch0.ckpt").exists():
        assert process.poll() is None
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL
    assert not (tmp_path / "parts" / "result.json").exists()
    parts = train(run)
    assert json.dumps(whole.plain()) == json.dumps(parts.plain())
    assert same(weights(tmp_path / "whole"), weights(tmp_path / "parts"))
