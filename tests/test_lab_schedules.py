"""The learning rate's schedules and the mixed objectives."""

import math

import pytest

from evalgrad_lab import schedules
from evalgrad_lab.errors import UserError


def test_schedules_equal_their_formulas():
    for k in range(0, 101, 10):
        assert schedules.factor("poly", k, (100,)) == pytest.approx((1 - k / 100) ** 0.9)
        assert schedules.factor("cosine", k, (100,)) == pytest.approx(
            math.cos(math.pi * k / 200) ** 2
        )
        assert schedules.factor("constant", k, (100,)) == 1


@pytest.mark.parametrize("schedule", schedules.SCHEDULES)
def test_each_phase_runs_the_whole_schedule_and_the_end_stays_put(schedule):
    phases = [schedules.factor(schedule, k, (3, 5)) for k in range(8)]
    assert phases == [schedules.factor(schedule, k, (3,)) for k in range(3)] + [
        schedules.factor(schedule, k, (5,)) for k in range(5)
    ]
    assert schedules.factor(schedule, 9, (3, 5)) == schedules.SCHEDULES[schedule](1.0)


def test_a_mix_has_its_phases():
    assert schedules.parse_mix("then:0.25").lengths(8) == (2, 6)
    assert schedules.parse_mix("sum:0.25").lengths(8) == (8,)
    assert schedules.parse_mix("none") is None


@pytest.mark.parametrize("text", ["then", "then:2", "sum:x", "first:0.5", "sum:nan"])
def test_a_wrong_mix_is_told(text):
    with pytest.raises(UserError, match="--mix must be none, then:SHARE or sum:SHARE"):
        schedules.parse_mix(text)
