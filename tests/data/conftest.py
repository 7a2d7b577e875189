"""Hypothesis without its stopwatch: a busy machine is no fault of the code's."""

from hypothesis import settings

settings.register_profile("untimed", deadline=None)
settings.load_profile("untimed")
