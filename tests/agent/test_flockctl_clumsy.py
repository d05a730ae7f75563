"""flockctl and flock-installer for whoever leaves early, has no room, or is not root: words and exit codes, never a
traceback."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from flock.cli.main import main
from harness import Node

FLOCKCTL = "from flock.cli.begin import main; main()"
INSTALLER = "from flock.cli.installer import main; main()"
# Loaded before: where these sources are, others may not be allowed to look.
AS_NOBODY = """
import importlib, os, pkgutil
import flock, flock.cli.main
for module in pkgutil.walk_packages(flock.__path__, "flock."):
    importlib.import_module(module.name)  # while the tree can be read, which may be root's alone
os.setgroups([]), os.setresgid(65534, 65534, 65534), os.setresuid(65534, 65534, 65534)
flock.cli.main.main()
"""
BUFFERED = {key: value for key, value in os.environ.items() if key != "PYTHONUNBUFFERED"}


def said(script: str, *argv: object, **options: Any) -> tuple[int, str]:
    """The exit code, and all of stderr."""
    command = [sys.executable, "-c", script, *map(str, argv)]
    options = {"stdout": subprocess.DEVNULL, "env": BUFFERED} | options
    done = subprocess.run(command, stderr=subprocess.PIPE, text=True, timeout=60, check=False, **options)
    return done.returncode, done.stderr


@pytest.mark.parametrize("argv", [["--help"], ["--version"], ["status"], ["status", "-o", "json"], ["happened"]])
@pytest.mark.parametrize("unbuffered", [{}, {"PYTHONUNBUFFERED": "1"}], ids=["buffered", "unbuffered"])
def test_whoever_reads_no_further_is_no_failure(node: Node, argv: list[str], unbuffered: dict[str, str]) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    try:
        argv = ["--run-dir", str(node.run_dir), *argv]
        assert said(FLOCKCTL, *argv, stdout=writing, env=BUFFERED | unbuffered) == (0, "")
    finally:
        os.close(writing)


def test_what_cannot_be_written_is_said(node: Node) -> None:
    for command in ("status", "happened"):
        with Path("/dev/full").open("w") as full:
            told = said(FLOCKCTL, "--run-dir", node.run_dir, command, stdout=full)
        assert told == (1, "flockctl: No space left on device\n")


def test_an_installation_goes_on_when_nobody_reads_its_words(tmp_path: Path) -> None:
    root = Path(__file__).parents[2]
    flags = [f"--{name}-dir={tmp_path}/{name}" for name in ("bin", "conf", "networkd", "networkd-conf")]
    flags += [f"--{name}-dir={tmp_path}/{name}" for name in ("networkmanager", "rt-protos", "run", "bird")]
    reading, writing = os.pipe()
    os.close(reading)
    try:
        assert said(INSTALLER, f"--executable={root}/build/flock", *flags, stdout=writing) == (0, "")
        assert said(INSTALLER, "--help", stdout=writing) == (0, "")
    finally:
        os.close(writing)
    assert (tmp_path / "bin/flock").exists() and (tmp_path / "rt-protos/flock.conf").exists()
    (tmp_path / "file").touch()
    refused = said(INSTALLER, f"--executable={root}/build/flock", *flags, f"--bin-dir={tmp_path}/file/bin")
    assert refused == (1, f"flock-installer: {tmp_path}/file/bin: Not a directory\n")


@pytest.mark.parametrize("command", ["status", "check", "drain"])
def test_others_than_root_are_told_whom_the_agent_answers(node: Node, command: str, tmp_path: Path) -> None:
    node.execute("chmod", "-R", "a+rX", node.run_dir)
    for parent in tmp_path.parents[:3]:
        parent.chmod(parent.stat().st_mode | 0o011)
    tmp_path.chmod(0o755)
    (node.run_dir / "flock.sock").chmod(0o600)
    code, told = said(AS_NOBODY, "--run-dir", node.run_dir, command)
    assert (code, "Permission denied; it answers root alone" in told) == (3, True), told


@pytest.mark.parametrize(
    "argv",
    [
        *("lab status", "lab down", "lab exec n1 -- id", "lab ping n1 n1", "lab cordon n1", "lab pod add x --node n1"),
        *("lab up", "lab ask client n1", "check lab", "view --lab lab", "bundle --lab lab", "doctor"),
    ],
)
def test_what_needs_root_says_so(argv: str) -> None:
    code, told = said(AS_NOBODY, "--run-dir", "/nowhere", *argv.split())
    assert code == 1 and "needs root" in told and len(told.splitlines()) == 1, told


@pytest.mark.parametrize("number", ["--every=0", "--every=-1", "--every=nan", "--for=-1", "--for=inf", "--flows=-1"])
def test_numbers_that_make_no_sense_are_wrong_usage(number: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["lab", "ask", number, "client", "n1"])
    assert ended.value.code == 2
    assert f"argument {number.partition('=')[0]}: '{number.partition('=')[2]}' is no number" in capsys.readouterr().err
