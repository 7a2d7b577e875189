"""Learning rates: functions of the step and of max_steps alone."""

from itertools import pairwise

import pytest

from training.config import ScheduleConfig
from training.schedule import factor


def curve(max_steps=100, **settings):
    schedule = ScheduleConfig(**settings)
    return [factor(schedule, step, max_steps) for step in range(max_steps)]


def test_linear_rises_stays_and_falls_to_nothing():
    lr = curve(name="linear", warmup_steps=9, cooldown=0.5)
    assert lr[:10] == pytest.approx([0.1 * k for k in range(1, 11)])
    assert lr[10:51] == [1.0] * 41
    assert lr[50:] == pytest.approx([1 - k / 50 for k in range(50)])


def test_cosine_falls_to_a_tenth():
    lr = curve(name="cosine", warmup_steps=10)
    assert lr[10] == 1.0 and lr[55] == pytest.approx(0.55) and lr[99] == pytest.approx(0.1, abs=1e-3)
    assert all(later < sooner for sooner, later in pairwise(lr[10:]))


def test_constant_stays():
    assert curve(name="constant", warmup_steps=2)[2:] == [1.0] * 98


@pytest.mark.parametrize("name", ["linear", "cosine", "constant"])
@pytest.mark.parametrize("max_steps", [1, 2, 7])
def test_short_runs_still_learn(name, max_steps):
    assert all(0 < value <= 1 for value in curve(max_steps, name=name))
