"""`flockctl check cluster`, told to end while it waits for whichever answer: what it made is removed at once."""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from harness import eventually
from listening import listen

# A cluster of two nodes, as far as a check asks.  What contains $NEVER is not answered, by a child that has the pipes.
KUBECTL = r"""#!{python} -IS
import json, os, pathlib, sys, subprocess
here = pathlib.Path(__file__).parent
words = " ".join(a for a in sys.argv[1:] if not a.startswith("--output"))
given = sys.stdin.read() if "apply" in words or "--stdin" in words else ""
if "apply" in words:
    (here / "made").touch()
elif "delete namespace" in words:
    (here / "made").unlink()
with open(here / "asked", "a") as asked:
    asked.write(words + "\n")
if os.environ["NEVER"] in words:
    (here / f"waiting.{{os.getpid()}}").touch()
    subprocess.run(["sleep", "1000"])

def pod(name, node, **spec):
    containers = [{{"name": "agent", "image": "flock"}}]
    spec |= {{"nodeName": node, "containers": containers}}
    status = {{"phase": "Running", "podIPs": [{{"ip": "2001:db8::" + str(len(name)) + node[1:]}}]}}
    return {{"metadata": {{"name": name, "namespace": "x"}}, "spec": spec, "status": status}}

items = []
if "--selector=app.kubernetes.io/name=flock" in words:
    items = [pod("flock-" + node, node, hostNetwork=True) for node in ("n1", "n2")]
elif words.startswith("get pods --namespace"):
    items = [pod(f"{{name}}-{{node}}", node) for node in ("n1", "n2") for name in "ab"]
if "nodelook" in words:
    print("{{}}")
elif words.startswith("get"):
    print(json.dumps({{"items": items}}))
"""
# Whoever waits for an answer that does not come waits for longer than this test does.
BEGIN = """
import flock.cli.check_cluster as module, flock.edge.kubectl as kubectl
module.EXEC_PATIENCE = kubectl.PATIENCE = 1000.0
module.Kubectl.run.__kwdefaults__["patience"] = 1000.0
from flock.cli.main import main
main(["check", "cluster"])
"""


@contextmanager
def checking(
    directory: Path, *, never: str, before: Callable[[], object] | None = None
) -> Iterator[subprocess.Popen[str]]:
    """A check that waits for an answer to what contains `never`."""
    program = directory / "kubectl"
    program.write_text(KUBECTL.format(python=sys.executable))
    program.chmod(0o755)
    environment = os.environ | {"PATH": f"{directory}:{os.environ['PATH']}", "NEVER": never}
    command = [sys.executable, "-c", BEGIN]
    pipe, before = subprocess.PIPE, before or listen
    with subprocess.Popen(
        command, env=environment, stdout=pipe, stderr=pipe, text=True, preexec_fn=before, start_new_session=True
    ) as process:
        try:
            eventually(lambda: waiting(directory) or process.poll() is not None, what=f"it asks {never}")
            yield process
        finally:
            process.kill()
            process.wait()
            for pid in asking(program):
                with suppress(OSError):
                    os.killpg(pid, signal.SIGKILL)


def waiting(directory: Path) -> list[int]:
    return [int(path.suffix[1:]) for path in directory.glob("waiting.*")]


def asking(program: Path) -> Iterator[int]:
    """Whoever runs it, also one that has not come so far as to wait."""
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if str(program).encode() in (process / "cmdline").read_bytes().split(b"\0"):
                yield int(process.name)


def is_alive(pid: int) -> bool:
    try:
        return "\nState:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return False


@pytest.mark.parametrize(
    ("never", "by"),
    [
        ("probe ask", signal.SIGINT),
        ("probe ask", signal.SIGTERM),
        ("probe ask", signal.SIGHUP),
        ("nodelook", signal.SIGTERM),
        ("apply", signal.SIGHUP),
        ("get pods --namespace", signal.SIGTERM),
    ],
)
def test_told_to_end_it_removes_what_it_made_whoever_it_waits_for(
    tmp_path: Path, never: str, by: signal.Signals
) -> None:
    with checking(tmp_path, never=never) as process:
        process.send_signal(by)
        _, said = process.communicate(timeout=60)
    assert process.returncode == 1 and said == "flockctl: interrupted; what the check made is removed\n"
    assert not (tmp_path / "made").exists()
    asked = (tmp_path / "asked").read_text().splitlines()
    assert asked[-1].startswith("delete namespace") == (never != "nodelook")
    eventually(lambda: not any(map(is_alive, waiting(tmp_path))), what="those that waited are gone")


def test_who_is_told_twice_cleans_up_all_the_same(tmp_path: Path) -> None:
    with checking(tmp_path, never="probe ask") as process:
        for by in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT, signal.SIGTERM):
            process.send_signal(by)
        _, said = process.communicate(timeout=60)
    assert process.returncode == 1 and not (tmp_path / "made").exists()
    assert said == "flockctl: interrupted; what the check made is removed\n"


def test_a_terminal_that_is_closed_does_not_end_what_nohup_started(tmp_path: Path) -> None:
    def nohup() -> None:
        signal.signal(signal.SIGHUP, signal.SIG_IGN)

    with checking(tmp_path, never="probe ask", before=nohup) as process:
        (ignored,) = re.findall(r"SigIgn:\s+(\w+)", Path(f"/proc/{process.pid}/status").read_text())
        assert int(ignored, 16) & 1 << signal.SIGHUP - 1
    eventually(lambda: not list(asking(tmp_path / "kubectl")), what="those that it asked are gone")
