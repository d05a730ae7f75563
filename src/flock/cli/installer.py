"""flock-installer: puts on a host what the container runtime and the host's own network daemons need to know of flock.

The executable, and a few lines for systemd-networkd, NetworkManager and iproute2.  What is in place already is left as
it is; what is new is complete before anybody sees it.  The network configuration of the runtime is not among it: the
agent writes that once it can serve.

Only flock's own files are replaced or removed.  The executable is recognised by the socket's default path in it, text
files by their first line.
"""

import argparse
import contextlib
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from importlib import resources
from pathlib import Path

import msgspec

from flock import __version__
from flock.cli.speaking import speaking
from flock.cli.uninstall import uninstall as take_off
from flock.core.conflist import VERSION
from flock.core.errors import FlockError
from flock.core.naming import PROTO_ANNOUNCE, PROTO_POD
from flock.edge.conflist import supported_versions
from flock.edge.placing import place

MARK = "# Written by flock-installer, which writes it again and takes it away with --uninstall."
SIGNATURE = b"/run/flock/flock.sock"  # the default that every release of the executable has in it

# Pods' links are ours: a daemon that took one over would remove its addresses and routes.
NETWORKD = """\
[Match]
Name=flock*

[Link]
Unmanaged=yes
"""
# Else a restart of networkd removes what BIRD and flock have put on the links it does manage.
NETWORKD_ROUTES = """\
[Network]
ManageForeignRoutes=no
ManageForeignNextHops=no
"""
NETWORK_MANAGER = """\
[keyfile]
unmanaged-devices+=interface-name:flock*
"""
RT_PROTOS = f"""\
{PROTO_POD}\tflock-pod
{PROTO_ANNOUNCE}\tflock-announce
"""
UNITS = ("flock-agent.service", "flock-bird.service")
HOMES = tuple(map(Path, ("/home", "/root", "/run/user")))  # which the units do not see: ProtectHome=yes


def unit(name: str, *, plugins: Path, programs: Path | None = None) -> str:
    """A unit of systemd for a host without Kubernetes; `programs` are where this one is, unless said otherwise."""
    text = resources.files("flock.cli").joinpath("units", name).read_text()
    beside = programs or Path(sys.argv[0]).resolve().parent
    return text.replace("@bin@", str(beside)).replace("@plugins@", str(plugins))


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    executable: Path
    bin_dir: Path
    conf_dir: Path
    networkd_dir: Path | None
    networkd_conf_dir: Path | None
    networkmanager_dir: Path | None
    rt_protos_dir: Path | None
    systemd_dir: Path | None
    run_dir: Path
    bird_dir: Path
    uninstall: bool
    systemd: bool

    @property
    def target(self) -> Path:
        return self.bin_dir / "flock"

    @property
    def texts(self) -> Iterator[tuple[Path, str]]:
        """The text files to have, without those for which no directory was given."""
        wanted = (
            (self.networkd_dir, "00-flock.network", NETWORKD),
            (self.networkd_conf_dir, "flock.conf", NETWORKD_ROUTES),
            (self.networkmanager_dir, "flock.conf", NETWORK_MANAGER),
            (self.rt_protos_dir, "flock.conf", RT_PROTOS),
        )
        units = ((self.systemd_dir, name, unit(name, plugins=self.bin_dir)) for name in UNITS if self._has_units)
        found = (entry for entry in (*wanted, *units) if entry[0] is not None)
        return ((directory / name, f"{MARK}\n{text}") for directory, name, text in found if directory is not None)

    @property
    def _has_units(self) -> bool:
        return self.systemd or self.uninstall


def parse(argv: Sequence[str] | None = None, env: Mapping[str, str] = os.environ) -> Settings:
    parser = argparse.ArgumentParser(
        prog="flock-installer",
        description="Puts flock's CNI executable and the drop-ins for the host's network daemons in place.",
        epilog="Every flag can be given as an environment variable: --bin-dir as FLOCK_BIN_DIR, and so on. "
        "An empty directory for a drop-in means none.",
    )

    def flag(name: str, default: str, text: str) -> None:
        value = env.get("FLOCK_" + name.removeprefix("--").replace("-", "_").upper(), default)
        parser.add_argument(name, default=value, help=f"{text} (default: {default})", metavar="PATH")

    flag("--executable", "/usr/local/lib/flock/flock", "the executable to install")
    flag("--bin-dir", "/opt/cni/bin", "where the runtime looks for CNI executables")
    flag("--conf-dir", "/etc/cni/net.d", "where it looks for configurations; with --uninstall flock's is removed")
    flag("--networkd-dir", "/etc/systemd/network", "for systemd-networkd: which links are not its own")
    flag("--networkd-conf-dir", "/etc/systemd/networkd.conf.d", "for systemd-networkd: which routes are not its own")
    flag("--networkmanager-dir", "/etc/NetworkManager/conf.d", "for NetworkManager: which links are not its own")
    flag("--rt-protos-dir", "/etc/iproute2/rt_protos.d", "for `ip`: names of flock's route protocols")
    flag("--systemd-dir", "/etc/systemd/system", "for systemd, with --systemd: units of the agent and of BIRD")
    flag("--run-dir", "/run/flock", "the agent's; with --uninstall all of flock's in it is removed")
    flag("--bird-dir", "/etc/flock/bird", "where bird.conf is; with --uninstall flock's is removed")
    parser.add_argument("--uninstall", action="store_true", help="remove all of flock, from a host without its pods")
    parser.add_argument(
        "--systemd",
        action="store_true",
        help="units too, for a host without Kubernetes: the agent and BIRD as services",
    )
    parser.add_argument("--version", action="version", version=f"flock-installer {__version__}")
    given = vars(parser.parse_args(argv))
    switches = {name: given.pop(name) for name in ("uninstall", "systemd")}
    paths = {name: Path(text) if text else None for name, text in given.items()}
    for name in ("executable", "bin_dir", "conf_dir", "run_dir", "bird_dir"):
        if paths[name] is None:
            parser.error(f"--{name.replace('_', '-')} must not be empty")
    return msgspec.convert({**paths, **switches}, Settings)


# --- install ------------------------------------------------------------------------------------------------


def install(settings: Settings) -> Iterator[str]:
    """What was done, line by line.  FlockError or OSError at the first thing that cannot be done."""
    if settings.systemd:
        _refuse_homes()
    yield _install_executable(settings)
    for path, text in settings.texts:
        yield _install_text(path, text)


def _refuse_homes() -> None:
    """The agent would not start (203/EXEC), or not find its modules."""
    for program in (path.resolve() for path in map(Path, (sys.argv[0], sys.executable, __file__))):
        if home := next(filter(program.is_relative_to, HOMES), None):
            why = f"services do not see what is below {home} (ProtectHome=yes)"
            raise FlockError(f"{program}: {why}: install flock elsewhere, to /srv or /opt, and run it from there")


def _install_executable(settings: Settings) -> str:
    target = settings.target
    if not settings.executable.exists():
        raise FlockError(f"no executable at {settings.executable}: say --executable build/flock")
    content = settings.executable.read_bytes()
    if target.exists() and not _is_ours(target):
        raise FlockError(f"{target} is there and is not flock's: move it away")
    target.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
    written = place(target, content, mode=0o755, check=_works)
    return f"installed {target}" if written else f"unchanged {target}"


def _works(executable: Path) -> None:
    """An executable for another machine, or half of one, never takes the place of one that works."""
    if VERSION not in supported_versions(executable):
        raise FlockError(f"{executable} does not support CNI {VERSION}")


def _install_text(path: Path, text: str) -> str:
    if path.exists() and not _is_ours(path):
        return f"left alone {path}: it is not flock-installer's"
    path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
    return f"installed {path}" if place(path, text.encode()) else f"unchanged {path}"


# --- uninstall ----------------------------------------------------------------------------------------------


def uninstall(settings: Settings) -> Iterator[str]:
    """Everything of flock, the executable last: as long as the rest is there, somebody may call it."""
    yield from take_off(conf_dir=settings.conf_dir, run_dir=settings.run_dir, bird_dir=settings.bird_dir)
    for path in (*(path for path, _ in settings.texts), settings.target):
        if not path.exists():
            continue
        if _is_ours(path):
            path.unlink()
            yield f"removed {path}"
        else:
            yield f"left alone {path}: it is not flock-installer's"


def _is_ours(path: Path) -> bool:
    content = path.read_bytes()
    return content.startswith(MARK.encode()) or (content.startswith(b"\x7fELF") and SIGNATURE in content)


def main(argv: Sequence[str] | None = None) -> None:
    with speaking("flock-installer"):
        settings = parse(argv)
        try:
            for line in uninstall(settings) if settings.uninstall else install(settings):
                _tell(line)
        except FlockError as error:
            sys.exit(f"flock-installer: {error}")


def _tell(line: str) -> None:
    """Nobody who reads it, or no room where it goes, is no reason to stop half-way."""
    with contextlib.suppress(OSError):
        print(line, flush=True)
