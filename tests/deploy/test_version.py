"""The version is said once; whatever repeats it says the same, and all of that can be changed at once."""

import shutil
import subprocess
import sys
import tomllib
from importlib.metadata import version as installed
from pathlib import Path

import flock

ROOT = Path(__file__).parent.parent.parent
sys.path.insert(0, str(ROOT / "scripts"))

import version  # noqa: E402


def test_what_repeats_the_version_says_the_same() -> None:
    assert version.version() == flock.__version__ == installed("flock")
    said = [(path.relative_to(ROOT), found[found.lastindex or 0]) for path, found in version.repetitions()]
    assert [place for place in said if place[1] != flock.__version__] == []
    assert {str(path) for path, _ in said} >= {"deploy/agent.yaml", "deploy/helm/flock/Chart.yaml", "docs/install.md"}


def test_no_file_that_is_applied_or_built_names_it_elsewhere() -> None:
    """What is not in the list would stay behind."""
    known = {path for path, _ in version.repetitions()}
    files = [path for path in (ROOT / "deploy").rglob("*") if path.is_file()] + [
        ROOT / "pyproject.toml",
        ROOT / "Makefile",
    ]
    assert [path for path in files if path not in known and f"flock:{flock.__version__}" in path.read_text()] == []
    assert tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dynamic"] == ["version"]


def test_the_changelog_begins_with_it() -> None:
    headings = [line for line in (ROOT / "CHANGELOG.md").read_text().splitlines() if line.startswith("## ")]
    assert headings[0].startswith(f"## {flock.__version__}")


def test_another_version_is_another_one_everywhere(tmp_path: Path) -> None:
    for name in ("src/flock/__init__.py", "deploy", "docs", "scripts/version.py"):
        target = tmp_path / name
        target.parent.mkdir(parents=True, exist_ok=True)
        (shutil.copytree if (ROOT / name).is_dir() else shutil.copy)(ROOT / name, target)

    def run(*words: str) -> str:
        command = [sys.executable, tmp_path / "scripts/version.py", *words]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()

    run("12.0.0rc1")
    assert run() == "12.0.0rc1"
    for name in ("deploy/agent.yaml", "deploy/bird.yaml", "deploy/helm/flock/Chart.yaml", "docs/install.md"):
        before, after = (ROOT / name).read_text(), (tmp_path / name).read_text()
        assert after == before.replace(flock.__version__, "12.0.0rc1"), name
