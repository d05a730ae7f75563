"""What `lab down` may remove: what a lab has claimed, found by a name that is one.  In directories of its own."""

from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from flock.cli.main import main
from flock.core.errors import FieldError, FlockError
from flock.lab import home as homes
from flock.lab import namespaces
from flock.lab.fabric import Lab, locate
from flock.lab.home import Home, Record
from flock.lab.names import lab_name
from flock.lab.topology import plan

ODD = ["../..", "..", ".", "", "/", "a/b", "a/../../b", "*", "t?", "[a-z]", "a.b", "UPPER", "a\n", "-a", "x" * 33]
WITH_A_LAB: list[list[str]] = [
    ["lab", "down", "--name"],
    ["lab", "status", "--name"],
    ["lab", "cut", "n1-r1", "--name"],
    ["check", "lab"],
    ["bundle", "--lab"],
    ["view", "--lab"],
]


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where labs are found by name; outside of it lies what nobody may lose."""
    (tmp_path / "thesis.txt").write_text("years of work")
    monkeypatch.setattr(homes, "LONGEST_SOCKET", 1000)  # nobody listens here
    monkeypatch.setattr(homes, "DEFAULT_ROOT", tmp_path / "run/flock-lab")
    return tmp_path / "run/flock-lab"


@pytest.fixture
def never(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is as much as looked for: whoever gets that far has not refused the name."""

    def looked(*_: object, **__: object) -> None:
        raise AssertionError("the name was not refused before it was used")

    for owner, name in ((homes.shutil, "rmtree"), (Path, "iterdir"), (Path, "glob"), (Path, "unlink"), (Path, "rmdir")):
        monkeypatch.setattr(owner, name, looked)


def claimed(home: Home, name: str) -> Home:
    chosen = plan(nodes=1, routers=1, topology="flat")
    home.create(Record(name=name, topology="flat", router="bird", plain=True, cni="", plan=chosen))
    return home


@pytest.mark.usefixtures("root", "never")
@pytest.mark.parametrize("name", ODD)
@pytest.mark.parametrize(
    "use",
    [
        lambda name: locate(name=name, directory=None),
        lambda name: Home.named(name),
        lambda name: namespaces.present(name),
        lambda name: namespaces.netns(name, "n1"),
        lambda name: Lab.down(name=name, home=Home(Path("/nowhere"))),
    ],
)
def test_what_is_no_name_is_refused_before_anything_is_looked_for(use: Callable[[str], object], name: str) -> None:
    with pytest.raises(FieldError, match="is not a name: up to 32 of a-z, 0-9 and -"):
        use(name)


@pytest.mark.usefixtures("root", "never")
@pytest.mark.parametrize("argv", WITH_A_LAB, ids=" ".join)
def test_every_command_that_takes_a_lab_refuses_what_is_no_name_as_wrong_usage(
    argv: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main([*argv, "../.."])
    assert ended.value.code == 2
    assert f"{argv[-1]}{' NAME' * (argv[-1] == 'lab')}: '../..' is not a name" in capsys.readouterr().err


def test_a_name_is_what_can_be_told_apart_in_a_path_and_a_namespace() -> None:
    assert [lab_name(name) for name in ("lab", "a", "t1-2", "0", "x" * 32)] == ["lab", "a", "t1-2", "0", "x" * 32]


def test_a_directory_that_no_lab_claimed_stays_as_it_is_wherever_it_is(root: Path) -> None:
    (root / "lab/n1").mkdir(parents=True)
    (root / "lab/n1/notes").write_text("mine")
    for home in (Home.named("lab"), Home(root / "lab"), Home(root.parents[1])):
        with pytest.raises(FlockError, match=r"has no lab\.json: no lab made it, and it stays as it is"):
            home.remove()
    assert (root / "lab/n1/notes").read_text() == "mine"
    assert (root.parents[1] / "thesis.txt").exists()


def test_an_up_that_was_killed_before_its_claim_leaves_nothing_that_down_cannot_remove(root: Path) -> None:
    for left in ((), (".lab.json.4711.tmp",)):
        (root / "lab").mkdir(parents=True)
        for name in left:
            (root / "lab" / name).write_text("{")
        Home.named("lab").remove()
        assert not root.exists()


def test_a_claimed_directory_goes_and_what_links_in_it_lead_to_stays(root: Path) -> None:
    home = claimed(Home.named("lab"), "lab")
    (home.path / "elsewhere").symlink_to(root.parents[1])
    (home.manifests / "thesis").symlink_to(root.parents[1])
    home.remove()
    assert not root.exists()
    assert (root.parents[1] / "thesis.txt").exists()


@pytest.mark.usefixtures("root")
@pytest.mark.parametrize("name", ["*", "../..", ""])
def test_a_record_with_another_name_than_a_labs_is_none(tmp_path: Path, name: str) -> None:
    """It would be looked for among all namespaces of this machine."""
    home = claimed(Home(tmp_path / "lab"), "lab")
    written = msgspec.json.decode((home.path / "lab.json").read_bytes())
    (home.path / "lab.json").write_bytes(msgspec.json.encode(written | {"name": name}))
    with pytest.raises(FlockError, match=r"lab\.json is not a lab's: "):
        locate(name=None, directory=home.path)
    assert home.manifests.is_dir()
