"""flock's own image, from the shipped Dockerfile, without any image registry.

`mmdebstrap` makes the Debian base that a registry would provide, pip the wheels, and `buildah` builds with the base as
the Dockerfile's argument.  Base, wheels and image are kept in the cache, each under a name made of its ingredients.
"""

import argparse
import platform
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from images import archive, cache, fingerprint

from flock import __version__

CHECKOUT = Path(__file__).parents[1]
DOCKERFILE = CHECKOUT / "deploy" / "Dockerfile"
IMAGE = "localhost/flock"  # as the manifests say
SUITE, PYTHON = "bookworm", "3.11"  # of the Debian that the Dockerfile names, whatever this machine runs

# The same that Debian's slim images leave out.
_SLIM = [f"path-exclude=/usr/share/{name}/*" for name in ("doc", "man", "info", "locale", "groff", "lintian")]


def flock(version: str = __version__, *, timestamp: int | None = None) -> tuple[str, Path]:
    """The name and archive of the image.  Two versions differ in nothing but the name: enough for an upgrade.

    With a `timestamp` as the time of everything in it, two builds of the same packages are equal.
    """
    tag = f"{IMAGE}:{version}"
    context = {
        "flock": CHECKOUT / "build" / "flock",
        "unpack-wheels": CHECKOUT / "deploy" / "unpack-wheels",
        "wheels": wheels(),
    }
    name = f"flock-{version}" if timestamp is None else f"release-{version}"
    return tag, archive(name, tag, dockerfile=DOCKERFILE, context=context, base=base(), timestamp=timestamp)


def base() -> Path:
    """A minimal Debian as a tar, from the mirrors this machine uses."""
    candidates = (Path("/etc/apt/sources.list.d/debian.sources"), Path("/etc/apt/sources.list"))
    own = next(path for path in candidates if path.exists()).read_text()
    sources = sources_of_suite(own, suite=platform.freedesktop_os_release()["VERSION_CODENAME"])
    result = cache() / f"base-{fingerprint([], sources, SUITE, *_SLIM)}.tar"
    if not result.exists():
        partial = result.with_suffix(".partial.tar")
        options = ["--variant=apt", "--mode=root", *(f"--dpkgopt={option}" for option in _SLIM)]
        _quietly("mmdebstrap", *options, SUITE, partial, "-", told=sources)
        partial.replace(result)
    return result


def sources_of_suite(sources: str, *, suite: str) -> str:
    """A machine's list of package sources, made for the image's suite: its updates and security updates included."""
    return re.sub(rf"\b{suite}\b", SUITE, sources)


def wheels() -> Path:
    """A directory with flock's wheel, which any Python takes, and its dependencies' for the image's Python."""
    ingredients = [
        CHECKOUT / name for name in ("src/flock", "pyproject.toml", "README.md", "LICENSE", "requirements/run.txt")
    ]
    fit = fitting(platform.machine())
    result = cache() / f"wheels-{fingerprint(ingredients, *fit)}"
    if not result.exists():
        for old in cache().glob("wheels-*"):
            shutil.rmtree(old)
        with tempfile.TemporaryDirectory(prefix="wheels.", dir=cache()) as work:
            source, made = Path(work) / "source", Path(work) / "made"
            for ingredient in ingredients:  # a copy: setuptools leaves its traces where it builds
                _copy(ingredient, source / ingredient.relative_to(CHECKOUT))
            pip = [sys.executable, "-m", "pip", "--disable-pip-version-check"]
            locked = ["--require-hashes", "-r", source / "requirements/run.txt"]
            _quietly(*pip, "download", *fit, *locked, "--dest", made)
            _quietly(*pip, "wheel", "--no-deps", "--no-build-isolation", source, "--wheel-dir", made)
            made.rename(result)
    return result


def fitting(machine: str) -> list[str]:
    """How pip is told for whom the wheels are: not for the Python that runs it."""
    return ["--only-binary=:all:", "--python-version", PYTHON, "--platform", f"manylinux2014_{machine}"]


def _quietly(*argv: str | Path, told: str | None = None) -> None:
    """Run a program that talks much and is read only when it fails."""
    done = subprocess.run(argv, input=told, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"{argv[0]}: {done.stderr}{done.stdout}")


def _copy(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    if source.is_dir():
        shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__"))
    else:
        shutil.copy(source, target)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="build the image; prints its name and archive")
    parser.add_argument("--timestamp", type=int, help="the time of everything in it, in seconds since the epoch")
    print(*flock(timestamp=parser.parse_args().timestamp))
