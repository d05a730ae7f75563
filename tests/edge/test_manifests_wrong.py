"""What is wrong in a manifest directory stays what it was (invariant 7), and heals."""

from pathlib import Path

from manifested import POLICY, folder, pod, watching

from flock.core.kinds import POLICIES
from looping import looped

__all__ = ["folder"]  # a fixture


@looped
async def test_an_unreadable_file_keeps_its_objects_until_it_is_mended(folder: Path) -> None:
    (folder / "a.yaml").write_text(pod("a"))
    async with watching(folder) as known:
        (folder / "a.yaml").write_text("kind: [")
        (folder / "b.yaml").write_text(pod("b"))
        await known.news()
        assert known.labels() == {"a": "x", "b": "x"}
        assert [Path(problem.where).name for problem in known.problems] == ["a.yaml"]
        (folder / "a.yaml").write_text(pod("a", label="y"))
        await known.news()
        assert known.labels() == {"a": "y", "b": "x"} and known.problems == ()


@looped
async def test_nodeconfigs_of_other_nodes_are_known_by_their_file_until_they_leave_it(folder: Path) -> None:
    text = "apiVersion: flock.fritzlab.net/v1alpha1\nkind: NodeConfig\nmetadata: {name: myhost}\nspec: {}\n"
    (folder / "nodeconfig.yaml").write_text(text)
    async with watching(folder) as known:
        assert known.cache.passed_over == {"nodeconfig.yaml": ("myhost",)} and known.problems == ()
        (folder / "nodeconfig.yaml").unlink()
        await known.news()
        assert known.cache.passed_over == {}


@looped
async def test_a_refused_object_keeps_its_last_good_version_while_others_change(folder: Path) -> None:
    (folder / "all.yaml").write_text(f"{pod('a')}---\n{pod('b')}---\n{pod('c')}")
    async with watching(folder) as known:
        (folder / "all.yaml").write_text(f"{pod('a', label='3')}---\n{pod('b', label='y')}")
        await known.news()
        assert known.labels() == {"a": "x", "b": "y"}
        (problem,) = known.problems
        assert problem.where == str(folder / "all.yaml")
        assert "Pod default/a" in problem.message and "$.metadata.labels['l']" in problem.message


@looped
async def test_a_policy_whose_name_was_lost_stays_in_force(folder: Path) -> None:
    (folder / "all.yaml").write_text(f"{pod('a')}---\n{POLICY}")
    async with watching(folder) as known:
        (folder / "all.yaml").write_text(POLICY.replace("name: deny", "name: 3"))
        await known.news()
        assert ("default", "deny") in known.cache.table(POLICIES)
        assert known.pods == {} and len(known.problems) == 1


@looped
async def test_deleting_a_bad_file_lets_go_of_what_it_kept(folder: Path) -> None:
    (folder / "a.yaml").write_text(pod("a"))
    async with watching(folder) as known:
        (folder / "a.yaml").write_text("]")
        await known.news()
        (folder / "a.yaml").unlink()
        await known.news()
        assert known.pods == {} and known.problems == ()


@looped
async def test_of_duplicates_the_last_file_name_wins_with_a_warning(folder: Path) -> None:
    (folder / "2.yaml").write_text(pod("web", label="two"))
    async with watching(folder) as known:
        (folder / "1.yaml").write_text(pod("web", label="one"))
        await known.news()
        assert known.labels() == {"web": "two"}
        (problem,) = known.problems
        assert problem.where == str(folder / "2.yaml") and "1.yaml" in problem.message
        (folder / "2.yaml").unlink()
        await known.news()
        assert known.labels() == {"web": "one"} and known.problems == ()


@looped
async def test_of_a_file_with_a_key_twice_the_last_good_objects_stay(folder: Path) -> None:
    (folder / "all.yaml").write_text(f"{pod('a')}---\n{pod('b')}")
    async with watching(folder) as known:
        for wrong in (f"{pod('a', label='y')}spec: {{}}\nspec: {{}}\n---\n{pod('b')}", pod("a") + pod("b", label="y")):
            (folder / "all.yaml").write_text(wrong)
            await known.quiet()
            assert known.labels() == {"a": "x", "b": "x"}
            (problem,) = known.problems
            assert "is there twice, first in line" in problem.message
