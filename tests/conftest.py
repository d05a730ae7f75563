"""Stands here so that `harness` can be imported by the tests of every folder; no generated example is too slow, and
no agent compiles what the one before it has compiled.

A deadline for examples is an assertion about the clock: on a busy machine it fails for no fault of ours.
"""

import compileall
import signal
from collections.abc import Generator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from showing import sections

settings.register_profile("patient", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("patient")


def pytest_configure(config: pytest.Config) -> None:
    """Tests start agents by the hundred.  Where PYTHONDONTWRITEBYTECODE is set, each would compile all of flock.

    A shell that starts the tests in the background has them ignore Ctrl-C, and so would all they start: some tests
    send it to a program."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if not hasattr(config, "workerinput"):
        compileall.compile_dir(Path(__file__).parent.parent / "src", quiet=2)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if report.failed:
        report.sections += sections(item)
    return report
