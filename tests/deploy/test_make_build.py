"""`make build` fails when what it does fails, and tries again the next time."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A tree to build in, on a machine that has every Debian package."""
    for name in ("Makefile", "pyproject.toml"):
        shutil.copy(ROOT / name, tmp_path)
    shutil.copytree(ROOT / "requirements", tmp_path / "requirements")
    (tmp_path / "scripts").mkdir()
    (tmp_path / "scripts/packages").write_text("#!/bin/sh\n")
    (tmp_path / "scripts/packages").chmod(0o755)
    return tmp_path


def make(tree: Path, target: str, **environment: str) -> subprocess.CompletedProcess[str]:
    env = {key: value for key, value in os.environ.items() if not key.startswith("MAKE")} | environment
    return subprocess.run(["make", "-C", tree, target], env=env, capture_output=True, text=True, timeout=100)


@pytest.mark.slow
def test_packages_that_pip_cannot_install_fail_the_build_and_it_is_tried_again_the_next_time(tree: Path) -> None:
    done = make(tree, ".venv/ready", PIP_NO_INDEX="1")
    assert done.returncode and "PyYAML" in done.stdout + done.stderr, "and pip's reason is shown"
    assert not (tree / ".venv/ready").exists(), "which is all that a later run goes by"


def test_a_broken_layer_fails_lint(tree: Path) -> None:
    """Of import-linter's words the last two lines are shown; its verdict counts all the same."""
    programs = tree / ".venv/bin"
    programs.mkdir(parents=True)
    for name in ("ruff", "mypy", "lint-imports"):
        (programs / name).write_text(f"#!/bin/sh\nexit {int(name == 'lint-imports')}\n")
        (programs / name).chmod(0o755)
    for built in (".venv/ready", "build/flock"):
        (tree / built).parent.mkdir(exist_ok=True)
        (tree / built).touch()
    assert make(tree, "lint").returncode


def test_where_there_is_no_dpkg_it_is_said_what_has_to_be_there_and_the_build_goes_on(tmp_path: Path) -> None:
    """Other distributions have the same under other names."""
    (tmp_path / "bash").symlink_to("/bin/bash")
    run = [tmp_path / "bash", ROOT / "scripts/packages", "nftables", "bird2"]
    done = subprocess.run(run, env={"PATH": str(tmp_path)}, capture_output=True, text=True, timeout=100)
    assert (done.returncode, done.stdout) == (0, "")
    assert done.stderr == "no Debian: nothing is installed; needed are, as Debian calls them: nftables bird2\n"
