"""`flockctl view` as it is called: what it prints, where it listens, whom it tells the key."""

import os
import signal
import socket
import stat
import subprocess
from pathlib import Path
from typing import Any

from harness import BIN, eventually, run

VIEW = (str(BIN / "flockctl"), "view", "--http", "127.0.0.1:1")

BROWSER = """#!/bin/sh
echo "$1" > {seen}/argument
cat "${{1#file://}}" > {seen}/content
ls -ld "$(dirname "${{1#file://}}")" > {seen}/rights
touch {seen}/done
"""


def started(*options: str, **environment: str) -> "subprocess.Popen[str]":
    pipe = subprocess.PIPE
    return subprocess.Popen([*VIEW, *options], stdout=pipe, stderr=pipe, text=True, env=os.environ | environment)


def address(view: "subprocess.Popen[str]") -> str:
    assert view.stdout is not None
    return view.stdout.readline().strip()


def ended(view: "subprocess.Popen[str]") -> tuple[int, str]:
    view.send_signal(signal.SIGTERM)
    _, error = view.communicate(timeout=20)
    return view.returncode, error


def test_the_browser_is_led_to_the_page_without_showing_the_key_to_other_users(tmp_path: Path) -> None:
    browser, temporary = tmp_path / "browser", tmp_path / "tmp"
    temporary.mkdir()
    browser.write_text(BROWSER.format(seen=tmp_path))
    browser.chmod(stat.S_IRWXU)
    with started("--open", BROWSER=str(browser), TMPDIR=str(temporary)) as view:
        shown = address(view)
        eventually(lambda: (tmp_path / "done").exists(), what="a browser")
        assert ended(view) == (0, "")
    key = shown.split("/")[3]
    assert len(key) >= 32 and shown == f"{shown.partition(key)[0]}{key}/"
    assert key not in (tmp_path / "argument").read_text()
    assert shown in (tmp_path / "content").read_text()
    assert (tmp_path / "rights").read_text().startswith("drwx------")
    assert [*temporary.iterdir()] == []


def test_the_port_can_be_chosen_and_one_that_is_taken_is_named() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        done = run(*VIEW, "--port", port, check=False)
        assert (done.returncode, done.stdout) == (1, "") and f"cannot listen on 127.0.0.1:{port}" in done.stderr
    with started("--port", str(port)) as view:
        assert address(view).startswith(f"http://127.0.0.1:{port}/")
        assert ended(view) == (0, "")
    assert run(*VIEW, "--port", 70_000, check=False).returncode == 1


def refused(*options: Any) -> tuple[int, str]:
    done = run(*VIEW, *options, check=False)
    assert done.stdout == ""
    return done.returncode, done.stderr


def test_what_is_not_there_cannot_be_looked_at(tmp_path: Path) -> None:
    assert refused("--lab", "a", "--kubeconfig", "b")[0] == 2
    assert refused("--lab", "a", "b.tar.gz")[0] == 2
    code, error = refused("--lab", "there-is-none")
    assert code == 1 and "no lab" in error
    code, error = refused(tmp_path / "none.tar.gz")
    assert code == 1 and "No such file" in error
