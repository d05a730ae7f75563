"""What is around flock on this host, as far as it can be seen from here: facts for `core/doctor.py`.

Nothing is changed, and nothing fails for what cannot be read: from inside a pod a host's files and processes are out of
sight, and so are they in the facts.
"""

import ctypes
import mmap
import os
import re
import socket
import struct
import subprocess
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path

import msgspec

from flock.core.conflist import CHAINED
from flock.core.doctor import Daemon, Facts, Plugin, Podman
from flock.core.errors import FlockError
from flock.core.facts import Network
from flock.core.naming import is_host_interface
from flock.edge.bird import room
from flock.edge.cnipaths import USUAL, CniPaths
from flock.edge.conflist import supported_versions
from flock.edge.kernel.node import way_to
from flock.edge.netlink import route as r
from flock.edge.netlink import wire as w
from flock.edge.netlink.socket import Netlink
from flock.edge.nft.foreign import look
from flock.edge.unixsocket import connect

SYSCTL_DIRS = ("etc/sysctl.d", "run/sysctl.d", "usr/lib/sysctl.d")
SYSTEMD = "run/systemd/system"  # there if it is what boots this host
UNITS = "etc/systemd/system/multi-user.target.wants/bird.service"
OUR_UNITS = tuple(f"{top}/systemd/system/flock-bird.service" for top in ("etc", "usr/lib", "lib"))
TURNS_OFF = re.compile(
    r"\s*-?(net[./]ipv4[./]ip_forward\s*=\s*0|net[./]ipv6[./]conf[./]all[./](forwarding\s*=\s*0|disable_ipv6\s*=\s*1)"
    r"|net[./]ipv4[./]conf[./](all|default)[./]rp_filter\s*=\s*1)\s*"
)
# The process, where it is configured, what has to stand there, and what that is about.
NETWORKD = ("systemd/networkd.conf", "systemd/networkd.conf.d")
NETWORK_MANAGER = ("NetworkManager/NetworkManager.conf", "NetworkManager/conf.d")
DAEMONS = (
    (
        "systemd-networkd",
        NETWORKD,
        r"ManageForeignRoutes\s*=\s*(no|false|0)\b",
        "others' routes (ManageForeignRoutes=no)",
    ),
    ("systemd-networkd", ("systemd/network",), r"Name\s*=.*\bflock\*", "pods' links (Name=flock*, Unmanaged=yes)"),
    ("NetworkManager", NETWORK_MANAGER, r"unmanaged-devices.*flock\*", "pods' links (unmanaged-devices: flock*)"),
)
# podman: what is configured, the later the stronger, else what it chose when it first ran.  It is not asked: it would
# choose.  One that knows CNI has the package of this name in it.
PODMANS = ("usr/bin/podman", "usr/local/bin/podman")
CONTAINERS_CONF = tuple(f"{place}/containers/containers.conf{d}" for place in ("usr/share", "etc") for d in ("", ".d"))
CHOSEN_BACKEND = "var/lib/containers/storage/defaultNetworkBackend"
BACKEND = re.compile(r"""^\s*network_backend\s*=\s*["'](\w+)""", re.MULTILINE)
CNI_PACKAGE = b"libnetwork/cni."
PATIENCE = 5.0
STA_UNSYNC = 0x40


class Surroundings(msgspec.Struct, frozen=True, kw_only=True):
    """Where to look, and what the agent knows already."""

    aggregates: tuple[Network, ...] = ()
    run_dir: Path = Path("/run/flock")
    state_dir: Path = Path("/var/lib/flock")
    conf_dir: Path | None = Path("/etc/cni/net.d")
    bin_dir: Path = Path("/opt/cni/bin")
    sysctl: Path = Path("/proc/sys/net")
    root: Path = Path("/")
    proc: Path = Path("/proc")
    usual: tuple[Path, ...] = USUAL
    peers: tuple[bytes, ...] = ()  # routers' addresses
    pods_mtu: int = 0
    bird_problem: str = ""
    fabric: tuple[str, ...] = ()
    lan: tuple[str, ...] = ()
    unclaimed: tuple[str, ...] = ()
    unnamed: tuple[str, ...] = ()
    newest_record: float = 0.0


def gather(at: Surroundings) -> Facts:
    """In the network namespace of the calling thread.  KernelRefused, OSError."""
    with Netlink() as netlink:
        links = [*netlink.dump(r.dump_links(), r.Link.decode)]
        defaults = [route for f in (w.AF_INET6, w.AF_INET) for route in _default_routes(netlink, f)]
        ways = {way_to(netlink, peer) for peer in at.peers} | {route.index for route in defaults}
    uplinks = [link for link in links if link.index in ways and not link.loopback and not is_host_interface(link.name)]
    running, filters = [*_processes(at.proc)], look(at.aggregates)
    return Facts(
        families=tuple(f"ipv{version}" for version in sorted({n.version for n in at.aggregates}, reverse=True)),
        obstacles=filters.obstacles,
        unclear=tuple(map(str, filters.unclear)),
        birds=tuple(other_birds(at.run_dir, proc=at.proc)),
        bird_unit=f"/{UNITS}" if (at.root / UNITS).is_symlink() and (at.root / SYSTEMD).is_dir() else "",
        bird_is_a_unit=any((at.root / unit).exists() for unit in OUR_UNITS),
        bird_problem=at.bird_problem,
        daemons=tuple(_daemons(at.root, {name for _, name, _ in running})),
        conflist_dir=str(at.conf_dir or ""),
        conflists=_conflists(at.conf_dir),
        plugins=tuple(_plugins(at)),
        podman=_podman(at.root),
        switches=_switches(at.sysctl, [link.name for link in uplinks]),
        at_boot=tuple(_at_boot(at.root)),
        default6=any(route.family == w.AF_INET6 for route in defaults),
        pods_mtu=at.pods_mtu,
        mtus={link.name: link.mtu for link in uplinks},
        fabric=at.fabric,
        lan=at.lan,
        unclaimed=at.unclaimed,
        unnamed=at.unnamed,
        now=time.time(),
        newest_record=at.newest_record,
        synchronised=_synchronised(),
        versions={
            "kernel": os.uname().release,
            "nft": _version("nft", "--version"),
            "bird": _version("bird", "--version"),
        },
    )


def _default_routes(netlink: Netlink, family: int) -> list[r.Route]:
    """Those that lead somewhere; one with several next hops has no interface of its own."""
    found = netlink.dump(r.dump_routes(family), r.Route.decode)
    return [route for route in found if route.length == 0 and route.kind == w.RTN_UNICAST]


# --- processes ------------------------------------------------------------------------------------------------------


def _processes(proc: Path) -> Iterator[tuple[int, str, list[str]]]:
    """Number, name and command line of those that can be seen."""
    for entry in proc.iterdir():
        if entry.name.isdecimal():
            with suppress(OSError):
                argv = (entry / "cmdline").read_bytes().decode(errors="replace").split("\0")[:-1]
                yield int(entry.name), (entry / "comm").read_text().strip(), argv


def other_birds(run_dir: Path, *, proc: Path = Path("/proc")) -> Iterator[str]:
    """Command lines of BIRDs in this network namespace that do not serve the socket in `run_dir`."""
    ours = _server(run_dir / room.SOCKET)
    with suppress(OSError):
        here = (proc / "thread-self/ns/net").readlink()
        for pid, name, argv in _processes(proc):
            if name not in ("bird", "bird6") or pid == ours or any(str(run_dir) in word for word in argv):
                continue
            if not argv or "-p" in argv:  # has ended; only looks whether a file is right, as the agent has it do
                continue
            with suppress(OSError):
                if (proc / str(pid) / "ns/net").readlink() == here:
                    yield f"{' '.join(argv)} (process {pid})"


def _server(path: Path) -> int:
    """The process behind a unix socket; 0 if there is none to be seen."""
    with suppress(OSError), connect(path, within=PATIENCE) as asking:
        pid: int = struct.unpack("3i", asking.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))[0]
        return pid
    return 0


def _daemons(root: Path, running: set[str]) -> Iterator[Daemon]:
    for name, places, wanted, about in DAEMONS:
        if name[:15] not in running:  # as much of a name as the kernel keeps
            continue
        said = "\n".join(
            _text(file) for top in ("etc", "run", "usr/lib") for p in places for file in _files(root / top / p)
        )
        if not re.search(wanted, said):
            yield Daemon(name=name, lacks=about)


# --- files ----------------------------------------------------------------------------------------------------------


def _files(path: Path) -> list[Path]:
    return sorted(path.iterdir()) if path.is_dir() else [path]


def _text(path: Path) -> str:
    try:
        return path.read_text(errors="replace")
    except OSError:
        return ""


def _conflists(directory: Path | None) -> tuple[str, ...] | None:
    """Those that a runtime reads, by order of letters."""
    if directory is None or not directory.is_dir():
        return None if directory is None else ()
    return tuple(sorted(p.name for p in directory.iterdir() if p.suffix in (".conflist", ".conf", ".json")))


def _plugins(at: Surroundings) -> Iterator[Plugin]:
    paths = CniPaths(at.state_dir)
    for name in CHAINED:
        usable = paths.find(name, at.bin_dir)
        path = usable or next((d / name for d in at.usual if (d / name).exists()), None)
        if path is not None:
            versions: tuple[str, ...] = ()
            with suppress(FlockError):
                versions = supported_versions(path)
            yield Plugin(name=name, path=str(path), versions=versions, usable=usable is not None)


def _podman(root: Path) -> Podman | None:
    program = next((root / name for name in PODMANS if (root / name).is_file()), None)
    if program is None:
        return None
    says, backend = root / CHOSEN_BACKEND, _text(root / CHOSEN_BACKEND).strip()
    for file in (f for place in CONTAINERS_CONF for f in _files(root / place) if f.suffix == ".conf"):
        if words := BACKEND.findall(_text(file)):
            says, backend = file, words[-1]
    return Podman(
        knows_cni=_contains(program, CNI_PACKAGE),
        netavark=f"/{says.relative_to(root)}" if backend == "netavark" else "",
    )


def _contains(program: Path, word: bytes) -> bool:
    try:
        with program.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
            return content.find(word) >= 0
    except (OSError, ValueError):  # not to be read, or empty
        return True


def _switches(sysctl: Path, uplinks: Iterable[str]) -> dict[str, str]:
    names = ["ipv6/conf/all/forwarding", "ipv4/ip_forward", "ipv4/conf/all/rp_filter"]
    names += [name for link in uplinks for name in (f"ipv4/conf/{link}/rp_filter", f"ipv6/conf/{link}/accept_ra")]
    found = {name: _text(sysctl / name).strip() for name in names}
    return {name: value for name, value in found.items() if value}


def _at_boot(root: Path) -> Iterator[tuple[str, str]]:
    for file in (root / "etc/sysctl.conf", *(f for d in SYSCTL_DIRS for f in _files(root / d) if f.suffix == ".conf")):
        for line in _text(file).splitlines():
            if TURNS_OFF.fullmatch(line):
                yield f"/{file.relative_to(root)}", line.strip()


# --- the rest -------------------------------------------------------------------------------------------------------


def _version(*command: str) -> str | None:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE)
    except OSError:
        return None
    except subprocess.TimeoutExpired:
        return ""
    return next(iter(re.findall(r"\d+(?:\.\d+)+", done.stdout + done.stderr)), "")


def _synchronised() -> bool:
    """As the kernel was told by a time daemon."""
    timex = ctypes.create_string_buffer(256)
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.adjtimex(timex) < 0:
        return True
    (status,) = struct.unpack_from("=i", timex, 40)  # after modes, offset, freq, maxerror, esterror
    return not status & STA_UNSYNC
