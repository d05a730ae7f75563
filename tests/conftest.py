"""Stands here so that `harness` can be imported by the tests of every folder; and no generated example is too slow.

A deadline for examples is an assertion about the clock: on a busy machine it fails for no fault of ours.
"""

from hypothesis import HealthCheck, settings

settings.register_profile("patient", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("patient")
