"""What a node can tell of itself for a bug report, part by part, without what is secret.

A part that cannot be had says why in its place: a node about which there is something to report is seldom a whole one.
What is secret: `cli/knownsecrets.py`.
"""

import http.client
import platform
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec
import yaml

import flock
from flock.cli.knownsecrets import known_secrets
from flock.core.redacting import Redactor
from flock.core.telling import told_of
from flock.edge.bird.asking import ask_bird
from flock.edge.kernel.told import links_text, routes_text
from flock.edge.manifestfile import is_manifest
from flock.edge.rpc_client import AgentError, ask

PATIENCE = 10.0  # seconds for each part
SILENCE = 1.5  # seconds without an event: what is known has been told
LONGEST = 4 << 20  # bytes of a part
BIRD_QUESTIONS = ("show status", "show protocols all", "show bfd sessions", "show route count", "show route")

Parts = Mapping[str, bytes]


class Where(msgspec.Struct, frozen=True, kw_only=True):
    """Where a node has its things."""

    run_dir: Path
    bird_dir: Path
    http: str
    logs: tuple[Path, ...] = ()  # else the journal's
    manifests: Path | None = None


def gathered(where: Where) -> tuple[str, Parts]:
    """The node's name, and its files by name."""
    status, manifests = _status(where), list(_manifests(where.manifests))
    redactor = Redactor(known_secrets(where.bird_dir, [status, *manifests]))
    makers: dict[str, Callable[[], object]] = {
        "status.json": lambda: status,
        "happenings.jsonl": lambda: list(_happenings(where.http)),
        "check.json": lambda: ask(where.run_dir, "check", timeout=PATIENCE),
        "bird.conf": lambda: (where.bird_dir / "bird.conf").read_text(errors="replace"),
        "bird.txt": lambda: ask_bird(where.run_dir / "bird.ctl", BIRD_QUESTIONS, patience=PATIENCE),
        "links.txt": links_text,
        "routes.txt": routes_text,
        "nft.txt": lambda: _run("nft", "list", "ruleset"),
        "log.txt": lambda: _log(where.logs),
        "versions.txt": _versions,
    }
    parts: dict[str, bytes] = {}
    notes: list[str] = []
    for name, make in makers.items():
        try:
            value = make()
            if isinstance(value, AgentError):
                raise value
            parts[name] = encoded(redactor, value, lines=name.endswith(".jsonl"))
        except Exception as error:  # whatever it is, it belongs into the report
            notes.append(f"{name}: {type(error).__name__}: {getattr(error, 'msg', error)}\n")
    if notes:
        parts["notes.txt"] = redactor.text("".join(notes)).encode()
    parts |= {f"objects/{name}": content for name, content in objects(redactor, iter(manifests)).items()}
    return (status.get("node") if isinstance(status, dict) else "") or platform.node(), parts


def encoded(redactor: Redactor, value: object, *, lines: bool = False) -> bytes:
    """A part as a file, redacted and bounded."""
    if isinstance(value, str):
        text = redactor.text(value).encode()
        return text if len(text) <= LONGEST else b"(cut: the beginning is left out)\n" + text[-LONGEST:]
    if lines and isinstance(value, list):
        return b"".join(msgspec.json.encode(redactor.value(row)) + b"\n" for row in value)
    return msgspec.json.encode(redactor.value(value)) + b"\n"


def objects(redactor: Redactor, given: Iterator[dict[str, Any]]) -> dict[str, bytes]:
    """A file for each kind, of what is told of its objects."""
    found: dict[str, list[dict[str, Any]]] = {}
    for each in given:
        if (told := told_of(each)) is not None:
            found.setdefault(f"{told['kind'].lower()}s.json", []).append(told)
    return {name: encoded(redactor, rows) for name, rows in found.items()}


def _status(where: Where) -> dict[str, Any] | AgentError:
    """The whole of it, from the agent's page; what its socket tells where there is no page."""
    errors = (OSError, http.client.HTTPException, msgspec.MsgspecError)
    with suppress(*errors), _page(where.http, "/status.json") as answer:
        return msgspec.json.decode(answer.read(), type=dict[str, Any])
    try:
        found: dict[str, Any] = ask(where.run_dir, "status", timeout=PATIENCE)
        return found | {"config": ask(where.run_dir, "config", timeout=PATIENCE), "at": time.time()}
    except AgentError as error:
        return error


def _happenings(address: str) -> Iterator[dict[str, Any]]:
    """What the agent remembers: it is told at once, then comes silence."""
    deadline = time.monotonic() + PATIENCE
    with _page(address, "/happenings", silence=SILENCE) as events:
        number = 0
        with suppress(TimeoutError):
            while time.monotonic() < deadline and (line := events.readline()):
                if line.startswith(b"id: "):
                    number = int(line[4:])
                elif line.startswith(b"data: "):
                    yield msgspec.json.decode(line[6:], type=dict[str, Any]) | {"number": number}
                elif line.startswith(b":"):
                    return


def _page(address: str, path: str, *, silence: float = PATIENCE) -> http.client.HTTPResponse:
    connection = http.client.HTTPConnection(address, timeout=silence)
    connection.request("GET", path)
    answer = connection.getresponse()
    if answer.status != 200:
        raise http.client.HTTPException(f"{path}: {answer.status} {answer.reason}")
    return answer


def _run(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=False, errors="replace")
    return done.stdout + (f"\n{command[0]}: {done.stderr}" if done.stderr else "")


def _log(files: Sequence[Path]) -> str:
    if files:
        return "".join(f"--- {path.name}\n{_tail(path)}" for path in files)
    if shutil.which("journalctl") is None:
        return "there is no journal here\n"
    return _run("journalctl", "--no-pager", "--no-hostname", "-n", "5000", "-o", "short-iso", "-u", "flock-*")


def _tail(path: Path) -> str:
    """Whole lines: of half a line nobody could tell whether it is a password."""
    with path.open("rb") as file:
        skipped = max(0, path.stat().st_size - LONGEST // 2) if path.is_file() else 0
        if skipped:
            file.seek(skipped - 1)
            file.readline()
        return file.read(LONGEST).decode(errors="replace")


def _versions() -> str:
    lines = [f"flock {flock.__version__}", f"python {platform.python_version()}", f"kernel {platform.release()}"]
    for command in (("bird", "--version"), ("nft", "--version")):
        with suppress(OSError, subprocess.TimeoutExpired):
            lines.append(_run(*command).strip())
    with suppress(OSError):
        lines.append(Path("/etc/os-release").read_text())
    return "\n".join(lines) + "\n"


def _manifests(directory: Path | None) -> Iterator[dict[str, Any]]:
    if directory is None:
        return
    for path in sorted(directory.glob("*")):  # none if there is no such directory
        with suppress(OSError, ValueError, yaml.YAMLError, RecursionError):
            if not is_manifest(path.name):
                continue
            for document in yaml.load_all(path.read_text(), Loader=yaml.CSafeLoader):
                if isinstance(document, dict):
                    items = document.get("items") if document.get("kind") == "List" else [document]
                    yield from (item for item in items or () if isinstance(item, dict))
