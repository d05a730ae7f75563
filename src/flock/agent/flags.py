"""The agent's flags.  Each has an environment variable of the same name: --state-dir is FLOCK_STATE_DIR."""

import argparse
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from flock import __version__


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    node: str
    manifests: Path | None
    kubeconfig: Path | None
    apiserver: str
    namespace: str
    state_dir: Path
    run_dir: Path
    bird_dir: Path
    http: str
    metrics: str
    sysctl_dir: Path
    units_dir: Path
    cni_conf_dir: Path | None
    cni_bin_dir: Path
    cni_wait: float
    strict: bool
    antispoofing: bool
    grace: float
    cooldown: float
    log_level: str


def _path(given: str) -> Path | None:
    return Path(given) if given else None


def _switch(given: str) -> bool:
    if given not in ("on", "off"):
        raise ValueError(f"{given!r} is neither on nor off")
    return given == "on"


def _seconds(given: str) -> float:
    try:
        value = float(given)
    except ValueError:
        value = -1.0
    if not 0 <= value < 1e9:
        raise ValueError(f"{given!r} is not a number of seconds")
    return value


def _endpoint(given: str) -> str:
    host, _, port = given.rpartition(":")
    if given and not (host and port.isdigit() and int(port) < 65536):
        raise ValueError(f"{given!r} is not ADDRESS:PORT")
    return given


def _level(given: str) -> str:
    if given.lower() not in ("debug", "info", "warning", "error"):
        raise ValueError(f"{given!r} is none of debug, info, warning, error")
    return given.upper()


# Name, what it takes, default, how it is read (ValueError says what is wrong), what it is for.
FLAGS: tuple[tuple[str, str, str, Callable[[str], Any], str], ...] = (
    ("--node", "NAME", "", str, "this node's name, as in the Node and NodeConfig objects"),
    ("--manifests", "DIR", "", _path, "read objects from a directory of manifests"),
    ("--kubeconfig", "FILE", "", _path, "reach the Kubernetes API as this file says"),
    ("--apiserver", "URL", "", str, "the API server, instead of the in-cluster address"),
    ("--namespace", "NAME", "flock-system", str, "the agent's namespace, where Secrets are"),
    ("--state-dir", "DIR", "/var/lib/flock", Path, "where allocations.json lives; must exist"),
    ("--run-dir", "DIR", "/run/flock", Path, "where the sockets live"),
    ("--bird-dir", "DIR", "/etc/flock/bird", Path, "where bird.conf lives"),
    ("--http", "ADDRESS:PORT", "127.0.0.1:9465", _endpoint, "health and status pages; empty for none"),
    ("--metrics", "ADDRESS:PORT", "", _endpoint, "the metrics alone, for a scraper elsewhere"),
    ("--sysctl-dir", "DIR", "/proc/sys/net", Path, "the host's /proc/sys/net, writable"),
    ("--units-dir", "DIR", "/run/systemd/units", Path, "tells when the host goes down"),
    ("--cni-conf-dir", "DIR", "", _path, "where to write 01-flock.conflist; empty: nowhere"),
    ("--cni-bin-dir", "DIR", "/opt/cni/bin", Path, "where plugins to chain are looked for"),
    ("--cni-wait", "SECONDS", "30", _seconds, "the conflist's `wait` for an agent that is away"),
    ("--strict", "on|off", "off", _switch, "on: every new deny cuts established connections too"),
    ("--antispoofing", "on|off", "on", _switch, "off: pods may send from any address"),
    # Kubelet cleans up its old sandboxes within minutes of a boot; whatever is still there then was forgotten.
    ("--grace", "SECONDS", "600", _seconds, "seconds until a vanished pod's addresses are freed"),
    ("--cooldown", "SECONDS", "120", _seconds, "seconds a released address rests"),
    ("--log-level", "LEVEL", "info", _level, "debug, info, warning or error"),
)


def parse(argv: Sequence[str] | None = None, env: Mapping[str, str] = os.environ) -> Settings:
    parser = argparse.ArgumentParser(
        prog="flock-agent",
        description="The node agent of flock: gives pods their addresses, links, routes and rules.",
        epilog="Every flag can be given as an environment variable: --state-dir as FLOCK_STATE_DIR, and so on.",
    )
    for name, metavar, default, _, text in FLAGS:
        value = env.get("FLOCK_" + name.removeprefix("--").replace("-", "_").upper(), default)
        shown = f" (default: {default})" if default else ""
        parser.add_argument(name, default=value, help=text + shown, metavar=metavar)
    parser.add_argument("--version", action="version", version=f"flock-agent {__version__}")
    given = vars(parser.parse_args(argv))

    if not given["node"]:
        parser.error("--node (or FLOCK_NODE) is required: this node's name")
    if given["manifests"] and given["kubeconfig"]:
        parser.error("--manifests and --kubeconfig exclude each other")
    for (name, _, _, read, _), (field, text) in zip(FLAGS, given.items(), strict=True):
        try:
            given[field] = read(text)
        except ValueError as problem:
            parser.error(f"{name}: {problem}")
    return Settings(**given)
