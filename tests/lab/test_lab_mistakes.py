"""What somebody does wrong with a lab is said at once, with the exit code of its kind, and touches no other lab."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from lab_making import MakeLab

from flock.cli.main import main
from flock.core.errors import FieldError
from flock.core.nodeconfig import values
from flock.lab.fabric import Lab
from harness import eventually

FLOCKCTL = [sys.executable, "-c", "from flock.cli.begin import main; main()", "lab"]


def ends(*argv: str) -> int:
    with pytest.raises(SystemExit) as ended:
        main(["lab", *argv])
    code = ended.value.code
    assert isinstance(code, int)
    return code


def test_the_hint_names_the_lab_that_is_in_the_way(make_lab: MakeLab, tmp_path: Path) -> None:
    lab = make_lab(nodes=1, routers=1, plain=True, settled=False)
    with pytest.raises(FieldError, match=f"`flockctl lab down --name {lab.name}`"):
        Lab.up(name=lab.name, plain=True)
    (tmp_path / "file").write_text("")
    with pytest.raises(FieldError, match=f"`flockctl lab down --dir {tmp_path}`"):
        Lab.up(name=f"{lab.name}-b", directory=tmp_path, plain=True)


@pytest.mark.parametrize(
    "argv",
    [("up", "--nodes", "0"), ("up", "--routers", "99"), ("up", "--name", "UPPER"), ("up", "--nodeconfigs", "/nowhere")],
)
def test_wrong_usage_ends_with_2(argv: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    assert ends(*argv) == 2
    assert argv[1] in capsys.readouterr().err


def test_a_directory_without_nodeconfigs_is_refused_before_anything_is_built(
    lab_name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "configs").mkdir()
    home = tmp_path / "lab"
    assert ends("up", "--name", lab_name, "--dir", str(home), "--nodeconfigs", str(tmp_path / "configs")) == 2
    assert "there is no NodeConfig in" in capsys.readouterr().err
    assert not home.exists()


def test_a_file_that_no_agent_takes_is_not_applied(
    make_lab: MakeLab, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lab = make_lab(nodes=1, routers=1, plain=True, settled=False)
    for name, content, problem in (
        ("nokind.json", {"metadata": {"name": "x"}}, "no kind"),
        ("other.json", {"kind": "Deployment", "apiVersion": "apps/v1", "metadata": {"name": "x"}}, "flock reads"),
    ):
        (tmp_path / name).write_text(json.dumps(content))
        assert ends("apply", "--name", lab.name, str(tmp_path / name)) == 1
        assert problem in capsys.readouterr().err
        assert not (lab.home.manifests / name).exists()
    (tmp_path / "readme.txt").write_text("")
    assert ends("apply", "--name", lab.name, str(tmp_path / "readme.txt")) == 2


def test_an_interrupted_ask_tells_what_it_heard_and_shows_no_traceback(make_lab: MakeLab) -> None:
    lab = make_lab(nodes=1, routers=1, plain=True, settled=False)
    lab.host("client").spawn("answer", [sys.executable, "-m", "flock.lab.traffic", "serve", "me"])
    command = [*FLOCKCTL, "ask", "--name", lab.name, "--for", "60", "client", "127.0.0.1"]
    for patience in (2, 10, 40):  # seconds: on a busy machine it may not have asked before
        asking = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, process_group=0)
        with pytest.raises(subprocess.TimeoutExpired):
            asking.communicate(timeout=patience)
        subprocess.run(["kill", f"-{signal.SIGINT.value}", "--", f"-{asking.pid}"], check=True)  # as a terminal does
        out, err = asking.communicate(timeout=20)
        assert "Traceback" not in err
        if "me" in out:
            break
    assert "me" in out and "lost" in out
    assert err == "" and asking.returncode == 0


SLOW_TO_ASK = """
import os, pathlib, sys, time
if "flock.lab.traffic" in sys.orig_argv:
    pathlib.Path(__file__).with_name("loading").write_text(f"in group {os.getpgrp()}")
    time.sleep(60)
"""


def test_an_ask_that_is_interrupted_before_it_asked_shows_no_traceback_either(
    make_lab: MakeLab, tmp_path: Path
) -> None:
    lab = make_lab(nodes=1, routers=1, plain=True, settled=False)
    (tmp_path / "sitecustomize.py").write_text(SLOW_TO_ASK)
    command = [*FLOCKCTL, "ask", "--name", lab.name, "client", "127.0.0.1"]
    environment = os.environ | {"PYTHONPATH": str(tmp_path)}
    pipe = subprocess.PIPE
    asking = subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True, process_group=0, env=environment)
    loading = tmp_path / "loading"
    eventually(lambda: loading.exists() and loading.read_text(), what="it is about to ask")
    assert loading.read_text() != f"in group {asking.pid}", "who is told before it can listen says so with a traceback"
    os.killpg(asking.pid, signal.SIGINT)
    out, err = asking.communicate(timeout=60)
    assert (err, asking.returncode) == ("", 1) and out.startswith("lost")


SLOWLY = """
import sys, time
class Slow:
    def find_spec(self, name, *_):
        print(name, flush=True)
        time.sleep(0.05)
sys.meta_path.insert(0, Slow())
"""


def test_an_interrupt_while_flockctl_is_loaded_ends_it_without_a_word() -> None:
    """By its own signal, so that a script which called it ends as well."""
    command = [sys.executable, "-c", f"{SLOWLY}{FLOCKCTL[2]}", "--version"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as loading:
        assert loading.stdout is not None and "flock.cli.main\n" in iter(loading.stdout.readline, "")
        loading.send_signal(signal.SIGINT)
        assert loading.communicate(timeout=30)[1] == ""
    assert loading.returncode == -signal.SIGINT


def test_as_numbers_end_where_the_page_and_the_definition_say() -> None:
    assert values.asn(4294967294) == 4294967294
    with pytest.raises(ValueError, match="from 1 to 4294967294"):
        values.asn(4294967295)
