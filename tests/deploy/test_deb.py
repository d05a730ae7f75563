"""The Debian package: what is in it works from where it is put, and says what it needs."""

import gzip
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import flock

ROOT = Path(__file__).parent.parent.parent
pytestmark = pytest.mark.slow  # pip puts its Python parts together


def run(*command: object, **options: object) -> str:
    done = subprocess.run([*map(str, command)], capture_output=True, text=True, timeout=300, **options)  # type: ignore[call-overload]
    assert done.returncode == 0, done.stderr
    return str(done.stdout)


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return Path(run(sys.executable, ROOT / "scripts/deb.py", tmp_path_factory.mktemp("deb")).strip())


@pytest.fixture(scope="module")
def tree(package: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    unpacked = tmp_path_factory.mktemp("tree")
    run("dpkg-deb", "-x", package, unpacked)
    return unpacked


def test_it_says_what_it_is_and_needs(package: Path) -> None:
    told = run("dpkg-deb", "-f", package)
    assert f"Version: {flock.__version__}-1~deb" in told
    python = ".".join(map(str, sys.version_info[:2]))
    assert re.search(rf"Depends: .*python3 \(>= {re.escape(python)}\).*bird2 .*nftables", told)


def test_programs_run_from_their_own_library(tree: Path) -> None:
    for program in ("flockctl", "flock-agent", "flock-installer"):
        text = (tree / "usr/bin" / program).read_text()
        assert text.startswith("#!/usr/bin/python3 -sP\n")
        here = text.replace('"/usr/lib/flock', f'"{tree}/usr/lib/flock')
        assert flock.__version__ in run("/usr/bin/python3", "-sP", "-c", here, "--version", cwd="/")


def test_the_executable_is_where_debians_plugins_are(tree: Path) -> None:
    assert os.access(tree / "usr/lib/cni/flock", os.X_OK)
    assert not (tree / "opt").exists()  # dpkg would remove it with the package; links there are the scripts' work


def test_units_name_what_is_installed(tree: Path) -> None:
    units = {path.name: path.read_text() for path in (tree / "usr/lib/systemd/system").iterdir()}
    assert sorted(units) == ["flock-agent.service", "flock-bird.service"]
    assert "ExecStart=/usr/bin/flock-agent\n" in units["flock-agent.service"]
    assert "FLOCK_CNI_BIN_DIR=/usr/lib/cni\n" in units["flock-agent.service"]
    assert "Conflicts=bird.service" in units["flock-bird.service"]
    for text in units.values():
        assert "@" not in text
        assert "WantedBy=multi-user.target" in text


def test_the_sample_is_a_nodeconfig_once_it_is_copied(tree: Path) -> None:
    from flock.core.manifest import parse_manifest
    from flock.core.nodeconfig import parse_node_config

    sample = tree / "etc/flock/manifests/nodeconfig.yaml.sample"
    object_ = sample.read_text()[sample.read_text().index("apiVersion:") :]
    said = "\n".join(line.removeprefix("#") for line in object_.splitlines())
    for text in (sample.read_text(), said):
        (config,) = parse_manifest(text.encode(), node=None).objects.values()
        assert parse_node_config(config).cidr6  # type: ignore[arg-type]


def test_manual_pages_and_completion_name_every_command(tree: Path) -> None:
    manual = gzip.decompress((tree / "usr/share/man/man8/flockctl.8.gz").read_bytes()).decode().replace("\\-", "-")
    completion = (tree / "usr/share/bash-completion/completions/flockctl").read_text()
    for command in ("status", "router-config", "policy", "view", "lab"):
        assert command in manual
        assert command in completion
    asked = f"source {tree}/usr/share/bash-completion/completions/flockctl; COMP_WORDS=(flockctl po); COMP_CWORD=1; "
    assert run("bash", "-c", asked + '_flockctl; echo "${COMPREPLY[@]}"').split() == ["pods", "policy"]


def test_the_same_tree_gives_the_same_bytes(package: Path, tmp_path: Path) -> None:
    again = Path(run(sys.executable, ROOT / "scripts/deb.py", tmp_path).strip())
    assert again.read_bytes() == package.read_bytes()


def test_nothing_says_where_it_was_built(tree: Path) -> None:
    found = [path for path in tree.rglob("*") if path.is_file() and str(ROOT).encode() in path.read_bytes()]
    assert found == []
