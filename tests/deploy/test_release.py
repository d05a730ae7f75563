"""A release: built twice from one commit in different places it is the same bytes, and what is in it works."""

import hashlib
import json
import os
import re
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

import flock

ROOT = Path(__file__).parent.parent.parent
sys.path.insert(0, str(ROOT / "scripts"))

import lock  # noqa: E402
import release  # noqa: E402

VERSION = flock.__version__


def run(*command: object, cwd: Path | None = None, **environment: str) -> str:
    env = {key: value for key, value in os.environ.items() if not key.startswith("MAKE")} | environment
    done = subprocess.run([*map(str, command)], capture_output=True, text=True, timeout=300, cwd=cwd, env=env)
    assert done.returncode == 0, done.stderr + done.stdout
    return done.stdout


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Two clones' `dist`; without the image, which takes minutes."""
    found = []
    for number, umask in enumerate((0o022, 0o077)):
        clone = tmp_path_factory.mktemp("clone") / f"in-place-{number}"
        run("git", "clone", "-q", ROOT, clone)
        run("make", "-C", clone, "--old-file=packages", "build/flock", "build/flock-arm64")
        old = os.umask(umask)
        try:
            run(sys.executable, "scripts/release.py", "--without-image", cwd=clone, PYTHONPATH=str(clone / "src"))
        finally:
            os.umask(old)
        found.append(clone / "dist")
    return found


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_two_clones_give_the_same_bytes(built: list[Path]) -> None:
    first, second = ({path.name: path.read_bytes() for path in dist.iterdir()} for dist in built)
    assert first.keys() == second.keys()
    assert [name for name in first if first[name] != second[name]] == []
    kinds = {re.sub(r"(?<=[-_])\d+\.\d+\.\d+(-1~deb[a-z0-9]+)?", "VERSION", name) for name in first}
    assert kinds == {
        "SHA256SUMS",
        "flock-VERSION-linux-amd64",
        "flock-VERSION-linux-arm64",
        "flock-VERSION-py3-none-any.whl",
        "flock-VERSION.cdx.json",
        "flock-VERSION.tar.gz",
        "flock-VERSION.tgz",
        "flock-manifests-VERSION.tar.gz",
        "flock_VERSION_amd64.deb",
    }


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_the_sums_are_of_everything_and_nothing_says_where_it_was_built(built: list[Path]) -> None:
    files = {path.name: path.read_bytes() for path in built[0].iterdir() if path.name != release.SUMS}
    told = dict(line.split()[::-1] for line in (built[0] / release.SUMS).read_text().splitlines())
    assert told == {name: hashlib.sha256(content).hexdigest() for name, content in files.items()}
    assert [name for name, content in files.items() if b"in-place-" in content] == []


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_chart_manifests_and_source_unpack_to_what_is_committed(built: list[Path], tmp_path: Path) -> None:
    for name in (f"flock-{VERSION}.tgz", f"flock-manifests-{VERSION}.tar.gz", f"flock-{VERSION}.tar.gz"):
        with tarfile.open(built[0] / name) as archive:
            archive.extractall(tmp_path / name)
    chart = tmp_path / f"flock-{VERSION}.tgz/flock"
    run("diff", "-r", chart, built[0].parent / "deploy/helm/flock")
    manifests = tmp_path / f"flock-manifests-{VERSION}.tar.gz/flock-manifests-{VERSION}"
    listed = re.findall(r"^- (\S+\.yaml)$", (manifests / "kustomization.yaml").read_text(), re.MULTILINE)
    assert listed and all((manifests / name).exists() for name in listed)
    source = tmp_path / f"flock-{VERSION}.tar.gz/flock-{VERSION}/src/flock"
    run("diff", "-r", "-x", "__pycache__", source, built[0].parent / "src/flock")


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_the_executable_for_arm64_runs_on_an_emulated_one(built: list[Path]) -> None:
    executable = built[0] / f"flock-{VERSION}-linux-arm64"
    assert executable.read_bytes()[18:20] == b"\xb7\x00", "made for aarch64"
    asked = ["qemu-aarch64-static", executable]
    done = subprocess.run(
        asked, input=b'{"cniVersion":"1.1.0"}', env={"CNI_COMMAND": "VERSION"}, capture_output=True, timeout=60
    )
    assert json.loads(done.stdout)["supportedVersions"] == ["0.4.0", "1.0.0", "1.1.0"]


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_the_list_of_parts_names_what_is_locked_and_linked(built: list[Path]) -> None:
    told = json.loads((built[0] / f"flock-{VERSION}.cdx.json").read_text())
    assert told["metadata"]["component"]["version"] == VERSION
    parts = {part["purl"].split("@")[0] for part in told["components"]}
    assert {"pkg:pypi/msgspec", "pkg:pypi/pyyaml", "pkg:deb/debian/musl-dev"} <= parts


def test_a_packed_archive_depends_on_its_contents_alone(tmp_path: Path) -> None:
    for name, files in (("a.tgz", {"x": b"1", "y": b"2"}), ("b.tgz", {"y": b"2", "x": b"1"})):
        (tmp_path / name).mkdir()
        release.pack(tmp_path / name / "same.tgz", files, epoch=1)
    assert (tmp_path / "a.tgz/same.tgz").read_bytes() == (tmp_path / "b.tgz/same.tgz").read_bytes()


@pytest.mark.parametrize("name", ["run.txt", "dev.txt"])
def test_what_pyproject_asks_for_is_locked_with_hashes_and_without_an_index(name: str) -> None:
    text = (ROOT / "requirements" / name).read_text()
    entries = [entry for entry in text.replace("\\\n", "").splitlines() if not entry.startswith("#")]
    assert all("--hash=sha256:" in entry for entry in entries)
    locked = {entry.split()[0].lower().replace("_", "-") for entry in entries}
    assert {wanted.lower().replace("_", "-") for wanted in lock.wanted()[name]} <= locked, "run scripts/lock.py"
    assert "://" not in text and "index" not in text


def test_a_directory_with_more_in_it_than_an_earlier_release_stays_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("years of work")
    (tmp_path / "flock-1.0.tgz").touch()
    with pytest.raises(RuntimeError, match=r"has more in it than a release, which replaces all of it: thesis\.txt"):
        release._earlier(tmp_path)
    (tmp_path / "thesis.txt").unlink()
    (tmp_path / "SHA256SUMS").touch()
    assert [path.name for path in release._earlier(tmp_path)] == ["SHA256SUMS", "flock-1.0.tgz"]
