"""What a stand-in notes of a plugin's calls, and what is made of the notes."""

import os
import subprocess
import time
from pathlib import Path

import pytest

from contenders import POOL4, reference_conflist
from launching import BenchError
from timed import AWAY, Call, Cost, Summary, read_calls, stand_in, succeeded

ROOT = Path(__file__).parents[2]
ENVIRONMENT = {"CNI_COMMAND": "ADD", "CNI_CONTAINERID": "c1", "PATH": os.defpath}


@pytest.fixture
def notes(tmp_path: Path) -> Path:
    return tmp_path / "notes"


@pytest.fixture
def program(tmp_path: Path, notes: Path) -> Path:
    """The stand-in, noting where no other does."""
    program = tmp_path / "timed"
    source = ROOT / "bench/timed.c"
    subprocess.run(["gcc", "-Wall", "-Werror", f'-DNOTES="{notes}"', "-o", program, source], check=True)
    return program


@pytest.fixture
def plugin(tmp_path: Path) -> Path:
    """One that says what it was told, and ends with what its argument says."""
    plugin = tmp_path / "plugin"
    plugin.write_text('#!/bin/sh\necho "$CNI_COMMAND $(cat)"\nexit ${1:-0}\n')
    plugin.chmod(0o755)
    return plugin


def call(plugin: Path, *argv: str, environment: dict[str, str] = ENVIRONMENT) -> "subprocess.CompletedProcess[str]":
    return subprocess.run([plugin, *argv], input="config", env=environment, capture_output=True, text=True)


def noted(
    container: str, *, plugin: str = "flock", verb: str = "ADD", start: int = 0, ms: int = 1, status: int = 0
) -> Call:
    return Call(plugin, verb, container, start, start + ms * 1_000_000, status)


# --- the stand-in ---


def test_a_plugin_that_is_timed_does_what_it_did_and_its_call_is_noted(
    program: Path, plugin: Path, notes: Path
) -> None:
    stand_in(program, plugin)
    before = time.monotonic_ns()
    done = call(plugin)
    assert (done.stdout, done.returncode) == ("ADD config\n", 0)
    (found,) = read_calls(notes)
    assert (found.plugin, found.verb, found.container, found.status) == ("plugin", "ADD", "c1", 0)
    assert before <= found.start <= found.end <= time.monotonic_ns()


def test_a_call_that_fails_fails_as_before_and_is_no_success(program: Path, plugin: Path, notes: Path) -> None:
    stand_in(program, plugin)
    assert call(plugin, "3").returncode == 3
    (found,) = read_calls(notes)
    assert os.waitstatus_to_exitcode(found.status) == 3
    assert not succeeded([found], plugin="plugin", verb="ADD")


def test_a_plugin_is_not_put_before_itself(program: Path, plugin: Path) -> None:
    stand_in(program, plugin)
    stand_in(program, plugin)
    assert plugin.with_name("plugin" + AWAY).read_text().startswith("#!/bin/sh")
    assert call(plugin).stdout == "ADD config\n"


def test_a_call_goes_on_where_nothing_can_be_noted(program: Path, plugin: Path, notes: Path) -> None:
    stand_in(program, plugin)
    notes.mkdir()
    assert call(plugin).stdout == "ADD config\n"


def test_calls_at_once_are_noted_each_on_a_line_of_its_own(program: Path, plugin: Path, notes: Path) -> None:
    stand_in(program, plugin)
    ids = [f"c{number}" for number in range(20)]
    environments = [{**ENVIRONMENT, "CNI_CONTAINERID": name} for name in ids]
    silent = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL}
    running = [subprocess.Popen([plugin], env=environment, **silent) for environment in environments]
    assert not any(process.wait(60) for process in running)
    assert sorted(found.container for found in read_calls(notes)) == sorted(ids)


# --- what is made of notes ---


def test_without_a_file_there_were_no_calls(notes: Path) -> None:
    assert read_calls(notes) == []


def test_calls_from_before_are_left_out(notes: Path) -> None:
    notes.write_text("flock ADD old 10 20 0\nflock ADD new 15 30 0\n")
    assert read_calls(notes, since=15) == [Call("flock", "ADD", "new", 15, 30, 0)]


@pytest.mark.parametrize("line", ["", "flock ADD c1 1 2", "flock ADD c1 one 2 0"])
def test_what_is_no_note_is_said(notes: Path, line: str) -> None:
    notes.write_text(line + "\n")
    with pytest.raises(BenchError, match="not a note"):
        read_calls(notes)


def test_of_a_containers_calls_the_first_that_succeeded_counts() -> None:
    calls = [noted("a", status=256), noted("a", ms=5), noted("a", ms=1), noted("b", ms=2)]
    others = [noted("c", plugin="ptp"), noted("d", verb="DEL")]
    assert succeeded([*others, *calls], plugin="flock", verb="ADD") == [calls[1], calls[3]]


def test_a_summary_has_samples_their_sum_and_the_time_from_first_to_last() -> None:
    calls = [noted(str(ms), start=ms * 1_000_000, ms=ms) for ms in range(100, 0, -1)]
    assert Summary.of(calls) == Summary(count=100, p50=50, p95=95, total=5050, elapsed=199)


def test_a_life_costs_what_was_spent_above_what_is_spent_anyway() -> None:
    quiet = Cost(cpu_ms=120, seconds=60)
    assert quiet.rate == 2
    assert Cost(lives=100, cpu_ms=1300, seconds=150).of_a_life(quiet=quiet.rate) == 10


def test_rounds_count_together_by_their_lives() -> None:
    rounds = [Cost(lives=10, cpu_ms=200, seconds=50), Cost(lives=30, cpu_ms=360, seconds=30)]
    assert Cost.of_all(rounds).of_a_life(quiet=2) == 10


def test_the_reference_takes_our_place_in_the_list_and_what_is_chained_stays() -> None:
    chained = [{"type": "portmap", "capabilities": {"portMappings": True}}, {"type": "bandwidth"}]
    ours = {"cniVersion": "1.0.0", "name": "flock", "plugins": [{"type": "flock", "wait": 100}, *chained]}
    conflist = reference_conflist(ours)
    first, *rest = conflist["plugins"]
    assert (conflist["cniVersion"], first["type"], rest) == ("1.0.0", "ptp", chained)
    assert first["ipam"]["ranges"] == [[{"subnet": POOL4}]], "IPv4 alone"
