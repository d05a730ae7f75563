"""What the executable and the agent both know, each in its own language: names, codes, versions and a time."""

import re

import pytest
from calling import ROOT

from flock.agent import flags
from flock.core.annotations import ANYCAST
from flock.core.cni import VERSIONS
from flock.core.conflist import render_conflist
from flock.core.errors import Code
from flock.edge import deferred_dels, servingfile

SOURCE = "\n".join(path.read_text() for path in sorted((ROOT / "cni").glob("*.[ch]")))


def defined(name: str) -> str:
    """What a macro stands for."""
    (found,) = re.findall(rf"^#define {name} (.*?)(?: /\*.*)?$", SOURCE, re.MULTILINE)
    return str(found)


def text(name: str) -> str:
    return defined(name)[1:-1]


def test_the_annotation_that_makes_it_wait_is_the_one_pods_have() -> None:
    assert text("ANYCAST") == rf"\"{ANYCAST}\""


def test_the_note_of_a_del_is_left_where_the_agent_looks() -> None:
    assert text("NOTES") == f"{deferred_dels.FOLDER}/"


def test_the_file_that_says_when_pods_could_be_taken_is_the_agents() -> None:
    assert text("SERVED") == servingfile.FILE
    assert float(defined("RESTART_S")) == servingfile.RESTART


def test_codes_have_the_same_names_and_numbers() -> None:
    (body,) = re.findall(r"enum code \{(.*?)\};", SOURCE, re.DOTALL)
    codes = {name: int(number) for name, number in re.findall(r"(\w+) = (\d+)", body)}
    assert codes
    assert codes.items() <= {code.name: int(code) for code in Code}.items()


def test_versions_are_those_the_agent_speaks() -> None:
    assert text("NEWEST_VERSION") == VERSIONS[-1]
    (listed,) = re.findall(r"supported_versions\[\] = \{(.*?)\};", SOURCE)
    assert (*re.findall(r'"([\d.]+)"', listed), VERSIONS[-1]) == VERSIONS
    (told,) = re.findall(r'supportedVersions\\":\[(.*?)\]', SOURCE)
    assert tuple(re.findall(r"[\d.]+", told)) == VERSIONS


@pytest.mark.parametrize("key", ["socket", "wait", "deferDel"])
def test_keys_of_the_conflist_are_those_that_are_read(key: str) -> None:
    assert f'.key = "{key}"' in SOURCE
    assert f'"{key}"' in render_conflist(socket=ROOT, wait=1, plugins_present={})


def test_without_a_conflist_of_ours_the_agent_is_where_it_is_by_default() -> None:
    settings = flags.parse(["--node", "n1"], {})
    assert text("DEFAULT_SOCKET") == str(settings.run_dir / "flock.sock")
    assert int(defined("DEFAULT_WAIT_MS")) == settings.cni_wait * 1000
