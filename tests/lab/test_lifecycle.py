"""Up and down: nothing is left behind, nobody else is disturbed."""

import subprocess
import sys
from pathlib import Path

import pytest
from lab_making import MakeLab, remove, traces

from flock.cli.main import main
from flock.core.errors import FieldError, FlockError
from flock.lab import namespaces
from flock.lab.fabric import Lab, locate
from flock.lab.home import DEFAULT_ROOT, Home
from flock.lab.hosts import wait_until

UP = "import sys; from flock.cli.main import main; main(['lab', *sys.argv[1:]])"


@pytest.mark.parametrize("router", ["bird", "frr", "gobgp", "openbgpd"])
def test_down_leaves_nothing_behind_and_may_be_repeated(make_lab: MakeLab, router: str) -> None:
    lab = make_lab(nodes=1, routers=1, router=router, settled=False)
    everyone = [pid for space in namespaces.present(lab.name) for pid in namespaces.pids(space)]
    assert len(everyone) >= 3  # a router, the client and a node run something
    assert traces(lab.name)
    for _ in range(2):
        remove(lab.name)
        assert traces(lab.name) == []


def test_down_removes_what_someone_runs_inside(make_lab: MakeLab) -> None:
    lab = make_lab(nodes=1, routers=1, settled=False)
    guest = subprocess.Popen(lab.host("n1").inside(["sleep", "600"]))
    try:
        remove(lab.name)
        guest.wait(10)
    finally:
        guest.kill()
        guest.wait()


@pytest.mark.parametrize("milestone", ["lab.json", "manifests/nodeconfig-n1.json", "r1/zebra.process", "n1/bird.log"])
def test_down_cleans_up_after_an_up_that_was_killed(lab_name: str, milestone: str) -> None:
    command = [sys.executable, "-c", UP, "up", "--plain", "--name", lab_name, "--router", "frr"]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as up:
        assert wait_until((DEFAULT_ROOT / lab_name / milestone).exists, timeout=20, pause=0.001)
        up.kill()
    with pytest.raises(SystemExit) as ended:
        main(["lab", "down", "--name", lab_name])
    assert ended.value.code == 0
    assert traces(lab_name) == []


def test_two_labs_live_side_by_side_and_one_goes_without_the_other(make_lab: MakeLab) -> None:
    one, other = make_lab(nodes=1, routers=1), make_lab(nodes=1, routers=1)
    remove(one.name)
    assert traces(one.name) == []
    assert other.missing_sessions() == ()


def test_a_lab_whose_name_begins_another_ones_does_not_take_it_down(make_lab: MakeLab) -> None:
    short = make_lab(nodes=1, routers=1, settled=False)
    longer = make_lab(nodes=1, routers=1, name=f"{short.name}-b")
    remove(short.name)
    assert longer.missing_sessions() == ()


def test_a_second_up_of_the_same_name_is_refused(make_lab: MakeLab, tmp_path: Path) -> None:
    lab = make_lab(nodes=1, routers=1, settled=False)
    with pytest.raises(FieldError, match="there already"):
        Lab.up(name=lab.name, directory=tmp_path / "other", plain=True)
    assert not (tmp_path / "other").exists()


def test_a_directory_with_something_in_it_is_refused_and_kept(lab_name: str, tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("years of work")
    with pytest.raises(FieldError, match="not empty"):
        Lab.up(name=lab_name, directory=tmp_path, plain=True)
    with pytest.raises(FlockError, match="stays as it is"):
        Lab.down(name=lab_name, home=Home(tmp_path))
    assert (tmp_path / "thesis.txt").exists()


def test_a_lab_is_found_by_its_directory_alone(make_lab: MakeLab, tmp_path: Path) -> None:
    lab = make_lab(nodes=1, routers=1, directory=tmp_path / "lab", settled=False)
    name, home = locate(name=None, directory=tmp_path / "lab")
    assert name == lab.name
    Lab.down(name=name, home=home)
    assert traces(lab.name, tmp_path / "lab") == []


def test_a_directory_without_a_lab_names_none() -> None:
    with pytest.raises(FlockError, match="no lab"):
        locate(name=None, directory=Path("/nowhere"))


@pytest.mark.parametrize("name", ["", "UPPER", "a.b", "a/b", "x" * 33, "-a"])
def test_a_name_that_could_not_be_told_apart_is_refused(name: str) -> None:
    with pytest.raises(FieldError) as refused:
        Lab.up(name=name, plain=True)
    assert refused.value.field == "--name"
