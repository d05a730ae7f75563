"""Machines to try flock on: root file systems of a Debian, entered as they are, or booted with systemd.

A root file system is made once by `mmdebstrap`, from the mirror this machine has its own packages from, and kept in the
cache; every machine gets a copy, which trusts whom this one trusts.  A booted machine has namespaces of its own for all
but users, and a cgroup of version 2, whichever version this machine uses.  All that is made goes away with `close`,
whatever state it is in.
"""

import os
import re
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

PATIENCE = 120.0  # a boot takes three seconds on an idle machine
PATH = "/usr/sbin:/usr/bin:/sbin:/bin"
TRUSTED = "etc/ssl/certs/ca-certificates.crt"

# Mounts go with the mount namespace, processes with the one for processes.  The root is the namespace's, not that of a
# chroot: `nsenter`, by which tests run things beside them, comes back to it.
_ENTER = """
set -e
mount --bind $1 $1
cd $1
for place in proc sys dev; do mount --rbind /$place $place; done
mount -t proc proc proc
mount -t tmpfs tmpfs run
shift
pivot_root . mnt
umount -l /mnt
exec env -i HOME=/root TERM=dumb LC_ALL=C.UTF-8 DEBIAN_FRONTEND=noninteractive PATH={path} PIP_CERT=/{trusted} "$@"
"""
_BOOT = """
set -e
mount -t cgroup2 cgroup2 /mnt
mkdir -p /mnt/$2
echo $$ >/mnt/$2/cgroup.procs
umount /mnt
exec unshare --cgroup --fork --kill-child=KILL --pid --mount --uts --ipc --propagation private sh -ec '
root=$1
mount --bind $root $root
mount -t proc proc $root/proc
mount -t sysfs sysfs $root/sys
mount -t cgroup2 cgroup2 $root/sys/fs/cgroup
for place in run dev; do mount -t tmpfs tmpfs $root/$place -o mode=755; done
for device in null zero full random urandom tty; do
  touch $root/dev/$device
  mount --bind /dev/$device $root/dev/$device
done
mkdir $root/dev/pts $root/dev/shm
mount -t devpts devpts $root/dev/pts -o newinstance,ptmxmode=0666
mount -t tmpfs tmpfs $root/dev/shm
ln -s pts/ptmx $root/dev/ptmx
ln -s /proc/self/fd $root/dev/fd
hostname $(cat $root/etc/hostname)
cd $root
pivot_root . mnt
umount -l /mnt
mount --make-rshared /
exec env -i container=lxc PATH={path} /sbin/init --log-target=console --show-status=no
' sh $1
"""


class Failed(Exception):
    """What did not work on a machine, and what was said."""


def root(suite: str, packages: list[str], *, cache: Path) -> Path:
    """The root file system of a suite with these packages, made once."""
    result = cache / f"machine-{suite}"
    said = result / "packages"
    if not said.exists() or not set(packages) <= set(said.read_text().split()):
        shutil.rmtree(result, ignore_errors=True)
        result.mkdir(parents=True)
        options = ["--variant=apt", "--mode=root", "--format=dir", '--aptopt=Acquire::Check-Valid-Until "false"']
        include = f"--include={','.join(packages)}"
        run("mmdebstrap", *options, include, suite, str(result / "root"), _mirror(), patience=3600)
        said.write_text(" ".join(sorted(packages)))
    return result / "root"


def _mirror() -> str:
    candidates = (Path("/etc/apt/sources.list.d/debian.sources"), Path("/etc/apt/sources.list"))
    text = next(path for path in candidates if path.exists()).read_text()
    found = re.search(r"^(?:URIs:|deb )[^#\n]*?(https?://\S+)", text, re.MULTILINE)
    if found is None:
        raise Failed("no mirror is configured")
    return found[1]


def run(*command: str, patience: float = PATIENCE, env: dict[str, str] | None = None) -> str:
    """What it printed; Failed with all that it said."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=patience, env=env, errors="replace")
    except subprocess.TimeoutExpired:
        raise Failed(f"{' '.join(command)}: not done within {patience:.0f} s") from None
    if done.returncode:
        raise Failed(f"{' '.join(command)}: exit status {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout


class Machine:
    """A copy of a root file system.  `inside` works always, `run` while it is booted."""

    def __init__(self, original: Path, *, name: str, scratch: Path) -> None:
        self.name = name
        self.root = Path(tempfile.mkdtemp(prefix=f"{name}.", dir=scratch))
        self._init: subprocess.Popen[bytes] | None = None
        run("cp", "-a", f"{original}/.", str(self.root), patience=600)
        (self.root / "etc/hostname").write_text(f"{name}\n")
        for file in ("etc/resolv.conf", TRUSTED):
            (self.root / file).unlink(missing_ok=True)
            shutil.copy(f"/{file}", self.root / file)

    def inside(self, *command: str, patience: float = PATIENCE) -> str:
        """In the root file system alone: this machine's network, nothing booted."""
        namespaces = ("--mount", "--pid", "--fork", "--kill-child=KILL", "--propagation", "private")
        enter = ("unshare", *namespaces, "sh", "-c", _ENTER.format(path=PATH, trusted=TRUSTED), "sh", str(self.root))
        return run(*enter, *command, patience=patience)

    def boot(self, wire: Callable[[], None]) -> None:
        """With the links that `wire` puts into the network namespace of its name; returns when systemd has started what
        it was to start."""
        run("ip", "netns", "add", self.name)
        wire()
        enter = ("ip", "netns", "exec", self.name, "unshare", "--mount", "--propagation", "private")
        script = ("sh", "-c", _BOOT.format(path=PATH), "sh", str(self.root), self._cgroup)
        with (self.root / "boot.log").open("ab") as log:
            self._init = subprocess.Popen([*enter, *script], stdout=log, stderr=log)
        self.wait("systemd to have started everything", lambda: self._state() in ("running", "degraded"))

    def _state(self) -> str:
        try:
            return self.run("sh", "-c", "systemctl is-system-running || true", patience=10).strip()
        except (Failed, StopIteration):
            return "not there"

    def run(self, *command: str, patience: float = PATIENCE) -> str:
        """Failed, or StopIteration if it is not booted."""
        return run(*self.entering(), *command, patience=patience)

    def entering(self) -> tuple[str, ...]:
        """What comes before a command for it to be run on the booted machine."""
        spaces = ("-m", "-p", "-u", "-i", "-n", "-C")
        return ("nsenter", "-t", str(self._first()), *spaces, "--", "env", "-i", f"PATH={PATH}", "HOME=/root")

    def _first(self) -> int:
        """The process that is number 1 in there."""
        assert self._init is not None
        return next(pid for pid in _below(self._init.pid) if _is_init(pid))

    def shutdown(self) -> None:
        """In an orderly way, as `poweroff` would, and nothing of the network stays."""
        assert self._init is not None
        os.kill(self._first(), signal.SIGRTMIN + 4)
        try:
            self._init.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            raise Failed(f"{self.name} did not go down") from None
        finally:
            self._gone()

    def _gone(self) -> None:
        if self._init is not None:
            self._init.kill()
            self._init.wait()
            self._init = None
        subprocess.run(["ip", "netns", "delete", self.name], capture_output=True)

    def close(self) -> None:
        """Killed, if it runs; its files and cgroups go."""
        self._gone()
        with tempfile.TemporaryDirectory() as place:
            run("unshare", "--mount", "sh", "-ec", _REMOVE_CGROUPS, "sh", place, self._cgroup)
        shutil.rmtree(self.root)

    @property
    def _cgroup(self) -> str:
        return f"flock-{self.name}-{os.getpid()}"

    def wait(self, what: str, condition: Callable[[], object], *, patience: float = PATIENCE) -> None:
        end = time.monotonic() + patience
        while not condition():
            if time.monotonic() > end:
                raise Failed(f"waited {patience:.0f} s in vain for {what} on {self.name}")
            time.sleep(0.2)


_REMOVE_CGROUPS = """
mount -t cgroup2 cgroup2 $1
for i in $(seq 50); do
  [ -d $1/$2 ] || exit 0
  find $1/$2 -depth -type d -exec rmdir {} + 2>/dev/null || sleep 0.1
done
[ ! -d $1/$2 ]
"""


def _below(pid: int) -> list[int]:
    """A process and its descendants."""
    try:
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except OSError:
        return []
    return [pid, *(found for child in children for found in _below(int(child)))]


def _is_init(pid: int) -> bool:
    """Number 1 of a namespace below this one, once it is init itself."""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return False
    numbers = re.search(r"^NSpid:\s+(.*)$", status, re.MULTILINE)
    own = len(Path("/proc/self/status").read_text().partition("NSpid:")[2].partition("\n")[0].split())
    return numbers is not None and numbers[1].split()[own:] == ["1"] and "Name:\tsystemd\n" in status
