"""The house stays one that a newcomer finds the way in: rooms of a size, which speak of what they do and not of how
they came about."""

import re
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent
LONGEST_MODULE, LONGEST_TEST = 350, 400
TESTING = ("tests", "e2e", "bench", "demo")
# An entry of a list that a reader of the tree does not have.
ELSEWHERE = re.compile(r"\bissue #?\d|\bdeliver(?:able)? \d|\bfaults? \d", re.IGNORECASE)


def modules(*folders: str) -> dict[str, str]:
    found = {path: path.read_text() for folder in folders for path in (ROOT / folder).rglob("*.py")}
    return {str(path.relative_to(ROOT)): text for path, text in found.items()}


def longer(texts: dict[str, str], limit: int) -> dict[str, int]:
    lines = {name: text.count("\n") for name, text in texts.items()}
    return {name: count for name, count in lines.items() if count > limit}


def test_no_module_is_longer_than_can_be_read_at_once() -> None:
    assert not longer(modules("src"), LONGEST_MODULE)


def test_no_file_of_tests_is_longer_than_what_it_specifies_takes() -> None:
    assert not longer(modules(*TESTING), LONGEST_TEST)


def test_nothing_speaks_of_a_list_that_is_not_in_the_tree() -> None:
    spoken = {name: ELSEWHERE.findall(text) for name, text in modules("src", *TESTING).items()}
    assert not {name: found for name, found in spoken.items() if found}


def test_a_module_of_the_tests_is_found_by_its_name_alone() -> None:
    """Tests import each other's helpers by name, from whatever folder comes first."""
    names = Counter(Path(name).name for name in modules("tests") if not name.endswith("conftest.py"))
    assert not [name for name, count in names.items() if count > 1]
