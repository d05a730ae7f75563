"""What a page lists is what the programs have, no more and no less."""

import re
from pathlib import Path
from unittest.mock import Mock

import pytest

from flock.agent.admin import Admin
from flock.agent.flags import FLAGS
from flock.core.errors import Code
from flock.core.faults import Point
from flock.core.kinds import KINDS

ROOT = Path(__file__).parent.parent.parent
SOURCES = {path: path.read_text() for path in ROOT.glob("src/flock/**/*.py")}


def page(name: str) -> str:
    return (ROOT / "docs" / name).read_text()


def source(name: str) -> str:
    return (ROOT / "src" / "flock" / name).read_text()


def section(text: str, title: str) -> str:
    """From a heading to the next one of its level or above."""
    level = re.search(rf"^(#+) {re.escape(title)}$", text, re.MULTILINE)
    assert level, title
    rest = text[level.end() :]
    end = re.search(rf"^#{{1,{len(level[1])}}} ", rest, re.MULTILINE)
    return rest[: end.start()] if end else rest


def test_every_flag_of_the_agent_is_on_its_page_and_no_other() -> None:
    flags = {name for name, *_ in FLAGS} | {"--version", "--help"}
    listed = set(re.findall(r"--[a-z][\w-]+", section(page("flock-agent.md"), "Flags").split("|---|---|---|")[1]))
    assert flags <= listed
    assert listed <= flags


def test_defaults_of_flags_are_the_documented_ones() -> None:
    rows = dict(re.findall(r"^\| `(--[\w-]+)[^`]*` \| `?([^`|]*?)`? \|", page("flock-agent.md"), re.MULTILINE))
    for name, _, default, *_ in FLAGS:
        assert not default or rows[name] == default, name


def test_every_operation_of_the_socket_is_on_the_page_about_the_wire() -> None:
    wire = section(page("cni.md"), "The wire")
    listed = set(re.findall(r"`([a-z][a-z.]*)`", wire[wire.index("`flockctl`") :])) - {"flockctl", "args"}
    assert set(Admin(Mock(), Mock()).operations()) == listed


def test_every_code_has_its_row() -> None:
    rows = {int(code) for code in re.findall(r"^\| (\d+) \|", page("errors.md"), re.MULTILINE)}
    assert rows == {int(code) for code in Code}


def test_every_metric_is_listed_and_no_other() -> None:
    told = {name for text in SOURCES.values() for name in re.findall(r'"(flock_[a-z_]+)"', text)}
    listed = set(re.findall(r"`(flock_[a-z_]+)", section(page("flock-agent.md"), "Pages")))
    assert told == listed


def test_every_kind_of_object_is_named_where_manifests_are_explained() -> None:
    text = section(page("flock-agent.md"), "Manifests")
    assert [kind.kind for kind in KINDS if not re.search(rf"\b{kind.kind}s?\b", text)] == []


@pytest.mark.parametrize("place", ["state-dir", "run-dir", "bird-dir", "cni-conf-dir"])
def test_files_of_the_agent_are_listed(place: str) -> None:
    assert f"`<{place}>/" in section(page("flock-agent.md"), "Files")


def test_files_the_agent_keeps_are_listed_by_name() -> None:
    agents = (text for path, text in SOURCES.items() if not {"lab", "view", "cli"} & set(path.parts))
    kept = {name for text in agents for name in re.findall(r'"([a-z0-9-]+\.(?:json|conf|conflist|sock|ctl))"', text)}
    files = section(page("flock-agent.md"), "Files")
    assert sorted(name for name in kept if name not in files) == []


def test_files_of_the_agent_that_pages_speak_of_are_listed() -> None:
    listed = set(re.findall(r"`(<[a-z-]+>/[\w.-]*)", section(page("flock-agent.md"), "Files")))
    for path in (ROOT / "docs").glob("*.md"):
        assert set(re.findall(r"(<(?:state|run|bird|cni-conf)-dir>/\w[\w.-]*\w)", path.read_text())) <= listed, path


def test_what_is_said_of_faults_for_tests_is_so() -> None:
    text = section(page("flock-agent.md"), "For tests")
    assert "@3" in text
    assert "!" not in text
    assert Point.NETLINK  # listed in the module the page names
    assert "src/flock/core/faults.py" in text


def test_exit_codes_of_flockctl_are_those_it_has() -> None:
    codes = {int(code) for code in re.findall(r"exit_code = (\d)", source("edge/rpc_client.py"))}
    rows = dict(re.findall(r"^\| (\d) \| (.*) \|$", section(page("flockctl.md"), "Exit codes"), re.MULTILINE))
    assert codes <= {int(code) for code in rows}
    assert "no agent answers" in rows["3"]
    assert "could not serve" not in rows["3"]
