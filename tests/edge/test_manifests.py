"""What is in a manifest directory is in the cache, as soon as the kernel says so."""

import os
from pathlib import Path

from manifested import POLICY, folder, pod, watching

from flock.core.kinds import CLUSTER_NODES, CLUSTER_POLICIES, NAMESPACES, NODE_CONFIGS, NODES, POLICIES
from flock.edge.manifestfile import MAX_BYTES
from looping import looped

__all__ = ["folder"]  # a fixture


# --- reading --------------------------------------------------------------------------------------------------


@looped
async def test_everything_in_the_directory_is_there_after_start(folder: Path) -> None:
    (folder / "all.yaml").write_text(
        f"{pod('web')}---\n{POLICY}---\n"
        "apiVersion: policy.networking.k8s.io/v1alpha2\nkind: ClusterNetworkPolicy\n"
        "metadata: {name: above}\nspec: {tier: Admin}\n---\n"
        "apiVersion: v1\nkind: Namespace\nmetadata: {name: shop, labels: {team: a}}\n---\n"
        "apiVersion: v1\nkind: Node\nmetadata: {name: node1}\nspec: {unschedulable: true}\n---\n"
        "apiVersion: v1\nkind: Node\nmetadata: {name: node2}\n---\n"
        "apiVersion: flock.fritzlab.net/v1alpha1\nkind: NodeConfig\nmetadata: {name: node1}\nspec: {mtu: 9000}\n"
    )
    (folder / "b.yml").write_text(pod("b"))
    metadata = '{"name": "c", "labels": {"l": "j"}}'
    (folder / "c.json").write_text(f'{{"apiVersion": "v1", "kind": "Pod", "metadata": {metadata}}}')
    async with watching(folder) as known:
        cache = known.cache
        assert cache.synced and cache.complete and cache.problems == ()
        assert known.labels() == {"web": "x", "b": "x", "c": "j"}
        assert cache.table(POLICIES)["default", "deny"]["spec"] == {"podSelector": {}}
        assert cache.table(NAMESPACES)["", "shop"].labels == {"team": "a"}
        node, config = cache.own(NODES), cache.own(NODE_CONFIGS)
        assert node is not None and node.cordoned and list(cache.table(NODES)) == [("", "node1")]
        assert list(cache.table(CLUSTER_NODES)) == [("", "node2")]
        assert cache.table(CLUSTER_POLICIES)["", "above"]["spec"] == {"tier": "Admin"}
        assert config is not None and config["spec"] == {"mtu": 9000}


@looped
async def test_an_empty_directory_is_in_sync(folder: Path) -> None:
    async with watching(folder) as known:
        assert known.synced and known.cache.own(NODES) is None and known.cache.own(NODE_CONFIGS) is None


@looped
async def test_dotfiles_editors_files_and_folders_are_passed_over(folder: Path) -> None:
    for name in (".web.yaml", ".#web.yaml", "web.yaml~", "#web.yaml#", ".web.yaml.swp", "web.txt", "4913"):
        (folder / name).write_text("{")
    (folder / "sub.yaml").mkdir()
    (folder / "sub.yaml" / "web.yaml").write_text(pod("web"))
    async with watching(folder) as known:
        (folder / ".late.yaml").write_text("{")
        assert await known.quiet() == 0
        assert known.pods == {} and known.problems == ()


@looped
async def test_what_cannot_be_a_manifest_is_shown_and_hangs_nothing(folder: Path) -> None:
    os.mkfifo(folder / "fifo.yaml")
    (folder / "big.yaml").write_text("#" * (MAX_BYTES + 1))
    (folder / "lost.yaml").symlink_to("nowhere")
    (folder / "web.yaml").write_text(pod("web"))
    async with watching(folder) as known:
        assert known.synced and known.labels() == {"web": "x"}
        assert [Path(problem.where).name for problem in known.problems] == ["big.yaml", "fifo.yaml", "lost.yaml"]


# --- changes --------------------------------------------------------------------------------------------------


@looped
async def test_subscribers_hear_of_writes_renames_and_deletions(folder: Path) -> None:
    async with watching(folder) as known:
        (folder / "a.yaml").write_text(pod("a"))
        await known.news()
        assert known.labels() == {"a": "x"}
        (folder / "tmp").write_text(pod("a", label="y"))
        (folder / "tmp").rename(folder / "a.yaml")
        await known.news()
        assert known.labels() == {"a": "y"}
        (folder / "a.yaml").rename(folder / "b.yaml")
        await known.news()
        assert known.labels() == {"a": "y"}
        (folder / "b.yaml").unlink()
        await known.news()
        assert known.pods == {}


@looped
async def test_a_pod_written_just_now_is_found_without_waiting(folder: Path) -> None:
    async with watching(folder) as known:
        for label in ("one", "two"):
            (folder / "web.yaml").write_text(pod("web", label=label))
            found = await known.pod("web")
            assert found is not None and found.labels == {"l": label}
        (folder / "web.yaml").unlink()
        assert await known.pod("web") is None


@looped
async def test_a_namesake_counts_as_absent_when_both_uids_are_known(folder: Path) -> None:
    (folder / "known.yaml").write_text(pod("known", uid="1"))
    (folder / "open.yaml").write_text(pod("open"))
    async with watching(folder) as known:
        assert await known.pod("known", uid="1") is not None
        assert await known.pod("known") is not None
        assert await known.pod("known", uid="2") is None
        assert await known.pod("open", uid="2") is not None


@looped
async def test_a_batch_is_told_once_and_nothing_new_not_at_all(folder: Path) -> None:
    async with watching(folder) as known:
        for number in range(50):
            (folder / f"{number}.yaml").write_text(pod(f"p{number}"))
        assert await known.quiet() == 1
        assert len(known.pods) == 50
        os.utime(folder / "1.yaml")
        (folder / "2.yaml").write_text(pod("p2") + "# a comment\n")
        (folder / "notes.txt").write_text("x")
        assert await known.quiet() == 1


@looped
async def test_a_file_being_written_is_left_alone_until_it_is_closed(folder: Path) -> None:
    (folder / "web.yaml").write_text(pod("web"))
    async with watching(folder) as known:
        told = known.told
        with (folder / "web.yaml").open("w") as rewritten, (folder / "new.yaml").open("w") as new:
            for file in (rewritten, new):
                file.write(pod("half"))  # readable, but not all there is to come
                file.flush()
            assert await known.quiet() == told
            assert known.labels() == {"web": "x"}
            rewritten.write("---\n" + pod("web", label="y"))
        await known.quiet()
        assert known.labels() == {"half": "x", "web": "y"}


@looped
async def test_links_are_taken_at_once(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").write_text(pod("linked"))
    async with watching(folder) as known:
        (folder / "soft.yaml").symlink_to(tmp_path / "elsewhere")
        assert await known.pod("linked") is not None
        (folder / "soft.yaml").unlink()
        assert await known.pod("linked") is None
        (folder / "hard.yaml").hardlink_to(tmp_path / "elsewhere")
        assert await known.pod("linked") is not None


@looped
async def test_a_link_whose_target_appears_later_heals(folder: Path, tmp_path: Path) -> None:
    (folder / "soft.yaml").symlink_to(tmp_path / "elsewhere")
    async with watching(folder) as known:
        assert len(known.problems) == 1
        (tmp_path / "elsewhere").write_text(pod("linked"))
        await known.news()
        assert known.labels() == {"linked": "x"} and known.problems == ()


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
    async with watching(folder) as known:
        assert known.labels() == {"a": "v1", "b": "v1"}
        publish("v2", "a", "b", "c")
        await known.quiet()
        assert known.labels() == {"a": "v2", "b": "v2", "c": "v2"}
