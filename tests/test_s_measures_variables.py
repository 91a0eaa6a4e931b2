"""The Lagrangian's own variables between projections: epsilon stays above 0, and only the optimiser
that the projection is exact for may move them.
"""

import copy
import gc
import pickle
import weakref

import pytest
import torch
from training_s_measures import linear_problem, projection_counts

from evalgrad import ROCAUC, FBeta
from evalgrad.s_measures import optimisers

Y, INDEX = torch.arange(60) % 4 == 0, torch.arange(60)


@pytest.mark.parametrize("step", [0.1, 1.0, 50.0])
def test_epsilon_stays_above_zero_whatever_the_step(step):
    """With a negative one s = epsilon f flips its sign, and the inverse is trained."""
    reg, scores = FBeta(labels=Y, solver="lagrangian"), torch.where(Y, 0.5, -0.5).requires_grad_()
    optimiser = torch.optim.SGD(reg.primal_groups(step))
    for _ in range(20):
        optimiser.zero_grad()
        scores.grad = None
        reg(scores, Y, index=INDEX).backward()
        optimiser.step()
        assert reg.diagnostics()["epsilon"] >= 1  # = 1 / (true positives per positive)
        assert (scores.grad[Y] <= 0).all()
        assert (scores.grad[~Y] >= 0).all()
    reg.project_()
    (group,) = reg.groups
    assert group.epsilon >= 1
    assert (group.tau <= group.epsilon).all()


def test_a_tau_above_epsilon_counts_as_epsilon_and_pulls_at_it():
    reg = FBeta(labels=Y, solver="lagrangian")
    (group,) = reg.groups
    with torch.no_grad():
        group.tau[0, :5] = 3.0
    raised = reg(torch.zeros(60), Y, index=INDEX)
    raised.backward()
    assert group.tau.grad[0, :5].eq(0).all()
    assert group.tau.grad[0, 5:].ne(0).all()
    within = FBeta(labels=Y, solver="lagrangian")
    value = within(torch.zeros(60), Y, index=INDEX)
    value.backward()
    assert torch.equal(raised, value)
    moved = group.tau.grad.sum() + group.epsilon.grad
    torch.testing.assert_close(
        moved, within.groups[0].tau.grad.sum() + within.groups[0].epsilon.grad
    )


@pytest.mark.parametrize("step", [1e-3, 3e-3, 1e-2])
def test_one_projection_per_epoch_certifies_what_one_per_step_does(step):
    gaps = []
    for seed in range(5):
        counts = projection_counts(*linear_problem(seed), epochs=20, batches=8, primal_lr=step)
        gaps.append(counts["once per epoch"]["certificate"] - counts["every step"]["certificate"])
    assert abs(sum(gaps) / 5) < 0.005


@pytest.mark.parametrize("per_pass", [True, False])
def test_a_network_trains_with_dual_steps_at_every_batch_or_pass(per_pass):
    """At the documented step of the variables it comes to the F1 of the ratio solver."""
    torch.manual_seed(0)
    x = torch.randn(2000, 6)
    y = x[:, 0] + x[:, 1] * x[:, 2] + 0.5 * torch.randn(2000) > 2
    found = []
    for solver in ("ratio", "lagrangian"):
        torch.manual_seed(1)
        reg = FBeta(labels=y, solver=solver)
        model = torch.nn.Sequential(torch.nn.Linear(6, 16), torch.nn.ReLU(), torch.nn.Linear(16, 1))
        own = reg.primal_groups(0.01)
        steps = [torch.optim.Adam(model.parameters(), lr=0.01)]
        steps += [torch.optim.SGD(own)] if own else []
        drawn = torch.cat([torch.randperm(2000) for _ in range(8)])
        for step, index in enumerate(drawn.split(50), 1):  # 40 are a pass
            for optimiser in steps:
                optimiser.zero_grad()
            reg(model(x[index])[:, 0], y[index], index=index).backward()
            for optimiser in steps:
                optimiser.step()
            reg.project_()
            if own and (step % 40 == 0 or not per_pass):
                reg.dual_step()
        found.append(reg.diagnostics()["metric"])
    assert found[1] > found[0] - 0.05
    assert found[0] > 0.6


def adam(reg):
    return torch.optim.Adam(reg.primal_groups(0.1))


@pytest.mark.parametrize(
    ("make", "found"),
    [
        (adam, "one with betas"),
        (lambda reg: torch.optim.RMSprop(reg.primal_groups(0.1)), "one with alpha"),
        (lambda reg: torch.optim.Adam(reg.parameters()), "no optimiser that was given them"),
        (
            lambda reg: torch.optim.SGD([{**g, "momentum": 0.9} for g in reg.primal_groups(0.1)]),
            "no optimiser that was given them",
        ),
    ],
)
@pytest.mark.parametrize("measure", [FBeta, lambda **options: ROCAUC(3, **options)])
def test_another_optimiser_is_refused(make, found, measure):
    reg = measure(labels=Y, solver="lagrangian")
    kept = make(reg)
    with pytest.raises(
        ValueError, match=f"project_: .* must be .* plain torch.optim.SGD alone; got {found}"
    ):
        reg.project_()
    assert kept.param_groups


def test_momentum_set_later_is_seen_and_plain_sgd_passes():
    reg = FBeta(labels=Y, solver="lagrangian")
    optimiser = torch.optim.SGD(reg.primal_groups(0.1))
    reg.project_()
    optimiser.param_groups[0]["momentum"] = 0.9
    with pytest.raises(ValueError, match="SGD with momentum"):
        reg.project_()
    FBeta(labels=Y).project_()  # the ratio solver has no variables


@pytest.mark.parametrize("option", ["weight_decay", "maximize"])
def test_an_sgd_that_is_not_plain_is_seen(option):
    reg = FBeta(labels=Y, solver="lagrangian")
    optimiser = torch.optim.SGD(reg.primal_groups(0.01))
    optimiser.param_groups[0][option] = 1
    with pytest.raises(ValueError, match="SGD with momentum, weight decay or maximize"):
        step(reg, optimiser)


def test_copies_are_in_no_optimiser():
    reg = FBeta(labels=Y, solver="lagrangian")
    torch.optim.SGD(reg.primal_groups(0.1))
    for other in (copy.deepcopy(reg), pickle.loads(pickle.dumps(reg))):
        with pytest.raises(ValueError, match="no optimiser that was given them"):
            other.project_()
        kept = torch.optim.SGD(other.primal_groups(0.1))
        other.project_()
        assert kept.param_groups


def step(reg, *optimisers):
    for optimiser in optimisers:
        optimiser.zero_grad()
    reg(torch.randn(60, requires_grad=True), Y, index=INDEX).backward()
    for optimiser in optimisers:
        optimiser.step()
    reg.project_()


def test_an_optimiser_that_is_copied_with_them_is_theirs():
    reg = FBeta(labels=Y, solver="lagrangian")
    both = reg, torch.optim.SGD(reg.primal_groups(0.01))
    step(*both)
    for other, optimiser in (copy.deepcopy(both), pickle.loads(pickle.dumps(both))):
        step(other, optimiser)
        other.project_()  # as after a step that a gradient scaler skips
        optimiser.param_groups[0]["momentum"] = 0.9
        with pytest.raises(ValueError, match="SGD with momentum"):
            step(other, optimiser)
    fresh = copy.deepcopy(FBeta(labels=Y, solver="lagrangian"))
    with pytest.raises(ValueError, match="no optimiser that was given them"):  # never asked for
        step(fresh, torch.optim.SGD(fresh.parameters(), lr=0.01))


def test_primal_groups_may_be_looked_at_again():
    reg = FBeta(labels=Y, solver="lagrangian")
    optimiser = torch.optim.SGD(reg.primal_groups(0.01))
    for _ in range(3):
        assert len(reg.primal_groups(0.1)) == 2
        step(reg, optimiser)
        reg.project_()
    assert len(reg.groups[0].given) == 2  # a log of every step does not grow


class Model(torch.nn.Module):
    """A measure as a submodule, as in Lightning."""

    def __init__(self):
        super().__init__()
        self.scorer = torch.nn.Linear(3, 1)
        self.measure = FBeta(labels=Y, solver="lagrangian")


def test_what_steps_them_besides_sgd_is_seen():
    model = Model()
    both = torch.optim.Adam(model.parameters()), torch.optim.SGD(model.measure.primal_groups(0.01))
    model.measure.project_()  # nothing has moved them yet
    for _ in range(2):
        with pytest.raises(ValueError, match=r"got Adam\. .* leave these variables out of every"):
            step(model.measure, *both)
    own = {id(variable) for variable in model.measure.parameters()}
    others = [p for p in model.parameters() if id(p) not in own]
    step(model.measure, torch.optim.Adam(others), both[1])  # the other still exists


@pytest.mark.parametrize("kind", [torch.optim.AdamW, torch.optim.Rprop, torch.optim.Adadelta])
@pytest.mark.parametrize("stepped", [True, False])
def test_the_advice_helps(kind, stepped):
    reg = FBeta(labels=Y, solver="lagrangian")
    wrong = kind(reg.primal_groups(0.01))
    with pytest.raises(ValueError, match=f"got {kind.__name__ if stepped else 'one with'}"):
        step(reg, wrong) if stepped else reg.project_()
    right = torch.optim.SGD(reg.primal_groups(0.01))
    reg.project_()
    step(reg, right)


def test_the_options_of_a_loaded_optimiser_are_its_own():
    """`load_state_dict` replaces the dicts of `primal_groups`."""
    reg = FBeta(labels=Y, solver="lagrangian")
    optimiser = torch.optim.SGD(reg.primal_groups(0.01))
    step(reg, optimiser)
    state = optimiser.state_dict()
    optimiser.param_groups[0]["momentum"] = 0.9
    with pytest.raises(ValueError, match="SGD with momentum"):
        step(reg, optimiser)
    optimiser.load_state_dict(state)
    step(reg, optimiser)
    optimiser.param_groups[0]["momentum"] = 0.9
    with pytest.raises(ValueError, match="SGD with momentum"):
        step(reg, optimiser)


def test_plain_sgd_of_equal_steps_is_refused():
    """The projection is exact for the ratio of the steps of `primal_groups`."""
    reg = FBeta(labels=Y, solver="lagrangian")
    with pytest.raises(ValueError, match="no optimiser that was given them"):
        step(reg, torch.optim.SGD(reg.parameters(), lr=0.01))


def test_variables_that_no_optimiser_holds_are_told():
    """`assign=True` leaves the optimiser with those of before."""
    reg = FBeta(labels=Y, solver="lagrangian")
    optimiser = torch.optim.SGD(reg.primal_groups(0.01))
    step(reg, optimiser)
    reg.load_state_dict(FBeta(labels=Y, solver="lagrangian").state_dict(), assign=True)
    with pytest.raises(ValueError, match="got no optimiser that was given them"):
        step(reg, optimiser)
    of_tau, of_epsilon = reg.primal_groups(0.01)
    optimiser = torch.optim.SGD([of_tau])
    with pytest.raises(ValueError, match="got an optimiser that was given only some of them"):
        step(reg, optimiser)
    optimiser.add_param_group(of_epsilon)
    step(reg, optimiser)


def test_a_closure_and_a_step_without_gradients():
    reg, scores = FBeta(labels=Y, solver="lagrangian"), torch.randn(60)
    model = torch.nn.Linear(3, 1)
    optimiser = torch.optim.SGD(reg.primal_groups(0.01))
    adam = torch.optim.Adam([*model.parameters(), *reg.parameters()])

    def closure():
        loss = reg(scores, Y, index=INDEX)
        loss.backward()
        return loss

    model(torch.ones(2, 3)).sum().backward()
    adam.step()  # which moves only what has a gradient
    optimiser.step(closure)
    reg.project_()
    optimiser.zero_grad()
    adam.step(closure)
    with pytest.raises(ValueError, match="got Adam"):
        reg.project_()


def test_measures_are_freed_and_others_than_theirs_unseen():
    reg = FBeta(labels=Y, solver="lagrangian")
    step(reg, torch.optim.SGD(reg.primal_groups(0.01)))
    numbers = {id(variable) for variable in reg.parameters()}
    assert numbers <= optimisers._watched.keys()
    alive = weakref.ref(reg.groups[0].tau)
    del reg
    gc.collect()
    assert alive() is None
    assert not numbers & optimisers._watched.keys()
