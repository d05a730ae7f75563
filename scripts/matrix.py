"""The support matrix, tried: for each Debian, the tests in a root file system of it, and a host booted with systemd.

    scripts/matrix [--only STEP,…] [--without STEP,…] [SUITE…]

Prints a row per system; what failed is told below it, with all that was said, and makes the exit status 1.  Steps, in
order: `test` (`make test`), `bird3` (what becomes of BIRD 3), `package` (built there by `make deb`), `install`,
`container` (with policy, and anycast over BGP), `reboot`, `upgrade` (under traffic), `purge`.  After one that failed,
those that need it are not tried.  Root file systems are kept in the cache of `make e2e`; all else that is made is
removed.
"""

import argparse
import os
import re
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import hosting
from machine import Failed, Machine, root, run

ROOT = Path(__file__).parent.parent
TREE = "root/flock"  # where a machine has the sources
HOUR = 3600.0
BASE = "ca-certificates systemd-sysv dbus procps git rsync make dpkg-dev containerd runc containernetworking-plugins"
NOT_TRIED, NO = "not tried", "FAILED"
STEPS = ("test", "bird3", "package", "install", "container", "reboot", "upgrade", "purge")


@dataclass(frozen=True)
class System:
    name: str
    suite: str
    runtime: str  # of the containers: podman 5 has no CNI
    also: tuple[str, ...] = ()


SYSTEMS = (
    # runc, which containerd needs, wants cgroups; netavark comes with podman by default.
    System("Debian 12", "bookworm", "podman", ("podman", "crun", "netavark")),
    System("Debian 13", "trixie", "ctr"),
)


@dataclass
class Row:
    system: System
    versions: str = ""
    cells: dict[str, str] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)

    def try_step(self, step: str, trial: Callable[[], str]) -> bool:
        """False if it failed, or was left out: it is not tried after one that failed."""
        try:
            self.cells[step] = trial()
        except Failed as problem:
            self.cells[step] = NO
            self.problems.append(f"{self.system.name}, {step}: {problem}")
        print(f"{self.system.name}: {step}: {self.cells[step]}", file=sys.stderr)
        return self.cells[step] != NO


def try_system(system: System, steps: set[str], *, cache: Path, scratch: Path) -> Row:
    row = Row(system)
    try:
        original = root(system.suite, [*BASE.split(), *_needed(), *system.also], cache=cache)
        with _machine(system, original, scratch) as built:
            row.versions = _versions(built)
            for step, trial in (("test", _test), ("bird3", _bird3)):
                if step in steps:
                    row.try_step(step, lambda trial=trial: trial(built))  # type: ignore[misc]
            if "package" not in steps or not row.try_step("package", lambda: _package(built, scratch)):
                return row
        package = next(scratch.glob("flock_*.deb"))
        with _host(system, original, scratch) as host:
            _try_host(row, steps, host, package)
        package.unlink()
    except Failed as problem:
        row.problems.append(f"{system.name}: {problem}")
    return row


def _try_host(row: Row, steps: set[str], host: hosting.Host, package: Path) -> None:
    trials: dict[str, Callable[[], str]] = {
        "install": lambda: hosting.install(host, package),
        "container": lambda: hosting.container(host),
        "reboot": lambda: hosting.reboot(host),
        "upgrade": lambda: hosting.upgrade(host, package),
        "purge": lambda: hosting.purge(host),
    }
    for step, trial in trials.items():
        if step in steps and not row.try_step(step, trial):
            return


@contextmanager
def _machine(system: System, original: Path, scratch: Path) -> Iterator[Machine]:
    machine = Machine(original, name=f"flock-{system.suite}", scratch=scratch)
    try:
        yield machine
    finally:
        machine.close()


@contextmanager
def _host(system: System, original: Path, scratch: Path) -> Iterator[hosting.Host]:
    host = hosting.Host(Machine(original, name=f"flock-{system.suite}", scratch=scratch), runtime=system.runtime)
    try:
        host.boot()
        yield host
    finally:
        host.close()


# --- in the root file system ------------------------------------------------------------------------------------------


def _needed() -> list[str]:
    """What the Makefile installs for building; `make test` installs the rest."""
    named = re.search(r"^PACKAGES := (.*)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert named is not None
    return named[1].split()


def _versions(machine: Machine) -> str:
    said = machine.inside("sh", "-c", "python3 --version; nft --version; bird --version 2>&1; containerd --version")
    names = ("Python", "nft", "BIRD", "containerd")
    numbers = [re.search(r"\d+(\.\d+)+", line) for line in said.splitlines()]
    return ", ".join(f"{name} {number[0]}" for name, number in zip(names, numbers, strict=False) if number)


def _sources(machine: Machine) -> None:
    if not (machine.root / TREE).exists():
        run("git", "clone", "-q", "--no-hardlinks", str(ROOT), str(machine.root / TREE))


def _test(machine: Machine) -> str:
    _sources(machine)
    said = machine.inside("make", "--no-print-directory", "-C", f"/{TREE}", "test", patience=2 * HOUR)
    return said.strip().splitlines()[-1].strip("= ")


def _package(machine: Machine, scratch: Path) -> str:
    _sources(machine)
    machine.inside("make", "-C", f"/{TREE}", "deb", patience=HOUR)
    package = next((machine.root / TREE / "dist").glob("flock_*.deb"))
    shutil.copy(package, scratch)
    return package.name.split("_")[1]


def _bird3(machine: Machine) -> str:
    """Where the suite has it: an agent beside it names it, and tells it nothing."""
    _sources(machine)
    machine.inside("apt-get", "update", "-q")
    if "Candidate" not in machine.inside("apt-cache", "policy", "bird3"):
        return "none in the suite"
    machine.inside("make", "-C", f"/{TREE}", "build", patience=HOUR)
    machine.inside("sh", "-ec", "cd /tmp && apt-get download -q bird3 && dpkg -x bird3_*.deb /opt/bird3")
    (machine.root / "tmp/m").mkdir()
    (machine.root / "tmp/m/nodeconfig.yaml").write_text(hosting.NODE_CONFIG.replace("@name@", "host"))
    said = machine.inside("unshare", "--net", "sh", "-ec", _BESIDE_BIRD3.format(tree=TREE))
    return f"refused: {said.splitlines()[0]}"  # it is named in several lines


_BESIDE_BIRD3 = """
ip link set lo up
mkdir -p /tmp/state /tmp/bird /tmp/run
cd /{tree}/.venv/bin
./flock-agent --node host --manifests /tmp/m --state-dir /tmp/state --bird-dir /tmp/bird --run-dir /tmp/run \\
  --http "" --metrics "" >/tmp/log 2>&1 &
for i in $(seq 100); do [ -e /tmp/bird/bird.conf ] && break; sleep 0.1; done
/opt/bird3/usr/sbin/bird -f -c /tmp/bird/bird.conf -s /tmp/run/bird.ctl 2>/dev/null &
for i in $(seq 100); do
  ./flockctl --run-dir /tmp/run status | grep -o "BIRD 3[0-9.]*" && exit
  sleep 0.1
done
cat /tmp/log
exit 1
"""


def _table(rows: list[Row]) -> str:
    lines = ["| system | " + " | ".join(STEPS) + " |", "|---" * (len(STEPS) + 1) + "|"]
    for row in rows:
        cells = (row.cells.get(step, NOT_TRIED) for step in STEPS)
        lines.append(f"| {row.system.name}: {row.versions} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def main() -> int:
    verbatim = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(prog="scripts/matrix", description=__doc__, formatter_class=verbatim)
    parser.add_argument("suites", nargs="*", metavar="SUITE", help="these alone", choices=[[], *_suites()])
    parser.add_argument("--only", metavar="STEP,…", type=_steps, default=set(STEPS))
    parser.add_argument("--without", metavar="STEP,…", type=_steps, default=set())
    asked = parser.parse_args()
    if os.geteuid():
        parser.error("machines are namespaces and mounts: root is needed")
    cache = Path(os.environ.get("FLOCK_E2E_CACHE") or Path.home() / ".cache" / "flock-e2e")
    chosen = [system for system in SYSTEMS if not asked.suites or system.suite in asked.suites]
    with tempfile.TemporaryDirectory(prefix="matrix.", dir=cache) as scratch:
        rows = [try_system(s, asked.only - asked.without, cache=cache, scratch=Path(scratch)) for s in chosen]
    print(_table(rows))
    problems = [problem for row in rows for problem in row.problems]
    print(*problems, sep="\n\n", end="\n" if problems else "")
    return 1 if problems else 0


def _suites() -> list[str]:
    return [system.suite for system in SYSTEMS]


def _steps(text: str) -> set[str]:
    if unknown := set(text.split(",")) - set(STEPS):
        raise argparse.ArgumentTypeError(f"unknown: {', '.join(sorted(unknown))}; there are {', '.join(STEPS)}")
    return set(text.split(","))


if __name__ == "__main__":
    sys.exit(main())
