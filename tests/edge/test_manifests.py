"""A manifest directory on a real file system, watched by the real kernel."""
# ruff: noqa: ASYNC221, ASYNC240 - a test's own writes are to be finished before it goes on

import asyncio
import functools
import os
import subprocess
import threading
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from flock.edge import inotify
from flock.edge.manifestfile import MAX_BYTES
from flock.edge.manifests import ManifestSource
from flock.edge.source import Source

PATIENCE = 20  # seconds until a test that waits for a notice gives up


def looped(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    @functools.wraps(test)
    def run(*args: Any, **kwargs: Any) -> None:
        asyncio.run(asyncio.wait_for(test(*args, **kwargs), PATIENCE))

    return run


def pod(name: str, *, label: str = "x", uid: str = "") -> str:
    return f"apiVersion: v1\nkind: Pod\nmetadata: {{name: {name}, uid: '{uid}', labels: {{l: {label}}}}}\n"


POLICY = "apiVersion: networking.k8s.io/v1\nkind: NetworkPolicy\nmetadata: {name: deny}\nspec: {podSelector: {}}\n"


class Watched(ManifestSource):
    """A source that counts the batches its subscribers hear of, and lets a test wait for the next."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory, node="node1")
        self.told = 0
        self._news = asyncio.Event()
        self.subscribe(self._hear)

    def _hear(self) -> None:
        self.told += 1
        self._news.set()

    async def news(self) -> None:
        await self._news.wait()
        self._news.clear()

    async def quiet(self) -> int:
        """Take in what is pending, let callbacks run, and say how often subscribers were told so far."""
        await self.pod("default", "nobody", uid="")
        await asyncio.sleep(0)
        return self.told

    def labels(self) -> dict[str, str]:
        return {name: value.labels["l"] for (_, name), value in self.pods.items()}


@asynccontextmanager
async def watching(directory: Path) -> AsyncIterator[Watched]:
    source = Watched(directory)
    await source.start()
    try:
        if source.synced and (source.pods or source.problems):
            await source.news()
        yield source
    finally:
        await source.close()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    path = tmp_path / "manifests"
    path.mkdir()
    return path


# --- reading ------------------------------------------------------------------------------------------------


@looped
async def test_everything_in_the_directory_is_there_after_start(folder: Path) -> None:
    (folder / "all.yaml").write_text(
        f"{pod('web')}---\n{POLICY}---\n"
        "apiVersion: v1\nkind: Namespace\nmetadata: {name: shop, labels: {team: a}}\n---\n"
        "apiVersion: v1\nkind: Node\nmetadata: {name: node1}\nspec: {unschedulable: true}\n---\n"
        "apiVersion: v1\nkind: Node\nmetadata: {name: node2}\n---\n"
        "apiVersion: flock.fritzlab.net/v1alpha1\nkind: NodeConfig\nmetadata: {name: node1}\nspec: {mtu: 9000}\n"
    )
    (folder / "b.yml").write_text(pod("b"))
    metadata = '{"name": "c", "labels": {"l": "j"}}'
    (folder / "c.json").write_text(f'{{"apiVersion": "v1", "kind": "Pod", "metadata": {metadata}}}')
    async with watching(folder) as source:
        seam: Source = source
        assert seam.synced and seam.problems == ()
        assert source.labels() == {"web": "x", "b": "x", "c": "j"}
        assert seam.network_policies[("default", "deny")]["spec"] == {"podSelector": {}}
        assert seam.namespaces["shop"].labels == {"team": "a"}
        assert seam.node is not None and seam.node.cordoned
        assert seam.node_config is not None and seam.node_config["spec"] == {"mtu": 9000}


@looped
async def test_an_empty_directory_is_in_sync(folder: Path) -> None:
    async with watching(folder) as source:
        assert source.synced and source.node is None and source.node_config is None


@looped
async def test_dotfiles_editors_files_and_folders_are_passed_over(folder: Path) -> None:
    for name in (".web.yaml", ".#web.yaml", "web.yaml~", "#web.yaml#", ".web.yaml.swp", "web.txt", "4913"):
        (folder / name).write_text("{")
    (folder / "sub.yaml").mkdir()
    (folder / "sub.yaml" / "web.yaml").write_text(pod("web"))
    async with watching(folder) as source:
        (folder / ".late.yaml").write_text("{")
        assert await source.quiet() == 0
        assert source.pods == {} and source.problems == ()


@looped
async def test_what_cannot_be_a_manifest_is_shown_and_hangs_nothing(folder: Path) -> None:
    os.mkfifo(folder / "fifo.yaml")
    (folder / "big.yaml").write_text("#" * (MAX_BYTES + 1))
    (folder / "lost.yaml").symlink_to("nowhere")
    (folder / "web.yaml").write_text(pod("web"))
    async with watching(folder) as source:
        assert source.synced and source.labels() == {"web": "x"}
        assert [Path(problem.where).name for problem in source.problems] == ["big.yaml", "fifo.yaml", "lost.yaml"]


# --- changes ------------------------------------------------------------------------------------------------


@looped
async def test_subscribers_hear_of_writes_renames_and_deletions(folder: Path) -> None:
    async with watching(folder) as source:
        (folder / "a.yaml").write_text(pod("a"))
        await source.news()
        assert source.labels() == {"a": "x"}
        (folder / "tmp").write_text(pod("a", label="y"))
        (folder / "tmp").rename(folder / "a.yaml")
        await source.news()
        assert source.labels() == {"a": "y"}
        (folder / "a.yaml").rename(folder / "b.yaml")
        await source.news()
        assert source.labels() == {"a": "y"}
        (folder / "b.yaml").unlink()
        await source.news()
        assert source.pods == {}


@looped
async def test_a_pod_written_just_now_is_found_without_waiting(folder: Path) -> None:
    async with watching(folder) as source:
        for label in ("one", "two"):
            (folder / "web.yaml").write_text(pod("web", label=label))
            found = await source.pod("default", "web", uid="")
            assert found is not None and found.labels == {"l": label}
        (folder / "web.yaml").unlink()
        assert await source.pod("default", "web", uid="") is None


@looped
async def test_a_namesake_counts_as_absent_when_both_uids_are_known(folder: Path) -> None:
    (folder / "known.yaml").write_text(pod("known", uid="1"))
    (folder / "open.yaml").write_text(pod("open"))
    async with watching(folder) as source:
        assert await source.pod("default", "known", uid="1") is not None
        assert await source.pod("default", "known", uid="") is not None
        assert await source.pod("default", "known", uid="2") is None
        assert await source.pod("default", "open", uid="2") is not None


@looped
async def test_a_batch_is_told_once_and_nothing_new_not_at_all(folder: Path) -> None:
    async with watching(folder) as source:
        for number in range(50):
            (folder / f"{number}.yaml").write_text(pod(f"p{number}"))
        assert await source.quiet() == 1
        assert len(source.pods) == 50
        os.utime(folder / "1.yaml")
        (folder / "2.yaml").write_text(pod("p2") + "# a comment\n")
        (folder / "notes.txt").write_text("x")
        assert await source.quiet() == 1


@looped
async def test_a_file_being_written_is_left_alone_until_it_is_closed(folder: Path) -> None:
    (folder / "web.yaml").write_text(pod("web"))
    async with watching(folder) as source:
        told = source.told
        with (folder / "web.yaml").open("w") as rewritten, (folder / "new.yaml").open("w") as new:
            for file in (rewritten, new):
                file.write(pod("half"))  # readable, but not all there is to come
                file.flush()
            assert await source.quiet() == told
            assert source.labels() == {"web": "x"}
            rewritten.write("---\n" + pod("web", label="y"))
        await source.quiet()
        assert source.labels() == {"half": "x", "web": "y"}


@looped
async def test_links_are_taken_at_once(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").write_text(pod("linked"))
    async with watching(folder) as source:
        (folder / "soft.yaml").symlink_to(tmp_path / "elsewhere")
        assert await source.pod("default", "linked", uid="") is not None
        (folder / "soft.yaml").unlink()
        assert await source.pod("default", "linked", uid="") is None
        (folder / "hard.yaml").hardlink_to(tmp_path / "elsewhere")
        assert await source.pod("default", "linked", uid="") is not None


@looped
async def test_a_link_whose_target_appears_later_heals(folder: Path, tmp_path: Path) -> None:
    (folder / "soft.yaml").symlink_to(tmp_path / "elsewhere")
    async with watching(folder) as source:
        assert len(source.problems) == 1
        (tmp_path / "elsewhere").write_text(pod("linked"))
        await source.news()
        assert source.labels() == {"linked": "x"} and source.problems == ()


@looped
async def test_a_mounted_configmap_is_followed_through_its_swaps(folder: Path) -> None:
    def publish(version: str, *names: str) -> None:
        """As the kubelet does: a new folder, a link swapped atomically, the visible names leading through it."""
        target = folder / f"..{version}"
        target.mkdir()
        for name in names:
            (target / f"{name}.yaml").write_text(pod(name, label=version))
        (folder / "..data_tmp").symlink_to(target.name)
        (folder / "..data_tmp").rename(folder / "..data")
        for name in names:
            if not (folder / f"{name}.yaml").is_symlink():
                (folder / f"{name}.yaml").symlink_to(Path("..data") / f"{name}.yaml")

    publish("v1", "a", "b")
    async with watching(folder) as source:
        assert source.labels() == {"a": "v1", "b": "v1"}
        publish("v2", "a", "b", "c")
        await source.quiet()
        assert source.labels() == {"a": "v2", "b": "v2", "c": "v2"}


# --- what is wrong stays what it was (invariant 7) -----------------------------------------------------------


@looped
async def test_an_unreadable_file_keeps_its_objects_until_it_is_mended(folder: Path) -> None:
    (folder / "a.yaml").write_text(pod("a"))
    async with watching(folder) as source:
        (folder / "a.yaml").write_text("kind: [")
        (folder / "b.yaml").write_text(pod("b"))
        await source.news()
        assert source.labels() == {"a": "x", "b": "x"}
        assert [Path(problem.where).name for problem in source.problems] == ["a.yaml"]
        (folder / "a.yaml").write_text(pod("a", label="y"))
        await source.news()
        assert source.labels() == {"a": "y", "b": "x"} and source.problems == ()


@looped
async def test_a_refused_object_keeps_its_last_good_version_while_others_change(folder: Path) -> None:
    (folder / "all.yaml").write_text(f"{pod('a')}---\n{pod('b')}---\n{pod('c')}")
    async with watching(folder) as source:
        (folder / "all.yaml").write_text(f"{pod('a', label='3')}---\n{pod('b', label='y')}")
        await source.news()
        assert source.labels() == {"a": "x", "b": "y"}
        (problem,) = source.problems
        assert problem.where == str(folder / "all.yaml")
        assert "Pod default/a" in problem.message and "$.metadata.labels['l']" in problem.message


@looped
async def test_a_policy_whose_name_was_lost_stays_in_force(folder: Path) -> None:
    (folder / "all.yaml").write_text(f"{pod('a')}---\n{POLICY}")
    async with watching(folder) as source:
        (folder / "all.yaml").write_text(POLICY.replace("name: deny", "name: 3"))
        await source.news()
        assert ("default", "deny") in source.network_policies
        assert source.pods == {} and len(source.problems) == 1


@looped
async def test_deleting_a_bad_file_lets_go_of_what_it_kept(folder: Path) -> None:
    (folder / "a.yaml").write_text(pod("a"))
    async with watching(folder) as source:
        (folder / "a.yaml").write_text("]")
        await source.news()
        (folder / "a.yaml").unlink()
        await source.news()
        assert source.pods == {} and source.problems == ()


@looped
async def test_of_duplicates_the_last_file_name_wins_with_a_warning(folder: Path) -> None:
    (folder / "2.yaml").write_text(pod("web", label="two"))
    async with watching(folder) as source:
        (folder / "1.yaml").write_text(pod("web", label="one"))
        await source.news()
        assert source.labels() == {"web": "two"}
        (problem,) = source.problems
        assert problem.where == str(folder / "2.yaml") and "1.yaml" in problem.message
        (folder / "2.yaml").unlink()
        await source.news()
        assert source.labels() == {"web": "one"} and source.problems == ()


# --- the directory itself -----------------------------------------------------------------------------------


@looped
async def test_a_directory_that_comes_late_is_waited_for(tmp_path: Path) -> None:
    folder = tmp_path / "late"
    async with watching(folder) as source:
        await source.news()
        assert not source.synced and len(source.problems) == 1
        (tmp_path / "other").mkdir()
        staged = tmp_path / "staged"
        staged.mkdir()
        (staged / "web.yaml").write_text(pod("web"))
        staged.rename(folder)
        await source.news()
        assert source.synced and source.problems == () and source.labels() == {"web": "x"}
        (folder / "b.yaml").write_text(pod("b"))
        await source.news()
        assert source.labels() == {"web": "x", "b": "x"}


@looped
async def test_even_a_parent_that_comes_late_is_waited_for(tmp_path: Path) -> None:
    async with watching(tmp_path / "far" / "away") as source:
        await source.news()
        (tmp_path / "far" / "away").mkdir(parents=True)
        (tmp_path / "far" / "away" / "web.yaml").write_text(pod("web"))
        while not source.synced or not source.pods:
            await source.news()
        assert source.labels() == {"web": "x"} and source.problems == ()


@looped
async def test_a_directory_moved_away_keeps_its_objects_until_one_is_back(folder: Path) -> None:
    (folder / "web.yaml").write_text(pod("web"))
    async with watching(folder) as source:
        (folder / "web.yaml").write_text(pod("web"))  # in the same batch, and no deletion
        folder.rename(folder.with_name("old"))
        await source.news()
        assert source.synced and source.labels() == {"web": "x"} and len(source.problems) == 1
        (folder.with_name("old") / "no.yaml").write_text(pod("no"))
        folder.mkdir()
        (folder / "new.yaml").write_text(pod("new"))
        while source.problems:
            await source.news()
        await source.quiet()
        assert source.labels() == {"new": "x"}


@looped
async def test_a_directory_deleted_and_made_again_is_picked_up(folder: Path) -> None:
    (folder / "web.yaml").write_text(pod("web"))
    async with watching(folder) as source:
        subprocess.run(["rm", "-r", str(folder)], check=True)
        while source.pods or not source.problems:
            await source.news()
        folder.mkdir()
        while source.problems:
            await source.news()
        (folder / "web.yaml").write_text(pod("web", label="y"))
        await source.news()
        assert source.labels() == {"web": "y"}


@looped
async def test_a_file_in_the_directorys_place_is_a_problem_that_heals(tmp_path: Path) -> None:
    folder = tmp_path / "manifests"
    folder.write_text("x")
    async with watching(folder) as source:
        await source.news()
        assert not source.synced and len(source.problems) == 1
        folder.unlink()
        folder.mkdir()
        while not source.synced:
            await source.news()
        assert source.problems == ()


# --- many ---------------------------------------------------------------------------------------------------


@looped
async def test_two_hundred_files_written_by_others_all_arrive(folder: Path) -> None:
    async with watching(folder) as source:
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
        while len(source.pods) < 200:
            await source.news()
        for writer in writers:
            writer.join()
        for number in range(0, 200, 2):
            (folder / f"{number}.yaml").unlink()
        await source.quiet()
        assert len(source.pods) == 100 and source.problems == ()


@looped
async def test_a_full_queue_of_notices_loses_nothing(folder: Path) -> None:
    limit = int(Path("/proc/sys/fs/inotify/max_queued_events").read_text())
    if limit > 100_000:
        pytest.skip(f"the queue holds {limit} notices, too many to fill in a test")
    (folder / "old.yaml").write_text(pod("old"))
    (folder / "a").write_text("")
    async with watching(folder) as source:
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
            await source.quiet()
        assert any(event.mask & inotify.OVERFLOW for event in seen)
        assert not any(event.name == "web.yaml" for event in seen)
        assert source.labels() == {"web": "x"}


@looped
async def test_closing_gives_back_the_descriptor(folder: Path) -> None:
    before = len(list(Path("/proc/self/fd").iterdir()))
    for _ in range(3):
        async with watching(folder):
            pass
    assert len(list(Path("/proc/self/fd").iterdir())) == before
