"""benchmarks/projections.py: what it fits and divides, on times that follow a formula."""

import math
import sys
from pathlib import Path

import pytest

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
