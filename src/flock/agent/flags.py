"""The agent's flags.  Each has an environment variable of the same name: --state-dir is FLOCK_STATE_DIR."""

import argparse
import os
from collections.abc import Mapping, Sequence
from pathlib import Path

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


def parse(argv: Sequence[str] | None = None, env: Mapping[str, str] = os.environ) -> Settings:
    parser = argparse.ArgumentParser(
        prog="flock-agent",
        description="The node agent of flock: gives pods their addresses, links, routes and rules.",
        epilog="Every flag can be given as an environment variable: --state-dir as FLOCK_STATE_DIR, and so on.",
    )

    def flag(name: str, *, default: str | None, text: str, metavar: str) -> None:
        value = env.get("FLOCK_" + name.removeprefix("--").replace("-", "_").upper(), default)
        shown = f" (default: {default})" if default else ""
        parser.add_argument(name, default=value, help=text + shown, metavar=metavar)

    flag("--node", default=None, text="this node's name, as in the Node and NodeConfig objects", metavar="NAME")
    flag("--manifests", default=None, text="read objects from a directory of manifests", metavar="DIR")
    flag("--kubeconfig", default=None, text="reach the Kubernetes API as this file says", metavar="FILE")
    flag("--apiserver", default="", text="the API server, instead of the in-cluster address", metavar="URL")
    flag("--namespace", default="flock-system", text="the agent's namespace, where Secrets are", metavar="NAME")
    flag("--state-dir", default="/var/lib/flock", text="where allocations.json lives; must exist", metavar="DIR")
    flag("--run-dir", default="/run/flock", text="where the sockets live", metavar="DIR")
    flag("--bird-dir", default="/etc/flock/bird", text="where bird.conf lives", metavar="DIR")
    flag("--http", default="127.0.0.1:9465", text="health and status pages; empty for none", metavar="ADDRESS:PORT")
    flag("--sysctl-dir", default="/proc/sys/net", text="the host's /proc/sys/net, writable", metavar="DIR")
    flag("--units-dir", default="/run/systemd/units", text="tells when the host goes down", metavar="DIR")
    flag("--cni-conf-dir", default="", text="where to write 01-flock.conflist; empty: nowhere", metavar="DIR")
    flag("--cni-bin-dir", default="/opt/cni/bin", text="where plugins to chain are looked for", metavar="DIR")
    flag("--cni-wait", default="30", text="the conflist's `wait` for an agent that is away", metavar="SECONDS")
    flag("--strict", default="off", text="on: every new deny cuts established connections too", metavar="on|off")
    flag("--antispoofing", default="on", text="off: pods may send from any address", metavar="on|off")
    flag("--grace", default="600", text="seconds until a vanished pod's addresses are freed", metavar="SECONDS")
    flag("--cooldown", default="120", text="seconds a released address rests", metavar="SECONDS")
    flag("--log-level", default="info", text="debug, info, warning or error", metavar="LEVEL")
    parser.add_argument("--version", action="version", version=f"flock-agent {__version__}")
    given = parser.parse_args(argv)

    if not given.node:
        parser.error("--node (or FLOCK_NODE) is required: this node's name")
    if given.manifests and given.kubeconfig:
        parser.error("--manifests and --kubeconfig exclude each other")
    return Settings(
        node=given.node,
        manifests=Path(given.manifests) if given.manifests else None,
        kubeconfig=Path(given.kubeconfig) if given.kubeconfig else None,
        apiserver=given.apiserver,
        namespace=given.namespace,
        state_dir=Path(given.state_dir),
        run_dir=Path(given.run_dir),
        bird_dir=Path(given.bird_dir),
        http=_endpoint(parser, given.http),
        sysctl_dir=Path(given.sysctl_dir),
        units_dir=Path(given.units_dir),
        cni_conf_dir=Path(given.cni_conf_dir) if given.cni_conf_dir else None,
        cni_bin_dir=Path(given.cni_bin_dir),
        cni_wait=_seconds(parser, "--cni-wait", given.cni_wait),
        strict=_switch(parser, "--strict", given.strict),
        antispoofing=_switch(parser, "--antispoofing", given.antispoofing),
        grace=_seconds(parser, "--grace", given.grace),
        cooldown=_seconds(parser, "--cooldown", given.cooldown),
        log_level=_level(parser, given.log_level),
    )


def _switch(parser: argparse.ArgumentParser, name: str, text: str) -> bool:
    if text not in ("on", "off"):
        parser.error(f"{name}: {text!r} is neither on nor off")
    return text == "on"


def _seconds(parser: argparse.ArgumentParser, name: str, text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value < 1e9:
        parser.error(f"{name}: {text!r} is not a number of seconds")
    return value


def _endpoint(parser: argparse.ArgumentParser, text: str) -> str:
    host, _, port = text.rpartition(":")
    if text and not (host and port.isdigit() and int(port) < 65536):
        parser.error(f"--http: {text!r} is not ADDRESS:PORT")
    return text


def _level(parser: argparse.ArgumentParser, text: str) -> str:
    if text.lower() not in ("debug", "info", "warning", "error"):
        parser.error(f"--log-level: {text!r} is none of debug, info, warning, error")
    return text.upper()
