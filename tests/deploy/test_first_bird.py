"""BIRD as units and manifests start it: one that ran before takes up what it left, the first of a boot has nothing to.

With `-R` it announces nothing until every router is back, or a while has passed: at a boot with one of two routers dead
the other would wait for that in vain."""

import shlex
import subprocess
from pathlib import Path

import pytest
import yaml

from flock.cli import installer
from flock.edge.bird import room

DEPLOY = Path(__file__).parents[2] / "deploy"


def of_the_unit() -> list[str]:
    text = installer.unit("flock-bird.service", plugins=Path("/x"), programs=Path("/x"))
    (line,) = [line for line in text.replace("\\\n", " ").splitlines() if line.startswith("ExecStart=")]
    assert "$" not in line and "%" not in line  # which systemd would have a look at
    return shlex.split(line.partition("=")[2])


def of_the_manifest() -> list[str]:
    documents = yaml.safe_load_all((DEPLOY / "bird.yaml").read_text())
    (daemons,) = [d for d in documents if d["kind"] == "DaemonSet"]
    (bird,) = daemons["spec"]["template"]["spec"]["containers"]
    return [*bird["command"]]


@pytest.mark.parametrize("which", ["unit", "manifest"])
def test_the_first_of_a_boot_recovers_nothing_and_every_other_one_does(tmp_path: Path, which: str) -> None:
    command = {"unit": of_the_unit, "manifest": of_the_manifest}[which]()
    run, conf, programs = tmp_path / "run", tmp_path / "conf", tmp_path / "sbin"
    for directory in (run, conf, programs, run / room.ROOM):
        directory.mkdir()
    (programs / "bird").write_text('#!/bin/sh\necho "$@"\n')
    (programs / "bird").chmod(0o755)

    def started() -> subprocess.CompletedProcess[str]:
        moved = [
            word.replace("/run/flock", str(run if which == "unit" else run / room.ROOM))
            .replace("/etc/flock/bird", str(conf))
            .replace("/usr/sbin", str(programs))
            for word in command
        ]
        return subprocess.run(moved, capture_output=True, text=True, env={"PATH": f"{programs}:/usr/bin:/bin"})

    first = started()
    assert (first.returncode, first.stdout) == (1, "")  # there is no file yet, and it was no start
    (conf / "bird.conf").touch()
    usual = f"-c {conf}/bird.conf -s {run if which == 'unit' else run / room.ROOM}/bird.ctl\n"
    assert [started().stdout for _ in range(2)] == [f"-f {usual}"] * 2
    room.note(run)  # the agent has seen it
    assert [started().stdout for _ in range(2)] == [f"-f -R {usual}"] * 2
