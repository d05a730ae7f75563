"""The runtime's configuration: what is in it, who may read it, when it is written."""

import json
import subprocess
from pathlib import Path

import pytest

from flock.core.conflist import offered, render_conflist
from flock.edge.conflist import NAME, plugins_present, status_problem, supported_versions, write_conflist

EXECUTABLE = Path(__file__).parent.parent.parent / "build" / "flock"
GOLDEN = Path(__file__).parent / "golden"
SOCKET = Path("/run/flock/flock.sock")


OLD = ("0.3.0", "0.3.1", "0.4.0", "1.0.0")  # what reference plugins of 2022 say
NEW = (*OLD, "1.1.0")


def present(directory: Path) -> dict[str, tuple[str, ...]]:
    names = ("flock", "portmap", "bandwidth")
    return plugins_present({name: directory / name for name in names if (directory / name).exists()})


def plugin(directory: Path, name: str, *versions: str) -> None:
    answer = json.dumps({"cniVersion": "1.0.0", "supportedVersions": versions})
    (directory / name).write_text(f"#!/bin/sh\necho '{answer}'\n")
    (directory / name).chmod(0o755)


@pytest.mark.parametrize(
    ("name", "present"),
    [
        ("alone", {}),
        ("chained", dict.fromkeys(("flock", "portmap", "bandwidth", "ptp"), NEW)),
        ("old", {"portmap": OLD}),
    ],
)
def test_the_text_is_the_golden_one(name: str, present: dict[str, tuple[str, ...]]) -> None:
    text = render_conflist(socket=SOCKET, wait=30, plugins_present=present)
    assert text == (GOLDEN / f"{name}.conflist").read_text()


def test_the_executable_supports_every_version_it_offers() -> None:
    conflist = json.loads(render_conflist(socket=SOCKET, wait=30, plugins_present={}))
    assert conflist["cniVersion"] in conflist["cniVersions"]
    assert tuple(conflist["cniVersions"]) == supported_versions(EXECUTABLE)


def test_the_executable_takes_flocks_entry_as_its_configuration(tmp_path: Path) -> None:
    """As a runtime makes it: the entry with the name and version of the list.  There is no agent: the answer is 11."""
    conflist = json.loads(render_conflist(socket=tmp_path / "sock", wait=0, plugins_present={}))
    config = conflist["plugins"][0] | {"name": conflist["name"], "cniVersion": conflist["cniVersion"]}
    env = {"CNI_COMMAND": "DEL", "CNI_CONTAINERID": "x", "CNI_IFNAME": "eth0", "CNI_PATH": "/opt/cni/bin"}
    run = subprocess.run([EXECUTABLE], env=env, input=json.dumps(config), capture_output=True, text=True, timeout=60)
    assert json.loads(run.stdout)["code"] == 11


def test_plugins_are_chained_when_they_are_there(tmp_path: Path) -> None:
    assert present(tmp_path) == {}
    plugin(tmp_path, "portmap", "0.4.0", "1.0.0")
    plugin(tmp_path, "ptp", "1.0.0")
    assert present(tmp_path) == {"portmap": ("0.4.0", "1.0.0")}


def test_a_plugin_too_old_for_the_version_is_not_chained(tmp_path: Path) -> None:
    plugin(tmp_path, "portmap", "0.3.1", "0.4.0")
    plugin(tmp_path, "bandwidth", "1.0.0")
    assert present(tmp_path) == {"bandwidth": ("1.0.0",)}


@pytest.mark.parametrize("answer", ["", "not JSON", '{"supportedVersions": 7}', '{"supportedVersions": ["1.1.0"'])
def test_a_plugin_that_cannot_be_asked_here_is_chained_and_no_newer_version_offered(
    tmp_path: Path, answer: str
) -> None:
    (tmp_path / "portmap").write_text(f"#!/bin/sh\necho '{answer}'\n" if answer else "\x7fELF for another libc")
    (tmp_path / "portmap").chmod(0o755)
    found = present(tmp_path)
    assert found.keys() == {"portmap"}
    assert offered(found) == ("0.4.0", "1.0.0")


@pytest.mark.parametrize(
    ("said", "versions"),
    [
        ({}, ("0.4.0", "1.0.0", "1.1.0")),
        ({"portmap": NEW, "bandwidth": NEW}, ("0.4.0", "1.0.0", "1.1.0")),
        ({"portmap": OLD, "bandwidth": NEW}, ("0.4.0", "1.0.0")),
        ({"portmap": NEW, "bandwidth": ("1.0.0",)}, ("1.0.0",)),
        ({"portmap": NEW, "flock": OLD}, ("0.4.0", "1.0.0")),
        ({"portmap": NEW, "ptp": OLD}, ("0.4.0", "1.0.0", "1.1.0")),  # which is not in the list
    ],
)
def test_a_version_is_offered_if_all_in_the_list_know_it(
    said: dict[str, tuple[str, ...]], versions: tuple[str, ...]
) -> None:
    assert offered(said) == versions


def test_a_plugin_that_fails_status_says_why(tmp_path: Path) -> None:
    script = """#!/bin/sh
[ "$CNI_COMMAND $CNI_PATH" = "STATUS $(dirname "$0")" ] || exit 9
grep -q '"cniVersion": "1.1.0", "name": "flock", "type": "portmap"' || exit 9
echo '{"code": 50, "msg": "no iptables"}'; exit 1
"""
    (tmp_path / "portmap").write_text(script)
    (tmp_path / "portmap").chmod(0o755)
    assert status_problem(tmp_path / "portmap") == "no iptables (code 50)"
    plugin(tmp_path, "bandwidth", *NEW)
    assert status_problem(tmp_path / "bandwidth") == ""


def test_it_is_written_only_when_it_differs(tmp_path: Path) -> None:
    assert write_conflist(tmp_path, "{}\n") is True
    inode = (tmp_path / NAME).stat().st_ino
    assert write_conflist(tmp_path, "{}\n") is False
    assert (tmp_path / NAME).stat().st_ino == inode
    assert write_conflist(tmp_path, "{ }\n") is True
    assert [path.name for path in tmp_path.iterdir()] == [NAME]
