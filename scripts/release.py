"""Everything a release consists of, into `dist/`: the same commit gives the same bytes, wherever it is built.

    .venv/bin/python scripts/release.py [--without-image] [DIRECTORY]

Built is the tree as it is committed (what is not is refused), by `make release`, which makes the executables first.
Times are the last commit's.  A run that fails leaves no SHA256SUMS: what is there then is no release.
"""

import argparse
import gzip
import hashlib
import io
import os
import re
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

import bom
import deb
from version import version

ROOT = Path(__file__).parent.parent
EXECUTABLES = {"amd64": "build/flock", "arm64": "build/flock-arm64"}
MANIFESTS = (
    "crds/nodeconfigs.yaml",
    "crds/nodeconfigtemplates.yaml",
    "monitoring/alerts.yaml",
    "monitoring/dashboard.json",
)
SUMS = "SHA256SUMS"
RELEASED = re.compile(rf"flock[-_].*|{SUMS}")


def release(dist: Path, *, image: bool) -> None:
    """Raises CalledProcessError or RuntimeError with what a program said."""
    if changed := _git("status", "--porcelain", "--untracked-files=no"):
        raise RuntimeError(f"not committed, so not part of a release:\n{changed}")
    epoch = int(_git("log", "-1", "--format=%ct"))
    os.environ["SOURCE_DATE_EPOCH"] = str(epoch)
    os.umask(0o022)  # modes of files are part of what is packed
    dist.mkdir(parents=True, exist_ok=True)
    for old in _earlier(dist):
        old.unlink()
    with tempfile.TemporaryDirectory() as work:
        tree = Path(work) / "tree"
        tree.mkdir()
        committed = subprocess.run(["git", "-C", ROOT, "archive", "HEAD"], check=True, stdout=subprocess.PIPE).stdout
        subprocess.run(["tar", "-x", "--no-same-permissions", "-C", tree], input=committed, check=True)
        _python(tree, dist, epoch=epoch)
        _chart(tree / "deploy/helm", dist, epoch=epoch)
        _manifests(tree / "deploy", dist, epoch=epoch)
    for machine, built in EXECUTABLES.items():
        target = dist / f"flock-{version()}-linux-{machine}"
        target.write_bytes((ROOT / built).read_bytes())
        target.chmod(0o755)
    deb.build(dist)
    archive_of_image = _image(dist, epoch=epoch) if image else None
    bom.write(dist / f"flock-{version()}.cdx.json", epoch=epoch, image=archive_of_image)
    sums = "".join(f"{hashlib.sha256(file.read_bytes()).hexdigest()}  {file.name}\n" for file in sorted(dist.iterdir()))
    (dist / SUMS).write_text(sums)


def _earlier(dist: Path) -> list[Path]:
    """Files of an earlier release, which this one replaces.  RuntimeError if anything else is there."""
    there = sorted(dist.iterdir())
    if others := [path.name for path in there if not (RELEASED.fullmatch(path.name) and path.is_file())]:
        raise RuntimeError(f"{dist} has more in it than a release, which replaces all of it: {', '.join(others[:5])}")
    return there


def _python(tree: Path, dist: Path, *, epoch: int) -> None:
    """Wheel and source; setuptools gives the wheel's files the time it is told, the source's we pack again."""
    call = "import sys; from setuptools.build_meta import *; _, a, b = sys.argv; build_wheel(a); build_sdist(b)"
    packed = tree.parent / "sdist"
    packed.mkdir()
    subprocess.run([sys.executable, "-c", call, dist, packed], cwd=tree, check=True, stdout=subprocess.PIPE)
    (source,) = packed.iterdir()
    files = {}
    with tarfile.open(source) as archive:
        for member in archive.getmembers():
            if content := archive.extractfile(member):
                files[member.name] = content.read()
    pack(dist / source.name, files, epoch=epoch)


def _chart(charts: Path, dist: Path, *, epoch: int) -> None:
    """As `helm package` names and lays it out."""
    files = {str(path.relative_to(charts)): path.read_bytes() for path in charts.rglob("*") if path.is_file()}
    pack(dist / f"flock-{version()}.tgz", files, epoch=epoch)


def _manifests(deploy: Path, dist: Path, *, epoch: int) -> None:
    """What `kubectl apply -k` and `-f` take."""
    chosen = [*deploy.glob("*.yaml"), *(deploy / name for name in MANIFESTS)]
    name = f"flock-manifests-{version()}"
    files = {f"{name}/{path.relative_to(deploy)}": path.read_bytes() for path in chosen}
    pack(dist / f"{name}.tar.gz", files, epoch=epoch)


def _image(dist: Path, *, epoch: int) -> Path:
    """In the way of the cluster's tests; `docker load`, `ctr images import` and `skopeo` take the archive."""
    command = [sys.executable, str(ROOT / "e2e/image.py"), "--timestamp", str(epoch)]
    made = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout.split()[-1]
    target = dist / f"flock-{version()}.image.tar"
    target.write_bytes(Path(made).read_bytes())
    return target


def pack(target: Path, files: dict[str, bytes], *, epoch: int) -> None:
    """A compressed tar that depends on names, contents and `epoch` alone."""
    with gzip.GzipFile(target, "wb", mtime=epoch) as compressed, tarfile.open(fileobj=compressed, mode="w") as archive:
        for name, content in sorted(files.items()):
            entry = tarfile.TarInfo(name)
            entry.size, entry.mtime, entry.mode = len(content), epoch, 0o644
            archive.addfile(entry, io.BytesIO(content))


def _git(*words: str) -> str:
    return subprocess.run(["git", "-C", ROOT, *words], check=True, capture_output=True, text=True).stdout.strip()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="everything a release consists of, into a directory")
    parser.add_argument("--without-image", action="store_true", help="no image archive: without buildah and root")
    parser.add_argument("directory", nargs="?", type=Path, default=ROOT / "dist")
    told = parser.parse_args()
    try:
        release(told.directory.absolute(), image=not told.without_image)
    except RuntimeError as problem:
        sys.exit(str(problem))
    print((told.directory / SUMS).read_text(), end="")
