"""Trainings that collapse, and second branches of `--loss auto` that do: what is noticed, told and
repaired.
"""

import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from recipe_data import options

from evalgrad_lab import (
    branches,
    collapse,
    loss_factories,
    losses,
    recipe,
    train,
)
from evalgrad_lab.progress import Progress


def plant(monkeypatch, loss, name="direct_average_precision"):
    """Train on this function instead of the loss `name`."""
    monkeypatch.setitem(losses.LOSSES, name, replace(losses.LOSSES[name], factory=""))
    monkeypatch.setattr(loss_factories, name, lambda **_: loss, raising=False)
    monkeypatch.setattr(recipe, "OPTIONS", {})


@pytest.fixture
def planted_collapse(monkeypatch):
    """A loss for AP whose minimum is a constant score, far stronger than any cross-entropy."""
    plant(monkeypatch, lambda scores, target: 1e4 * (scores - scores.mean()).abs().mean())


def test_a_branch_that_collapses_is_tried_with_less_and_then_left(
    tmp_path, planted_collapse, monkeypatch, capsys
):
    monkeypatch.setattr(Progress, "EVERY", 0.0)
    result = train(options(tmp_path, learning_rate=0.3, epochs=20))
    lines = capsys.readouterr().err.splitlines()
    ends = [i for i, line in enumerate(lines) if line.endswith(". This branch ends.")]
    assert [lines[i + 1].partition(", epoch")[0] for i in ends] == ["second branch", "its repeat"]
    why = result.recipe["why"]
    assert result.recipe["chosen"] == "bce"
    assert "With 0.5 of direct_average_precision a branch collapsed" in why
    assert "With 0.1 of direct_average_precision a branch collapsed" in why
    logs = [tmp_path / "run" / name for name in ("branch.csv", "branch1.csv")]
    steps = [int(log.read_text().split()[-1].split(",")[1]) for log in logs]
    assert f"The second branch and its repeat took {sum(steps)} more steps" in why
    assert result.recipe["more_steps"] == sum(steps) / result.steps


def test_a_branch_repeated_with_less_may_be_taken(tmp_path, monkeypatch):
    """Half of the loss collapses, a tenth does not."""
    reason = collapse.Collapse._reason

    def planted(hook, training):
        share = collapse._sums(training)[0].shares[1] if collapse._sums(training) else 0
        return "it was planted" if share == 0.5 else reason(hook, training)

    monkeypatch.setattr(collapse.Collapse, "_reason", planted)
    monkeypatch.setattr(branches, "better_by", lambda *_: (0.02, 0.01))
    found = train(options(tmp_path)).recipe
    assert (found["chosen"], found["taken"]) == ("0.9 bce + 0.1 direct_average_precision", True)
    assert found["share"] == 0.1
    assert (
        "With 0.5 of direct_average_precision a branch collapsed: it was planted." in found["why"]
    )
    assert "a branch collapsed: it was planted. The second branch and its repeat" in found["why"]


@pytest.mark.parametrize("value", [0.5, 0.0])
def test_a_loss_of_the_metric_without_a_gradient_is_told(tmp_path, monkeypatch, value):
    """The gradient of the sum is that of BCE; a loss that is solved has none either, rightly."""
    plant(monkeypatch, lambda scores, target: 0.0 * scores.sum() + value)
    found = train(options(tmp_path)).recipe
    dead = 'collapsed: direct_average_precision had no gradient in a whole epoch ("direction":'
    assert (dead in found["why"]) == (value > 0)
    assert ("difference" in found) == (value == 0)


def test_a_loss_of_the_metric_that_is_not_finite_is_told(tmp_path, monkeypatch):
    plant(monkeypatch, lambda scores, target: scores.sum() * float("nan"))
    why = train(options(tmp_path)).recipe["why"]
    assert why.count("a branch collapsed: the loss was not finite.") == 2


def test_a_gradient_in_one_batch_of_an_epoch_is_enough():
    loss = loss_factories.WeightedSum("bce", "hinge")
    far, near = (torch.tensor(x, requires_grad=True) for x in ([9.0, 9.0], [0.1, -0.1]))
    target = torch.tensor([1, 1])
    for batches, dead in (([far], False), ([near, far], False), ([far, near], False)):
        loss.look_again()
        for scores in batches:
            loss(scores, target)
        assert loss.is_dead == dead
    dead = loss_factories.WeightedSum("bce", "bce")
    dead.losses[1] = lambda scores, target: 0 * scores.sum() + 1
    dead(near, target)
    assert dead.is_dead
    dead.losses[1] = lambda scores, target: 0 * scores.sum()  # the next batch is solved
    dead(near, target)
    assert dead.is_dead
    near.grad = None
    torch.testing.assert_close(
        torch.autograd.grad(loss(near, target), near),
        torch.autograd.grad(sum(one(near, target) for one in loss.losses) / 2, near),
    )


def test_an_s_measure_that_is_solved_is_not_without_a_gradient():
    target = torch.tensor([1, 0, 0])
    loss = loss_factories.WeightedSum("bce", "f_beta", f_beta={"labels": target})
    scores = torch.tensor([9.0, -9.0, -9.0], requires_grad=True)
    loss(scores, target, index=torch.arange(3))
    second = loss.losses[1](scores, target, index=torch.arange(3))
    assert float(torch.autograd.grad(second, scores)[0].abs().max()) == 0 < float(second.detach())
    assert not loss.is_dead


def watched(metric=0.5, **how):
    """A `Collapse`, a training of a network without layers, and what ends an epoch of it."""
    network = torch.nn.ParameterList([torch.zeros(1)])
    fabric = SimpleNamespace(is_global_zero=True, all_reduce=lambda value, reduce_op: value)
    phase = SimpleNamespace(loss=None, steps=9)
    known = {"network": network, "fabric": fabric, "phases": [phase], "stopped": False, "epoch": 1}
    last = {"step": 1, "loss": torch.tensor(1.0), "output": torch.arange(9.0)}
    look = SimpleNamespace(curve=[{"metric": metric}])
    return collapse.Collapse(look, **how), SimpleNamespace(**known, **last)


def stepped(hook, training, gradients):
    for gradient in gradients:
        training.network[0].grad = torch.tensor([gradient])
        hook.after_step(training)
    hook.after_epoch(training)
    return hook.why


def test_the_gradients_of_one_epoch_are_looked_at_together():
    """One that is not 0 is enough, in any step, but not in an epoch before."""
    hook, training = watched(stops=False)
    assert stepped(hook, training, [1.0, 0.0]) == ""
    assert stepped(hook, training, [0.0, 1.0]) == ""
    assert stepped(hook, training, [0.0, 0.0]) == "all gradients of an epoch were zero"


@pytest.mark.parametrize(
    ("loss", "index", "told"), [(1.0, False, 1), (0.0, False, 0), (1.0, True, 0)]
)
def test_a_training_that_has_learnt_all_has_no_gradient_and_has_not_collapsed(loss, index, told):
    """A hinge loss is 0 then; an S-measure has a value of its own, and no gradient only then."""
    hook, training = watched(stops=False)
    training.phases[0].loss = SimpleNamespace(takes_index=index)
    training.loss = torch.tensor(loss)
    hook.after_step(training)
    training.loss = torch.tensor(0.0)  # of the last batch
    assert stepped(hook, training, [0.0]) == "all gradients of an epoch were zero" * told


def test_the_metrics_loss_is_looked_at_in_every_epoch_anew():
    one, other = (loss_factories.WeightedSum("bce", "hinge") for _ in range(2))
    hook, training = watched(stops=True)
    training.phases[0].loss = torch.nn.ModuleList([one, other])
    one.unsolved = other.unsolved = one.moved = True  # of a multilabel task one has learnt
    assert stepped(hook, training, [1.0]) == ""
    assert not any((one.moved, other.unsolved))
    one.unsolved = other.unsolved = True
    assert stepped(hook, training, [1.0]) == "hinge had no gradient in a whole epoch"
    one.unsolved = other.unsolved = True  # in the last epoch before another phase
    training.phases = [SimpleNamespace(loss=one, steps=1), SimpleNamespace(loss=None, steps=1)]
    assert collapse._sums(training) == [one]


def test_a_collapse_is_told_once_and_may_stop(capsys):
    for stops in (True, False):
        hook, training = watched(stops=stops, repair="Do something.")
        training.output = torch.full((9,), 1e-3) * (1 + 1e-8 * torch.arange(9).double())
        for _ in range(2):
            assert (
                stepped(hook, training, [1.0]) == "the network gives the same output for all items"
            )
        assert training.stopped == stops
        assert capsys.readouterr().err.count("same output for all items. Do something.") == 1
        again = watched(stops=stops)[0]
        again.load_state_dict(hook.state_dict())
        assert again.why == hook.why


@pytest.mark.parametrize("terminal", [True, False])
def test_a_line_takes_the_place_of_unfinished_progress_in_a_terminal(capsys, monkeypatch, terminal):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: terminal, raising=False)
    log = Progress(Path("log.csv"), None, "ap")
    log._say(SimpleNamespace(step=1, steps=9, stopped=False, epoch=1), 1.0, 0.5)
    hook, training = watched(stops=False, repair="Do something.")
    stepped(hook, training, [0.0])
    told = capsys.readouterr().err
    unfinished = "epoch 1, step 1 of 9: loss 1, validation ap 0.5000"
    between = "\r\033[K" if terminal else "\n"
    assert f"{unfinished}{between}epoch 1: all gradients of an epoch were zero." in told
    assert told.endswith("Do something.\n")


def test_a_metric_below_half_of_the_first_branchs_is_a_collapse():
    hook, training = watched(metric=0.1, stops=True, least=0.2)
    why = "the metric fell to 0.100 on validation, below 0.200, half of the first branch's"
    assert stepped(hook, training, [1.0]) == why
    hook, training = watched(metric=0.2, stops=True, least=0.2)
    assert stepped(hook, training, [1.0]) == ""


def test_ranks_stop_together_or_not_at_all():
    """Where one of two has collapsed, neither is stopped; where both have, both are."""
    for other in (0.0, 1.0):
        for metric, least in ((0.1, 0.2), (0.3, 0.2)):
            hook, training = watched(metric, stops=True, least=least)
            training.fabric.all_reduce = lambda own, reduce_op, other=other: (own + other) / 2
            stepped(hook, training, [1.0])
            assert training.stopped == (metric < least and other == 1)


def test_first_k_is_named_where_ndcg_has_no_gradient():
    assert '("first_k", "direction": "negative" or a larger "epsilon" in' in collapse._no_gradient(
        "direct_ndcg"
    )
    assert collapse._no_gradient("smooth_topk") == "smooth_topk had no gradient in a whole epoch"


@pytest.mark.parametrize(
    ("loss", "mix", "repair"),
    [
        ("hinge", "none", "Train with --loss auto, or mix in the baseline: --mix sum:0.5."),
        ("hinge", "sum:0.5", "Train with --loss auto."),
        ("bce", "none", "Choose a smaller --learning-rate, or inputs that tell the items apart."),
        ("auto", "none", "Choose a smaller --learning-rate, or inputs that tell the items apart."),
    ],
)
def test_a_training_without_a_gradient_is_told(tmp_path, monkeypatch, capsys, loss, mix, repair):
    """With what helps this loss; `--mix` is refused to the baseline."""
    for name in ("hinge", "bce"):
        factory = lambda **_: lambda scores, target: 0.0 * scores.sum() + 1  # noqa: E731
        monkeypatch.setattr(loss_factories, name, factory)
    train(options(tmp_path, loss=loss, mix=mix, epochs=1))
    message = capsys.readouterr().err
    assert f"epoch 1: all gradients of an epoch were zero. {repair}" in message


@pytest.mark.parametrize("count", [2, 8])
def test_one_output_for_all_pixels_is_told_of_few_images_too(count):
    same = torch.tensor([0.3, -0.1]).view(1, 2, 1, 1).expand(count, 2, 4, 4).clone()
    assert collapse._is_constant(same)
    same[-1, 0, 0, 0] = 0.4
    assert not collapse._is_constant(same)
    assert not collapse._is_constant(torch.zeros(7))  # a few may be equal
