"""The version and its repetitions.  It is said in `src/flock/__init__.py`; what has to say it too is listed here.

    .venv/bin/python scripts/version.py        prints it
    .venv/bin/python scripts/version.py 1.2.3  makes it another one, everywhere

Files that are applied as they are (manifests, chart, commands on a page) cannot ask for it; a test keeps them equal.
"""

import re
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parent.parent
NUMBER = r"\d+\.\d+\.\d+(?:(?:a|b|rc)\d+)?"
SOURCE = ("src/flock/__init__.py", r'^__version__ = "(NUMBER)"$')
REPEATED = (
    ("deploy/*.yaml", r"\bimage: localhost/flock:(NUMBER)$"),
    ("deploy/helm/flock/Chart.yaml", r"^(?:version|appVersion): (NUMBER)$"),
    (
        "docs/*.md",
        r"\bregistry\.example/flock:(NUMBER)\b|\bnewTag: (NUMBER)\b|\bflock_(NUMBER)-1~deb|\(flock (NUMBER)\)",
    ),
)


def version() -> str:
    ((_, found),) = repetitions(SOURCE)
    return found.group(1)


def repetitions(*where: tuple[str, str]) -> Iterator[tuple[Path, re.Match[str]]]:
    """Every place of `where`, by default those that only repeat it; the match's last group is the number."""
    for pattern, text in where or REPEATED:
        for path in sorted(ROOT.glob(pattern)):
            for found in re.finditer(text.replace("NUMBER", NUMBER), path.read_text(), re.MULTILINE):
                yield path, found


def change(new: str) -> None:
    if not re.fullmatch(NUMBER, new):
        sys.exit(f"{new} is no version: 1.2.3, or 1.2.3rc1")
    for path, found in reversed([*repetitions(SOURCE), *repetitions()]):  # from the end: what is before stays in place
        text, place = path.read_text(), found.span(found.lastindex or 0)
        path.write_text(text[: place[0]] + new + text[place[1] :])


if __name__ == "__main__":
    change(sys.argv[1]) if len(sys.argv) > 1 else print(version())
