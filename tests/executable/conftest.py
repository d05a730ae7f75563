"""`build/flock` is what is tested.  Silence and fuzz use a build of the same source with short patience, under the
address and undefined-behaviour sanitizers.
"""

import subprocess
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from calling import ROOT


@pytest.fixture(scope="session")
def flock() -> Path:
    executable = ROOT / "build/flock"
    if not executable.exists():
        subprocess.run(["make", "build"], cwd=ROOT, check=True)
    return executable


@pytest.fixture(scope="session")
def impatient(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same source, short of patience and under sanitizers."""
    executable = tmp_path_factory.mktemp("impatient") / "flock"
    flags = ["-std=gnu11", "-g", "-O1", "-fsanitize=address,undefined", "-fno-sanitize-recover=all"]
    patience = ["-DANSWER_GRACE_MS=200", "-DSTATUS_PATIENCE_MS=200"]
    subprocess.run(["gcc", *flags, *patience, "-o", executable, ROOT / "cni/flock.c"], check=True)
    return executable


@pytest.fixture(scope="session")
def run_dir() -> Iterator[Path]:
    with TemporaryDirectory(prefix="flock-") as path:  # short: a socket's path ends at 107 bytes
        yield Path(path)


@pytest.fixture
def sock(run_dir: Path) -> Path:
    return run_dir / "agent.sock"
