"""deploy/unpack-wheels: an image whose wheels do not work with its Python is not built at all."""

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

PROGRAM = Path(__file__).parents[2] / "deploy/unpack-wheels"
OWN = f"cp{sys.version_info.major}{sys.version_info.minor}"
MAIN = "def main():\n    print('it runs')\n"


def wheel(directory: Path, tags: str, files: dict[str, str], *, name: str = "flock") -> None:
    with zipfile.ZipFile(directory / f"{name}-1.0-{tags}.whl", "w") as archive:
        for path, content in files.items():
            archive.writestr(path, content)
        archive.writestr(f"{name}-1.0.dist-info/METADATA", f"Name: {name}\nVersion: 1.0\n")
        if name == "flock":
            archive.writestr(
                f"{name}-1.0.dist-info/entry_points.txt", "[console_scripts]\nflock-agent = flock.run:main\n"
            )


@pytest.fixture
def wheels(tmp_path: Path) -> Path:
    directory = tmp_path / "wheels"
    directory.mkdir()
    wheel(
        directory, "py3-none-any", {"flock/__init__.py": "", "flock/run.py": MAIN, "flock/later.py": "import faster\n"}
    )
    return directory


def unpack(wheels: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, PROGRAM, wheels, wheels.parent / "root"]
    return subprocess.run(command, capture_output=True, text=True, timeout=60)


@pytest.mark.parametrize(
    "tags", ["py3-none-any", f"{OWN}-{OWN}-manylinux_2_17_x86_64", "cp38-abi3-manylinux_2_17_x86_64"]
)
def test_wheels_that_fit_are_installed_with_their_commands(wheels: Path, tags: str) -> None:
    wheel(wheels, tags, {"faster.py": "SPEED = 1\n"}, name="faster")
    done = unpack(wheels)
    assert done.returncode == 0, done.stderr
    command = wheels.parent / "root/usr/local/bin/flock-agent"
    assert "from flock.run import main" in command.read_text() and command.stat().st_mode & 0o111


def test_wheels_for_another_python_are_named_and_the_build_fails(wheels: Path) -> None:
    wheel(wheels, "cp399-cp399-manylinux_2_17_x86_64", {"faster.py": ""}, name="faster")
    done = unpack(wheels)
    assert done.returncode == 1
    assert "made for another Python" in done.stderr and "faster-1.0-cp399" in done.stderr
    assert f"pip download --python-version {sys.version_info.major}.{sys.version_info.minor}" in done.stderr


def test_what_cannot_be_imported_fails_the_build_though_no_command_needs_it_at_once(wheels: Path) -> None:
    """`faster` is missing, or broken in another way than by its tags."""
    done = unpack(wheels)
    assert done.returncode == 1
    assert "does not work with this image's Python" in done.stderr and "faster" in done.stderr


def test_an_empty_directory_is_no_image(tmp_path: Path) -> None:
    (tmp_path / "wheels").mkdir()
    assert "no wheels" in unpack(tmp_path / "wheels").stderr
