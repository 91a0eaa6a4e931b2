"""benchmarks/projections.py: what it fits and divides, on times that follow a formula."""

import math
import sys
from functools import partial
from pathlib import Path

import pytest
import torch

sys.path.insert(0, str(Path(__file__).parents[1] / "benchmarks"))

import projections


@pytest.mark.parametrize("power", [0.5, 1.0, 1.7])
def test_the_exponent_of_a_power_is_it(power):
    times = {size: 3e-7 * size**power for size in projections.SIZES}
    assert projections.exponent(times) == pytest.approx(power)


def test_the_exponent_is_a_fit_of_all_sizes():
    """By hand: of (0, 0), (1, 0), (2, 3) in log10 the slope is 3 / 2, and no slope of two points
    of them.
    """
    assert projections.exponent({1: 1.0, 10: 1.0, 100: 1000.0}) == pytest.approx(1.5)


@pytest.mark.parametrize("n", projections.COMPARED)
def test_times_as_counted_break_even_where_the_paper_says(n):
    """T B log B = n log n, with T = passes * n / B."""
    for batch in projections.batches_of(n).values():
        times = {size: 1e-8 * size * math.log(size) for size in (batch, n)}
        costs = projections.pass_costs(n, batch, times)
        steps = costs["counted"] * n / batch
        assert steps * batch * math.log(batch) == pytest.approx(n * math.log(n))
        assert costs["measured"] == pytest.approx(costs["counted"])
        assert costs["measured"] * costs["batches"] == pytest.approx(costs["once"])
        assert costs["every step"] == pytest.approx(n / batch * costs["once"])
    assert projections.batches_of(10**6) == {"log n": 14, "√n": 1000}
    assert costs["counted"] == pytest.approx(2)  # of a root


@pytest.mark.parametrize("size", [100, 10_000])
def test_the_timed_projection_has_something_to_do_in_the_metric_of_the_steps(size):
    """By its optimum: epsilon rises by the mean of what is cut off, its steps being 1 / n."""
    torch.manual_seed(0)
    job = projections.projection(size)
    torch.manual_seed(0)
    tau = torch.randn(size)
    projected, epsilon = job()
    assert 0.1 < (projected < tau).float().mean() < 0.9
    assert projected.equal(tau.minimum(epsilon))
    torch.testing.assert_close(epsilon, 0.3 + (tau - projected).mean())


def test_a_pass_has_all_items_in_batches(monkeypatch):
    """1,280 positives and as many negatives are 10 batches of 256; in the shares of a pass."""
    seconds, called = {"step": 2.0, "project": 6.0, "dual": 4.0}, []

    def timed(jobs, _):
        """Every call of a job takes its seconds, as often as one sample repeats it."""
        for job in jobs.values():
            job()
        return {name: called.count(name.split()[0]) * seconds[name.split()[0]] for name in jobs}

    jobs = {name: partial(called.append, name) for name in seconds}
    monkeypatch.setattr(projections, "training_jobs", lambda size: jobs)
    monkeypatch.setattr(projections, "interleaved", timed)
    expected = seconds | {"every step": 60 / 84, "once per pass": 6 / 30}
    assert projections.training_times((1280,)) == [{"n": 1280, **expected}]


def test_the_shares_of_a_pass():
    """10 steps of 2 s and a dual step of 4 s, with projections of 6 s."""
    found = projections.shares(2, 6, 4, steps=10)
    assert found == {"every step": 60 / 84, "once per pass": 6 / 30}


def test_the_training_projects_where_it_is_told_to():
    jobs = projections.training_jobs(400)
    measure = jobs["dual"].__self__
    (group,) = measure.groups
    for name, count in (("step", 0), ("dual", 0), ("project", 1)):
        before = group.tau.detach().clone()
        jobs[name]()
        assert group.projections == count
        assert group.tau.equal(before) == (name == "dual")
    assert (group.tau <= group.epsilon).all()
    assert 0 < (group.tau == group.epsilon).sum() < 400  # it had something to do, and to leave


def test_it_runs_with_a_line_for_every_setting(monkeypatch):
    for name, sizes in (("SIZES", (10, 100)), ("COMPARED", (100,)), ("TRAINED", (200,))):
        monkeypatch.setattr(projections, name, sizes)
    monkeypatch.setattr(projections, "SAMPLE", 1)
    monkeypatch.setattr(projections, "interleaved", lambda jobs, _: projections_seconds(jobs))
    lines = projections.tables(*projections.measure()).splitlines()
    columns = [line.count("|") - 1 for line in lines]
    assert columns == [3, 3, 3, -1, -1, -1, 7, 7, 7, 7, -1, 5, 5, 5]
    assert lines[2] == "| ms of a projection | 1,000 | 2,000 |"


def projections_seconds(jobs):
    """The n-th job takes n seconds."""
    for job in jobs.values():
        job()
    return {name: float(place) for place, name in enumerate(jobs, 1)}


@pytest.mark.parametrize(
    ("value", "text"), [(0.00123, "0.0012"), (0.097, "0.097"), (1.44, "1.4"), (12345.0, "12,000")]
)
def test_two_digits(value, text):
    assert projections.short(value) == text
