"""The image's Debian and Python are said once, in e2e/image.py; whatever else names them says the same."""

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
sys.path += [str(ROOT / "e2e"), str(ROOT / "scripts")]

import image  # noqa: E402

import lock  # noqa: E402
import matrix  # noqa: E402

MACHINE = "x86_64"  # of the page's commands
PAGE = (ROOT / "docs/install.md").read_text()


def download() -> list[str]:
    """The page's command that brings the wheels."""
    (line,) = re.findall(r"^\.venv/bin/python -m pip download .*$", PAGE.replace("\\\n", ""), re.MULTILINE)
    return shlex.split(line, comments=True)


def test_the_dockerfile_starts_from_the_debian_that_the_base_is_made_of() -> None:
    (system,) = (system for system in matrix.SYSTEMS if system.suite == image.SUITE)
    number = system.name.removeprefix("Debian ")
    assert f"ARG BASE=debian:{number}-slim\n" in image.DOCKERFILE.read_text()


def test_wheels_are_locked_and_documented_for_the_images_python() -> None:
    assert image.PYTHON in lock.PYTHONS
    options = image.fitting(MACHINE)
    assert [word for word in download() if word in options] == options
    assert f"Python than this image's {image.PYTHON}`" in PAGE.replace("\n", " ")


@pytest.mark.parametrize(
    "sources", ["Suites: {0} {0}-updates\nSuites: {0}-security\n", "deb mirror {0} main\ndeb more {0}-security main\n"]
)
def test_the_base_has_updates_and_security_updates_from_where_this_machine_has_its_own(sources: str) -> None:
    for suite in ("bookworm", "trixie"):
        assert image.sources_of_suite(sources.format(suite), suite=suite) == sources.format(image.SUITE)


@pytest.mark.slow
def test_the_pages_command_brings_every_locked_wheel_for_the_images_python(tmp_path: Path) -> None:
    given = [str(tmp_path) if word == "image/wheels" else word for word in download()]
    done = subprocess.run([sys.executable, *given[1:]], cwd=ROOT, capture_output=True, text=True, timeout=110)
    assert done.returncode == 0, done.stderr
    locked = re.findall(r"^(\w+)==", (ROOT / "requirements/run.txt").read_text(), re.MULTILINE)
    names = sorted(wheel.name for wheel in tmp_path.iterdir())
    assert [name.split("-")[0] for name in names] == sorted(name.lower() for name in locked)
    own = f"cp{image.PYTHON.replace('.', '')}"
    assert [name for name in names if f"-{own}-" not in name and "-py3-none-" not in name] == []
