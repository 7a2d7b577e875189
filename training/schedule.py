"""The learning rate over a run: a function of the step and of max_steps, nothing else."""

import math

from training.config import ScheduleConfig


def factor(schedule: ScheduleConfig, step: int, max_steps: int) -> float:
    """What the peak learning rate is multiplied by at `step` (0 … max_steps − 1), in [0, 1].

    Linear warm-up, then `linear`: flat, falling to zero over the last `cooldown` share of the run;
    `cosine`: half a wave down to a tenth; `constant`: flat.
    """
    if step < schedule.warmup_steps:
        return (step + 1) / (schedule.warmup_steps + 1)
    if schedule.name == "constant":
        return 1.0
    if schedule.name == "cosine":
        done = (step - schedule.warmup_steps) / max(1, max_steps - schedule.warmup_steps)
        return 0.55 + 0.45 * math.cos(math.pi * min(1.0, done))
    falling = schedule.cooldown * max_steps
    return min(1.0, max(0.0, (max_steps - step) / falling)) if falling else 1.0
