"""Which files pip may install, by their hashes: `requirements/run.txt` for image and package, `dev.txt` to develop.

    .venv/bin/python scripts/lock.py

Resolves pyproject.toml's dependencies for each Python and machine that is supported and writes the hashes of all
wheels.  Nothing says which index they come from: a mirror serves as well.  A change of pyproject.toml calls for it.
"""

import json
import subprocess
import sys
import tempfile
import tomllib
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).parent.parent
PYTHONS = ("3.11", "3.13")  # Debian 12 and 13
MACHINES = ("x86_64", "aarch64")
GLIBC = 36  # Debian 12's 2.36: wheels for an older one do as well
HEAD = "# Written by scripts/lock.py of pyproject.toml; docs/releasing.md.\n"


def wanted() -> dict[str, list[str]]:
    """What each file has to bring, by its name; what builds flock itself is part of both."""
    told = tomllib.loads((ROOT / "pyproject.toml").read_text())
    build, run = told["build-system"]["requires"], told["project"]["dependencies"]
    return {"run.txt": run, "dev.txt": [*run, *build, *told["project"]["optional-dependencies"]["dev"]]}


def lock(requirements: list[str]) -> str:
    hashes: dict[str, set[str]] = defaultdict(set)
    for python in PYTHONS:
        for machine in MACHINES:
            for name, digest in _resolved(requirements, python=python, machine=machine):
                hashes[name].add(digest)
    lines = (" \\\n    --hash=sha256:".join([name, *sorted(found)]) for name, found in sorted(hashes.items()))
    return HEAD + "\n".join(lines) + "\n"


def _resolved(requirements: list[str], *, python: str, machine: str) -> list[tuple[str, str]]:
    """`name==version` and the hash of the wheel that fits.  Raises CalledProcessError if there is none."""
    platforms = ["manylinux2014", "manylinux1", *(f"manylinux_2_{minor}" for minor in range(GLIBC, 4, -1))]
    with tempfile.TemporaryDirectory() as nowhere:
        command = [
            sys.executable,
            "-m",
            "pip",
            "install",
            "--dry-run",
            "--ignore-installed",
            "--quiet",
            "--report",
            "-",
        ]
        where = ["--target", nowhere, "--only-binary", ":all:", "--python-version", python]
        fit = [f"--platform={platform}_{machine}" for platform in platforms]
        said = subprocess.run([*command, *where, *fit, *requirements], check=True, stdout=subprocess.PIPE).stdout
    return [
        (
            f"{one['metadata']['name']}=={one['metadata']['version']}",
            one["download_info"]["archive_info"]["hashes"]["sha256"],
        )
        for one in json.loads(said)["install"]
    ]


if __name__ == "__main__":
    for name, requirements in wanted().items():
        (ROOT / "requirements" / name).write_text(lock(requirements))
