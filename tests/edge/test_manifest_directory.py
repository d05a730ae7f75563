"""A manifest directory that comes, goes and comes back; many files at once."""
# ruff: noqa: ASYNC221, ASYNC240 - a test's own writes are to be finished before it goes on

import subprocess
import threading
from pathlib import Path

import pytest
from manifested import folder, pod, watching

from flock.edge import inotify
from looping import looped

__all__ = ["folder"]  # a fixture


# --- the directory itself -------------------------------------------------------------------------------------


@looped
async def test_a_directory_that_comes_late_is_waited_for(tmp_path: Path) -> None:
    folder = tmp_path / "late"
    async with watching(folder) as known:
        assert not known.synced and len(known.problems) == 1
        (tmp_path / "other").mkdir()
        staged = tmp_path / "staged"
        staged.mkdir()
        (staged / "web.yaml").write_text(pod("web"))
        staged.rename(folder)
        await known.news()
        assert known.synced and known.problems == () and known.labels() == {"web": "x"}
        (folder / "b.yaml").write_text(pod("b"))
        await known.news()
        assert known.labels() == {"web": "x", "b": "x"}


@looped
async def test_even_a_parent_that_comes_late_is_waited_for(tmp_path: Path) -> None:
    async with watching(tmp_path / "far" / "away") as known:
        (tmp_path / "far" / "away").mkdir(parents=True)
        (tmp_path / "far" / "away" / "web.yaml").write_text(pod("web"))
        while not known.synced or not known.pods:
            await known.news()
        assert known.labels() == {"web": "x"} and known.problems == ()


@looped
async def test_a_directory_moved_away_keeps_its_objects_until_one_is_back(folder: Path) -> None:
    (folder / "web.yaml").write_text(pod("web"))
    async with watching(folder) as known:
        (folder / "web.yaml").write_text(pod("web"))  # in the same batch, and no deletion
        folder.rename(folder.with_name("old"))
        await known.news()
        assert known.synced and known.labels() == {"web": "x"} and len(known.problems) == 1
        (folder.with_name("old") / "no.yaml").write_text(pod("no"))
        folder.mkdir()
        (folder / "new.yaml").write_text(pod("new"))
        while known.problems:
            await known.news()
        await known.quiet()
        assert known.labels() == {"new": "x"}


@looped
async def test_a_directory_deleted_and_made_again_is_picked_up(folder: Path) -> None:
    (folder / "web.yaml").write_text(pod("web"))
    async with watching(folder) as known:
        subprocess.run(["rm", "-r", str(folder)], check=True)
        while known.pods or not known.problems:
            await known.news()
        folder.mkdir()
        while known.problems:
            await known.news()
        (folder / "web.yaml").write_text(pod("web", label="y"))
        await known.news()
        assert known.labels() == {"web": "y"}


@looped
async def test_a_file_in_the_directorys_place_is_a_problem_that_heals(tmp_path: Path) -> None:
    folder = tmp_path / "manifests"
    folder.write_text("x")
    async with watching(folder) as known:
        assert not known.synced and len(known.problems) == 1
        folder.unlink()
        folder.mkdir()
        while not known.synced:
            await known.news()
        assert known.problems == ()


# --- many -----------------------------------------------------------------------------------------------------


@looped
async def test_two_hundred_files_written_by_others_all_arrive(folder: Path) -> None:
    async with watching(folder) as known:
        writers = [
            threading.Thread(
                target=lambda first=first: [
                    (folder / f"{n}.yaml").write_text(pod(f"p{n}")) for n in range(first, first + 50)
                ]
            )
            for first in range(0, 200, 50)
        ]
        for writer in writers:
            writer.start()
        while len(known.pods) < 200:
            await known.news()
        for writer in writers:
            writer.join()
        for number in range(0, 200, 2):
            (folder / f"{number}.yaml").unlink()
        await known.quiet()
        assert len(known.pods) == 100 and known.problems == ()


@looped
async def test_a_full_queue_of_notices_loses_nothing(folder: Path) -> None:
    limit = int(Path("/proc/sys/fs/inotify/max_queued_events").read_text())
    if limit > 100_000:
        pytest.skip(f"the queue holds {limit} notices, too many to fill in a test")
    (folder / "old.yaml").write_text(pod("old"))
    (folder / "a").write_text("")
    async with watching(folder) as known:
        for _ in range(limit // 2 + 1):  # each time two notices that differ from the last
            (folder / "a").rename(folder / "b")
            (folder / "b").rename(folder / "a")
        (folder / "old.yaml").unlink()
        (folder / "web.yaml").write_text(pod("web"))
        notices = inotify.Inotify.pending
        seen: list[inotify.Event] = []

        def recorded(queue: inotify.Inotify) -> list[inotify.Event]:
            seen.extend(notices(queue))
            return seen

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(inotify.Inotify, "pending", recorded)
            await known.quiet()
        assert any(event.mask & inotify.OVERFLOW for event in seen)
        assert not any(event.name == "web.yaml" for event in seen)
        assert known.labels() == {"web": "x"}


@looped
async def test_closing_gives_back_the_descriptor(folder: Path) -> None:
    before = len(list(Path("/proc/self/fd").iterdir()))
    for _ in range(3):
        async with watching(folder):
            pass
    assert len(list(Path("/proc/self/fd").iterdir())) == before
