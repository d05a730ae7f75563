"""What flockctl asks for is what the agent answers: all of it, and nothing else."""

import argparse
import json
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from unittest.mock import Mock

import pytest

from flock.agent.admin import Admin
from flock.cli import main as flockctl

ELSEWHERE = {"lab", "cluster", "view", "router-config"}  # commands that ask no agent


@contextmanager
def refusing_agent(run_dir: Path) -> Iterator[list[str]]:
    """Refuses every request; the operations it was asked for."""
    asked: list[str] = []
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(run_dir / "flock.sock"))
        listener.listen()

        def serve() -> None:
            while True:
                connection, _ = listener.accept()
                with connection, connection.makefile("rwb") as line:
                    asked.append(json.loads(line.readline())["op"])
                    if asked[-1] == "over":
                        return
                    line.write(b'{"error": {"msg": "refused"}}\n')

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield asked
        finally:
            with socket.socket(socket.AF_UNIX) as last:
                last.connect(str(run_dir / "flock.sock"))
                last.sendall(b'{"op": "over"}\n')
            thread.join()


def command_lines(parser: argparse.ArgumentParser, *before: str) -> Iterator[list[str]]:
    """Every command with its positional arguments, without switches and with each of them."""
    below = [action for action in parser._actions if isinstance(action, argparse._SubParsersAction)]
    if below:
        for name, sub in below[0].choices.items():
            if name not in ELSEWHERE:
                yield from command_lines(sub, *before, name)
    if below and below[0].required:
        return
    positional = [action for action in parser._actions if not action.option_strings and action not in below]
    needed = ["x" for action in positional if action.nargs != "?"]
    yield [*before, *needed]
    for action in parser._actions:
        if action.option_strings and action.nargs == 0 and "--help" not in action.option_strings:
            yield [*before, *needed, action.option_strings[0]]


def test_every_command_asks_what_is_answered_and_every_answer_has_its_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "x").write_text("a file, for commands that read one")
    with refusing_agent(tmp_path) as asked:
        for line in command_lines(flockctl._parser()):
            with pytest.raises(SystemExit) as ended:
                flockctl.main(["--run-dir", str(tmp_path), *line])
            assert ended.value.code == 1, line
    assert {*asked} - {"over"} == {*Admin(Mock(), Mock()).operations()}
