"""Debian's packages beside a test: fetched once, unpacked, never installed."""

import subprocess
from pathlib import Path

CACHE = Path(__file__).parents[2] / "build"


def unpacked(name: str, *packages: str) -> Path | None:
    """The files of the packages, as below /; None where they cannot be had."""
    cache = CACHE / name
    root = cache / "root"
    if not root.exists():
        cache.mkdir(parents=True, exist_ok=True)
        if subprocess.run(["apt-get", "download", *packages], cwd=cache, capture_output=True).returncode:
            return None
        for package in cache.glob("*.deb"):
            subprocess.run(["dpkg-deb", "-x", package, cache / "new"], check=True)
        (cache / "new").rename(root)
    return root
