"""What the page is made of: nothing that a strict policy forbids, nothing that reads a name as markup."""

import re
from pathlib import Path

import pytest

import flock.view
from flock.core.happenings import Happening, Missed

PAGE = Path(flock.view.__file__).parent / "page"
OURS = sorted(path for path in PAGE.iterdir() if path.suffix in (".js", ".css", ".html"))


@pytest.mark.parametrize("path", OURS, ids=lambda path: path.name)
def test_no_file_of_ours_reads_text_as_markup_or_code(path: Path) -> None:
    text = path.read_text()
    assert not re.search(r"(inner|outer)HTML|insertAdjacentHTML|document\.write|\beval\(|new Function", text)
    assert not re.search(r"setTimeout\(\s*[\"'`]|javascript:|https?://", text.replace("http://www.w3.org/2000/svg", ""))


def test_the_page_has_no_inline_script_or_style() -> None:
    text = (PAGE / "index.html").read_text()
    assert not re.search(r"\sstyle=|\son\w+=|<style", text)
    assert all(" src=" in tag for tag in re.findall(r"<script[^>]*>", text))


@pytest.mark.parametrize("path", OURS, ids=lambda path: path.name)
def test_a_file_of_ours_is_read_in_one_sitting(path: Path) -> None:
    assert len(path.read_text().splitlines()) <= 350


def test_what_others_wrote_stands_apart_with_its_licence_and_version() -> None:
    told = (PAGE / "lib" / "README.md").read_text()
    for path in (PAGE / "lib").glob("*.js"):
        assert path.name in told and path.with_suffix(".LICENSE").is_file()


def test_whatever_can_happen_has_a_lane_of_the_timeline() -> None:
    lanes = (PAGE / "past.js").read_text().partition("export const LANES")[2].partition("];")[0]
    kinds = [kind.__name__ for kind in Happening.__subclasses__() if kind.__module__ == Happening.__module__]
    assert [kind for kind in kinds if f'"{kind}"' not in lanes] == [Missed.__name__]
