"""Images for the cluster, built without any registry and kept as archives in the cache.

An archive is named after everything that went into it, so that a change of any part, and nothing else, makes a new one.
"""

import hashlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path

HERE = Path(__file__).parent
TOOLBOX = "flock.test/toolbox:1"
SANDBOX = TOOLBOX


def cache() -> Path:
    """Outside the checkout, shared by all of them; `build-kubernetes` uses the same."""
    path = Path(os.environ.get("FLOCK_E2E_CACHE") or Path.home() / ".cache" / "flock-e2e")
    path.mkdir(parents=True, exist_ok=True)
    return path


def toolbox() -> Path:
    """The archive of the image that sandboxes and the tests' pods run."""
    busybox = Path(shutil.which("busybox") or "busybox")
    dockerfile = HERE / "toolbox" / "Dockerfile"
    return archive("toolbox", TOOLBOX, dockerfile=dockerfile, context={"busybox": busybox})


def archive(
    name: str,
    tag: str,
    *,
    dockerfile: Path,
    context: Mapping[str, Path],
    base: Path | None = None,
    timestamp: int | None = None,
) -> Path:
    """Build `dockerfile` with the files and directories of `context`; `base` is a root file system, as a tar, that
    the Dockerfile names by its argument BASE; `timestamp` the time of every file and of the image."""
    made_of = [dockerfile, *context.values(), *([base] if base else [])]
    result = cache() / f"{name}-{fingerprint(made_of, tag, str(timestamp))}.image.tar"
    if not result.exists():
        for old in cache().glob(f"{name}-*.image.tar"):
            old.unlink()
        _build(result, tag, dockerfile=dockerfile, context=context, base=base, timestamp=timestamp)
    return result


def _build(
    result: Path,
    tag: str,
    *,
    dockerfile: Path,
    context: Mapping[str, Path],
    base: Path | None,
    timestamp: int | None,
) -> None:
    """In a store of its own, which goes away: layers are not worth keeping for one image."""
    with tempfile.TemporaryDirectory(prefix="image.", dir=cache()) as work:
        store, tree = Path(work) / "store", Path(work) / "context"
        store.mkdir()
        (store / "containers.conf").write_text(f'[network]\nnetwork_config_dir = "{store}/networks"\n')
        for name, source in context.items():
            target = tree / name
            target.parent.mkdir(parents=True, exist_ok=True)
            (shutil.copytree if source.is_dir() else shutil.copy)(source, target)
        when = [] if timestamp is None else ["--timestamp", str(timestamp)]
        arguments = []
        if base:
            container = _buildah(store, "from", "scratch")
            _buildah(store, "add", container, str(base), "/")
            _buildah(store, "commit", *when, container, "localhost/base")
            arguments = ["--build-arg", "BASE=localhost/base"]
        arguments += when and [*when, "--build-arg", f"SOURCE_DATE_EPOCH={timestamp}"]
        _buildah(store, "build", *arguments, "--pull-never", "--tag", tag, "--file", str(dockerfile), str(tree))
        # Docker's form of archive: its layers are not compressed, which saves seconds here and on every node.
        _buildah(store, "push", tag, f"docker-archive:{work}/image.tar:{tag}")
        (Path(work) / "image.tar").replace(result)


def _buildah(store: Path, *argv: str) -> str:
    """It needs neither a daemon nor a kernel's overlay: plain directories and chroot.  Left to itself it makes a
    directory for CNI in the machine's /etc."""
    places = ["--root", str(store), "--runroot", str(store / "run")]
    settings = {"STORAGE_DRIVER": "vfs", "BUILDAH_ISOLATION": "chroot", "CONTAINERS_CONF": f"{store}/containers.conf"}
    done = subprocess.run(["buildah", *places, *argv], env=os.environ | settings, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"buildah {' '.join(argv)}: {done.stderr}{done.stdout}")
    return done.stdout.strip()


def fingerprint(paths: Iterable[Path], *words: str) -> str:
    """A short name for the content of files and directories."""
    digest = hashlib.sha256("\0".join(words).encode())
    for path in paths:
        for file in sorted(path.rglob("*")) if path.is_dir() else [path]:
            if file.is_file() and file.suffix != ".pyc":
                digest.update(f"{file.relative_to(path)}\0".encode())
                digest.update(hashlib.sha256(file.read_bytes()).digest())
    return digest.hexdigest()[:12]
