"""What pages, comments and docstrings name is there: files, flags, commands, annotations, events, targets, headings."""

import argparse
import re
from collections.abc import Callable, Iterator
from itertools import chain
from pathlib import Path

import pytest

from flock.agent import flags
from flock.cli import installer
from flock.cli import main as flockctl
from flock.core.annotations import ANNOTATIONS, OF_PODS
from flock.core.model import PREFIX

ROOT = Path(__file__).parent.parent.parent
MADE = {".venv", ".git", "build", "__pycache__"}
TREE = [path.relative_to(ROOT) for path in ROOT.rglob("*") if path.is_file() and not MADE & {*path.parts}]
# Each file and folder, by every way of writing its path that leaves out where it begins.
KNOWN = {"/".join(path.parts[i:j]) for path in TREE for j in range(1, len(path.parts) + 1) for i in range(j)}
PAGES = sorted(path for path in TREE if path.suffix == ".md" and path.parts[0] in {"docs", path.name})
SOURCES = sorted(path for path in TREE if path.parts[0] in {"src", "cni"} and path.suffix in {".py", ".c", ".h"})
BESIDE = sorted(path for path in TREE if path.parts[0] in {"deploy", "demo", "e2e", "bench"} and path.suffix != ".pyc")

LABELS = {"agent", "uninstall", "created-by", "check"}  # of Nodes, NodeConfigs and Namespaces, under the same prefix
# Others' flags that pages speak of by themselves, and those of the benchmarks.
OF_PODMAN = {"--ip", "--mac-address", "--network", "--name"}
OF_OTHERS = {
    "--allocate-node-cidrs",
    "--build-arg",
    "--set",
    "--validate",
    "--only",
    "--python-version",
    *OF_PODMAN,
    "--view-seconds",
}
OF_ALL = {"--help", "--version"}


def text(path: Path) -> str:
    return (ROOT / path).read_text(errors="replace")


def named(path: Path) -> str:
    return str(path)


@pytest.mark.parametrize("path", [*PAGES, *SOURCES], ids=named)
def test_files_that_are_named_exist(path: Path) -> None:
    found = set(re.findall(r"(?<![\w/.*<>-])((?:[\w-]+/)*[\w-]+\.(?:py|c|h))\b(?!\.)", text(path)))
    assert sorted(name for name in found if name not in KNOWN and not name.startswith("linux/")) == []


def test_every_room_of_the_agent_and_its_edges_is_on_the_map() -> None:
    shown = set(re.findall(r"[\w-]+\.py", text(Path("docs/design.md"))))
    rooms = [path for path in SOURCES if {"agent", "edge"} & {*path.parts} and path.name != "__init__.py"]
    assert rooms
    assert [str(path) for path in rooms if path.name not in shown] == []


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_folders_that_are_named_exist(page: Path) -> None:
    found = re.findall(
        r"`((?:src|core|edge|agent|cli|lab|tests|cni|deploy|docs|demo|e2e|scripts)/[\w/.-]*)`", text(page)
    )
    assert sorted(name for name in found if name.rstrip("/") not in KNOWN) == []


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_links_lead_to_a_page_and_a_heading_of_it(page: Path) -> None:
    for target, heading in re.findall(r"\]\(([^)#:\s]*)(?:#([^)\s]*))?\)", text(page)):
        there = (ROOT / page).parent / target if target else ROOT / page
        assert there.exists(), target
        if heading:
            assert heading in {*map(anchor, re.findall(r"^#+ (.*)$", there.read_text(), re.MULTILINE))}, heading


def anchor(heading: str) -> str:
    """As GitHub names it."""
    return re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-")


# --- programs -----------------------------------------------------------------------------------------------


def commands(parser: argparse.ArgumentParser, *before: str) -> Iterator[tuple[tuple[str, ...], set[tuple[str, ...]]]]:
    """Every command with its options in all their spellings, those that its parents take included."""
    own = {tuple(action.option_strings) for action in parser._actions if action.option_strings}
    below = [action for action in parser._actions if isinstance(action, argparse._SubParsersAction)]
    for name, sub in below[0].choices.items() if below else ():
        for command, options in commands(sub, *before, name):
            yield command, options | own
    if not below:
        yield before, own


COMMANDS = dict(commands(flockctl._parser()))


def offered(parse: Callable[[list[str]], object], capsys: pytest.CaptureFixture[str]) -> set[str]:
    """The flags of a program, as it lists them itself."""
    with pytest.raises(SystemExit):
        parse(["--help"])
    return set(re.findall(r"^  (?:-\w, )?(--[a-z-]+)", capsys.readouterr().out, re.MULTILINE)) | {"--help"}


def synopsis(page: str) -> str:
    """The indented lines at the top of a page."""
    return "\n".join(re.findall(r"^    (.*)$", text(Path("docs") / page).partition("\n## ")[0], re.MULTILINE))


@pytest.mark.parametrize(("page", "lab"), [("flockctl.md", False), ("lab.md", True)])
def test_commands_and_their_options_are_those_at_the_top_of_their_page(page: str, lab: bool) -> None:
    mine = {command: options for command, options in COMMANDS.items() if (command[0] == "lab") is lab}
    listed = synopsis(page)
    words = set(re.findall(r"[\w-]+", listed))
    assert [command for command in mine if not words >= {*command}] == []
    options = {spellings for options in mine.values() for spellings in options}
    spoken_of = set(re.findall(r"(?<![\w-])--?[a-z][a-z-]*", text(Path("docs") / page))) | OF_ALL
    assert [spellings for spellings in options if not spoken_of & {*spellings}] == []
    assert set(re.findall(r"--[a-z][a-z-]*", listed)) <= {*chain(*options)}
    for first in re.findall(r"flockctl (?:\[--run-dir DIR\] )?([\w-]+(?: \| [\w-]+)*)", listed):
        assert {*first.split(" | ")} <= {command[0] for command in COMMANDS}


def test_every_flag_of_the_installer_is_on_its_page_and_no_other(capsys: pytest.CaptureFixture[str]) -> None:
    rows = re.findall(r"^\| (`--.*?) \|", text(Path("docs/flock-installer.md")), re.MULTILINE)
    assert {flag for row in rows for flag in re.findall(r"--[a-z-]+", row)} == offered(installer.parse, capsys)


def test_flags_that_pages_speak_of_are_those_of_a_program(capsys: pytest.CaptureFixture[str]) -> None:
    known = offered(flags.parse, capsys) | offered(installer.parse, capsys) | OF_OTHERS
    known |= {*chain(*chain(*COMMANDS.values()))}
    for page in PAGES:
        assert sorted({*re.findall(r"`(--[a-z][a-z-]+)", text(page))} - known) == [], page


def test_variables_that_pages_speak_of_are_read(capsys: pytest.CaptureFixture[str]) -> None:
    ours = offered(flags.parse, capsys) | offered(installer.parse, capsys)
    known = {"FLOCK_" + flag.removeprefix("--").replace("-", "_").upper() for flag in ours} | {"FLOCK_FAULT"}
    known |= set(re.findall(r"FLOCK_\w+", text(Path("Makefile"))))
    for page in PAGES:
        assert sorted({*re.findall(r"\bFLOCK_\w+", text(page))} - known) == [], page


def test_targets_that_pages_speak_of_are_in_the_makefile() -> None:
    targets = " ".join(re.findall(r"^([a-z0-9 -]+):", text(Path("Makefile")), re.MULTILINE)).split()
    for page in PAGES:
        assert {*re.findall(r"`make ([a-z0-9-]+)", text(page))} <= set(targets), page


# --- what others write and read -----------------------------------------------------------------------------


@pytest.mark.parametrize("path", [*PAGES, *SOURCES, *BESIDE], ids=named)
def test_names_under_our_prefix_are_annotations_or_labels_we_know(path: Path) -> None:
    known = {name.partition("/")[2] for name in ANNOTATIONS} | LABELS
    found = set(re.findall(rf"{re.escape(PREFIX)}/([\w-]*\w)", text(path))) - {"v1alpha1", "bgp"}
    assert found <= known


def test_only_one_module_makes_names_of_annotations() -> None:
    """A label, a class of Services and versions of our API are made of the prefix too."""
    makes = re.compile(r'\{PREFIX\}/(?!v1alpha1|created-by|bgp)|"flock\.fritzlab\.net/')
    assert [str(path) for path in SOURCES if path.suffix == ".py" and makes.search(text(path))] == [
        "src/flock/core/annotations.py",
        "src/flock/core/podrequest.py",
    ]  # the latter to find those that nobody knows


def test_an_annotation_is_understood_where_the_table_says() -> None:
    constants = {
        value: name
        for name, value in vars(__import__("flock.core.annotations", fromlist="_")).items()
        if isinstance(value, str)
    }
    for key, annotation in ANNOTATIONS.items():
        for module in annotation.understood_by:
            assert re.search(rf"\b{constants[key]}\b", text(Path("src/flock") / module)), (key, module)


def test_the_table_of_pods_annotations_lists_all_of_them() -> None:
    rows = re.findall(r"^\| (`.*?) \|", text(Path("docs/annotations.md")).partition("\n## ")[0], re.MULTILINE)
    listed = {f"{PREFIX}/{name}" for row in rows for name in re.findall(r"`([\w-]+)`", row)}
    assert listed == OF_PODS


@pytest.mark.parametrize(
    ("kind", "page"), [("Pod", "annotations.md"), ("NodeConfig", "nodeconfig.md"), ("NetworkPolicy", "policy.md")]
)
def test_an_annotation_is_on_the_page_about_its_objects(kind: str, page: str) -> None:
    names = {name.partition("/")[2] for name, annotation in ANNOTATIONS.items() if kind in annotation.of}
    assert names <= set(re.findall(rf"[`/]({'|'.join(names)})\b", text(Path("docs") / page)))


def test_events_and_alerts_that_pages_speak_of_are_reported() -> None:
    said = {name for path in SOURCES for name in re.findall(r'"(Flock[A-Z]\w+)"', text(path))}
    said |= set(re.findall(r"alert: (\w+)", text(Path("deploy/monitoring/alerts.yaml"))))
    for page in PAGES:
        assert {*re.findall(r"\bFlock[A-Z][a-z]\w+", text(page))} <= said, page
