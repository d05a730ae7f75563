"""Debian's podman 4 on a test's node, unpacked beside it and never installed: a single root file system, no images.

All that it writes is in the node's directory or in the node's own /run and /var/lib.
"""

import json
import os
import subprocess
from pathlib import Path
from typing import Any

from runtime_node import Node
from unpacking import unpacked

PACKAGES = ("podman", "conmon", "libsubid4", "libgpgme11", "libassuan0")


def podman4() -> Path | None:
    """Debian's files; None where they cannot be had, or podman is another than version 4."""
    root = unpacked("podman", *PACKAGES)
    if root is None:
        return None
    version = subprocess.run([root / "usr/bin/podman", "--version"], capture_output=True, text=True, env=_env(root))
    return root if version.stdout.startswith("podman version 4.") else None


def _env(root: Path) -> dict[str, str]:
    return {**os.environ, "LD_LIBRARY_PATH": ":".join(map(str, root.glob("usr/lib/*-linux-gnu")))}


class Podman:
    def __init__(self, node: Node, root: Path, *, program: Path, plugins: Path, networks: Path) -> None:
        self.node, self._root = node, root
        home = node.directory / "podman"
        self._rootfs = home / "rootfs"
        self._rootfs.mkdir(parents=True)
        (self._rootfs / program.name).write_bytes(program.read_bytes())
        (self._rootfs / program.name).chmod(0o755)
        self._program = f"/{program.name}"
        conf = home / "containers.conf"
        conf.write_text(
            f"""
[engine]
runtime = "runc"
conmon_path = ["{root}/usr/bin/conmon"]
cgroup_manager = "cgroupfs"
events_logger = "none"
[containers]
pids_limit = 0
[network]
network_backend = "cni"
network_config_dir = "{networks}"
cni_plugin_dirs = ["{plugins}"]
"""
        )
        storage = f'[storage]\ndriver = "vfs"\nrunroot = "{home}/runroot"\ngraphroot = "{home}/root"\n'
        (home / "storage.conf").write_text(storage)
        self._env = {
            "CONTAINERS_CONF": str(conf),
            "CONTAINERS_STORAGE_CONF": str(home / "storage.conf"),
            "LD_LIBRARY_PATH": _env(root)["LD_LIBRARY_PATH"],
        }

    def attempt(self, *argv: str) -> "subprocess.CompletedProcess[str]":
        settings = [f"{key}={value}" for key, value in self._env.items()]
        return self.node.attempt("env", *settings, self._root / "usr/bin/podman", *argv)

    def run(self, *argv: str) -> str:
        done = self.attempt(*argv)
        assert done.returncode == 0, f"podman {' '.join(argv)}: {done.stderr}"
        return done.stdout

    def _new(self, name: str, *options: str) -> tuple[str, ...]:
        cgroup = ("--cgroup-parent", self.node.cgroup)
        where = ("--rootfs", str(self._rootfs), self._program)
        return ("run", "-d", "--name", name, "--log-driver=none", "--network=flock", *cgroup, *options, *where)

    def start(self, name: str, *options: str) -> None:
        """A container of the network `flock`."""
        self.run(*self._new(name, *options))

    def attempt_start(self, name: str, *options: str) -> "subprocess.CompletedProcess[str]":
        return self.attempt(*self._new(name, *options))

    def settings(self, name: str) -> Any:
        return json.loads(self.run("inspect", name))[0]["NetworkSettings"]["Networks"]["flock"]

    def remove(self, name: str) -> None:
        self.run("rm", "-f", "-t", "0", name)
