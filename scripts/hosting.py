"""What is tried on a booted machine, step by step: a host without Kubernetes, as docs/host.md has it, and a router.

Every step is a function of the host that returns what is to be said of it, or raises Failed.
"""

import json
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from machine import Failed, Machine, run

sys.path.append(str(Path(__file__).parents[1] / "tests" / "runtime"))

from pause_image import ENTRYPOINT, IMAGE, compile_pause, write_archive  # type: ignore[import-not-found]

ANYCAST = "2001:db8:53::53"
FIXED = "2001:db8:1::80"  # of a container that is made anew at boot
ROUTER, HOST = "2001:db8:ffff::1", "2001:db8:ffff::2"
OTHER = "2001:db8:ffff::3"  # of the router, too, for one that the policy refuses
NODE_CONFIG = f"""\
apiVersion: flock.fritzlab.net/v1alpha1
kind: NodeConfig
metadata: {{name: "@name@"}}
spec:
  cidr6: ["2001:db8:1::/64"]
  cidr4: ["192.0.2.0/26"]
  bgp:
    asn: 64601
    peers: [{{name: tor1, address: "{ROUTER}", localAddress: "{HOST}", asn: 64600, families: [ipv6]}}]
  anycast:
    allowed: [{{prefixes: ["2001:db8:53::/64"]}}]
  addresses:
    allowed: [{{prefixes: ["{FIXED}/128"]}}]
"""
POD = f"""\
apiVersion: v1
kind: Pod
metadata:
  name: "@name@"
  labels: {{app: web}}
  annotations: {{flock.fritzlab.net/anycast: "{ANYCAST}"@more@}}
status: {{conditions: [{{type: Ready, status: "True"}}]}}
"""
# Everybody but the router is refused.
POLICY = f"""\
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {{name: web, namespace: default}}
spec:
  podSelector: {{matchLabels: {{app: web}}}}
  policyTypes: [Ingress]
  ingress: [{{from: [{{ipBlock: {{cidr: "{ROUTER}/128"}}}}]}}]
"""
MADE_ANEW = f', flock.fritzlab.net/addresses: "{FIXED}"'
# `ctr` starts nothing by itself at boot, and has a container's address given back when it ends.
WEB = "etc/systemd/system/web.service"
UNIT = f"""\
[Unit]
After=containerd.service flock-agent.service
Requires=containerd.service
[Service]
ExecStartPre=-/usr/bin/ctr task kill --signal 9 web
ExecStartPre=-/usr/bin/ctr task delete --force web
ExecStartPre=-/usr/bin/ctr container delete web
ExecStart=/usr/bin/ctr run --cni --cpu-shares 0 --snapshotter native {IMAGE} web /{ENTRYPOINT}
ExecStop=-/usr/bin/ctr task kill --signal 9 web
Restart=on-failure
RestartSec=1
[Install]
WantedBy=multi-user.target
"""
ENDED = re.compile(r"<RMT> .*: Received: |: State changed to ")  # of a session that was up, in BIRD's log
PODMAN_CONF = "/etc/containers/containers.conf.d"  # made by the cure
READY = r"ready +yes"
PODMAN = ("--network", "flock", "--ulimit", "host", "--cgroups=disabled", "--restart", "always")


class Host:
    """A machine with flock's package, its runtime, and a router beside it."""

    def __init__(self, machine: Machine, *, runtime: str) -> None:
        self.machine, self.runtime = machine, runtime
        self.pod = "web" if runtime == "podman" else "default-web"
        self.address = ""
        self.bare: set[str] = set()  # what was there before
        self._router = f"{machine.name}-r"
        self._bird: subprocess.Popen[bytes] | None = None
        run("ip", "netns", "add", self._router)

    def boot(self) -> None:
        self.machine.boot(self._wire)

    def manifest(self) -> str:
        """podman's containers keep what they were given; those of `ctr` have to ask for it."""
        return POD.replace("@name@", self.pod).replace("@more@", "" if self.runtime == "podman" else MADE_ANEW)

    def _wire(self) -> None:
        ours, theirs = self.machine.name, self._router
        run("ip", "link", "add", "eth0", "netns", ours, "type", "veth", "peer", "name", "r0", "netns", theirs)
        for space, link, address in ((ours, "eth0", HOST), (theirs, "r0", ROUTER)):
            run("ip", "-n", space, "link", "set", "lo", "up")
            run("ip", "-n", space, "address", "add", f"{address}/64", "dev", link, "nodad")
            run("ip", "-n", space, "link", "set", link, "up")

    def put(self, path: str, text: str) -> None:
        target = self.machine.root / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text)

    def from_router(self, address: str, *, source: str = ROUTER) -> bool:
        command = ["ip", "netns", "exec", self._router, "ping", "-n", "-c", "1", "-W", "1", "-I", source, address]
        return subprocess.run(command, capture_output=True).returncode == 0

    def start_router(self, configuration: str) -> None:
        place = self.machine.root / "router"
        place.mkdir()
        (place / "bird.conf").write_text(f"debug protocols {{ states, routes, events }};\n{configuration}")
        command = ["ip", "netns", "exec", self._router, "bird", "-f", "-c", f"{place}/bird.conf", "-s", f"{place}/ctl"]
        with (place / "log").open("wb") as log:
            self._bird = subprocess.Popen(command, stdout=log, stderr=log)

    def heard(self) -> str:
        """What the router's BIRD has logged so far."""
        return (self.machine.root / "router/log").read_text(errors="replace")

    def answered(self, during: Callable[[], object]) -> list[int]:
        """Which of the packets that the router sends the container meanwhile, twenty a second, numbered from 1."""
        said = self.machine.root / "answered"
        with said.open("w") as out:
            asking = subprocess.Popen(
                ["ip", "netns", "exec", self._router, "ping", "-n", "-i", "0.05", "-I", ROUTER, ANYCAST], stdout=out
            )
        try:
            during()
        finally:
            asking.send_signal(signal.SIGINT)
            asking.wait()
        return [int(number) for number in re.findall(r"icmp_seq=(\d+) ttl", said.read_text())]

    def close(self) -> None:
        if self._bird is not None:
            self._bird.kill()
            self._bird.wait()
        subprocess.run(["ip", "netns", "delete", self._router], capture_output=True)
        self.machine.close()


def install(host: Host, package: Path) -> str:
    """By apt, from a file; one NodeConfig, and it is ready.  A podman that was there before is told to use CNI."""
    if host.runtime == "podman":
        host.machine.run("podman", "network", "ls")  # by which it chooses netavark, for good
    host.bare = _traces(host)
    run("cp", str(package), str(host.machine.root / "root"))
    host.machine.run("apt-get", "install", "-q", "-y", f"/root/{package.name}", patience=600)
    host.put("etc/flock/manifests/nodeconfig.yaml", NODE_CONFIG.replace("@name@", host.machine.name))
    host.put("etc/flock/manifests/web.yaml", host.manifest())
    host.put("etc/flock/manifests/policy.yaml", POLICY)
    host.machine.wait("flockctl status to say ready", lambda: re.search(READY, _status(host)))
    if "bird.service" in host.machine.run("sh", "-c", "systemctl is-enabled bird.service && echo bird.service || true"):
        raise Failed("the distribution's bird.service is enabled")
    if host.runtime == "podman":
        _cure_podman(host)
    return "ready"


def _cure_podman(host: Host) -> None:
    """Of netavark, as `flockctl doctor` says."""
    if not (found := _of_podman(host)):
        raise Failed("doctor does not tell of a podman that uses netavark")
    host.machine.run("sh", "-ec", found[0]["cure"])
    if found := _of_podman(host):
        raise Failed(f"its cure is none: {found}")


def _of_podman(host: Host) -> list[dict[str, str]]:
    told = json.loads(host.machine.run("sh", "-c", "flockctl doctor -o json || true"))
    return [finding for finding in told if finding["about"] == "podman" and not finding["note"]]


def _status(host: Host) -> str:
    return host.machine.run("sh", "-c", "flockctl status 2>&1 || true")


def container(host: Host) -> str:
    """With policy and anycast, announced to a router that was told what `flockctl router-config` prints."""
    machine = host.machine
    write_archive(compile_pause(machine.root / "root"), machine.root / "root/image.tar")
    host.start_router(machine.run("flockctl", "router-config", "bird"))
    if host.runtime == "podman":
        machine.run("podman", "load", "-q", "-i", "/root/image.tar")
        machine.run("podman", "run", "-d", "--name", "web", *PODMAN, IMAGE)
        machine.run("systemctl", "enable", "podman-restart.service")
    else:
        machine.run("ctr", "image", "import", "--snapshotter", "native", "/root/image.tar")
        host.put(WEB, UNIT)
        machine.run("systemctl", "daemon-reload")
        machine.run("systemctl", "enable", "--now", "web.service")
    machine.wait("the container", lambda: _addresses(host))
    host.address = _addresses(host)
    machine.wait("its anycast address at the router", lambda: host.from_router(ANYCAST))
    machine.wait("its own address at the router", lambda: host.from_router(host.address))
    run("ip", "-n", f"{machine.name}-r", "address", "add", f"{OTHER}/64", "dev", "r0", "nodad")
    if host.from_router(host.address, source=OTHER):
        raise Failed("the policy lets in what it should not")
    version = machine.run(*(("podman", "--version") if host.runtime == "podman" else ("containerd", "--version")))
    number = re.search(r"\d+\.\d+\.\d+", version)
    return f"{host.runtime} ({number[0] if number else version.strip()})"


def _addresses(host: Host) -> str:
    """The container's IPv6 address; empty while there is none."""
    with suppress(Failed):
        for pod in json.loads(host.machine.run("flockctl", "pods", "-o", "json")):
            if pod["pod"] in (host.pod, f"default/{host.pod}"):
                return str(pod["ip6"])
    return ""


def reboot(host: Host) -> str:
    """Routers hear of it in order; the container is back with its address, and announced."""
    before = len(host.heard())
    host.machine.shutdown()
    host.machine.wait("the router to let go of the host", lambda: ENDED.search(host.heard(), before))
    check_goodbye(host.heard()[before:])
    host.boot()
    host.machine.wait("the container after a reboot", lambda: _addresses(host))
    if (now := _addresses(host)) != host.address:
        raise Failed(f"the container had {host.address} and has {now}")
    host.machine.wait("its anycast address at the router", lambda: host.from_router(ANYCAST))
    return "same address"


def check_goodbye(heard: str) -> None:
    """Failed unless a router's BIRD says that anycast was withdrawn with the session up, which then ended for good."""
    withdrawn, ended = re.search(rf"> removed .*{ANYCAST}/128", heard), ENDED.search(heard)
    if withdrawn is None or ended is None or withdrawn.start() > ended.start():
        raise Failed(f"the session ended before anycast was withdrawn:\n{heard}")
    if "graceful restart" in heard:
        raise Failed(f"the router keeps the routes of a host that went down:\n{heard}")


def upgrade(host: Host, package: Path) -> str:
    """To a version that differs in nothing but its number, while the router asks the container all the time."""
    files, next_one = host.machine.root / "root/next", host.machine.root / "root/next.deb"
    run("dpkg-deb", "-R", str(package), str(files))
    control = files / "DEBIAN/control"
    control.write_text(re.sub(r"^Version: .*$", r"\g<0>+next", control.read_text(), flags=re.MULTILINE))
    run("dpkg-deb", "--root-owner-group", "-Znone", "-b", str(files), str(next_one))
    agent, bird = _service(host, "flock-agent"), _service(host, "flock-bird")
    numbers = host.answered(lambda: _install_next(host))
    if numbers != list(range(1, len(numbers) + 1)) or not numbers:
        raise Failed(f"packets were lost: of those that were sent, only these were answered: {numbers}")
    if _service(host, "flock-agent") == agent or _service(host, "flock-bird") != bird:
        raise Failed("it is the agent, and the agent alone, that should have been exchanged")
    return f"{len(numbers)} of {len(numbers)} packets"


def _install_next(host: Host) -> None:
    host.machine.run("apt-get", "install", "-q", "-y", "/root/next.deb", patience=600)
    host.machine.wait("the new agent to be ready", lambda: re.search(READY, _status(host)))


def _service(host: Host, unit: str) -> str:
    """The process it is now."""
    return host.machine.run("systemctl", "show", "-P", "MainPID", unit)


def purge(host: Host) -> str:
    """Refused while the container runs; then nothing left: no file, no rule, no route, no link, and nothing missing."""
    machine = host.machine
    _refused(host)
    if host.runtime == "podman":
        machine.run("podman", "rm", "-f", "-t", "0", "web")
        machine.run("rm", "-r", PODMAN_CONF)
    else:
        machine.run("systemctl", "disable", "--now", "web.service")
        machine.run("sh", "-c", "ctr task kill --signal 9 web; ctr container delete web; true")
        (machine.root / WEB).unlink()
    machine.run("apt-get", "purge", "-q", "-y", "flock", patience=600)
    check_traces(bare=host.bare, now=_traces(host))
    return "nothing left"


def _refused(host: Host) -> None:
    """What runs goes on running, and is named."""
    try:
        host.machine.run("apt-get", "purge", "-q", "-y", "flock", patience=600)
    except Failed as refusal:
        if f"containers of flock still run: default/{host.pod}. " not in str(refusal):
            raise
    else:
        raise Failed("it was purged while a container ran")
    host.machine.run("systemctl", "is-active", "flock-agent.service", "flock-bird.service")
    if not host.from_router(ANYCAST):
        raise Failed("the container is not reached any more")


def check_traces(*, bare: set[str], now: set[str]) -> None:
    """Failed unless all is as it was; the distribution's BIRD is enabled again, too."""
    told = (("left behind", now - bare), ("gone with it", bare - now))
    if problems := [f"{what}: {', '.join(sorted(traces))}" for what, traces in told if traces]:
        raise Failed("; ".join(problems))


def _traces(host: Host) -> set[str]:
    """All that a package could leave behind, or take with it."""
    return {line.strip() for line in host.machine.run("sh", "-ec", _TRACES).splitlines()}


# Not what others keep books of, packages, containers, logs; nor the routes of the kernel's own.
_TRACES = """
for place in cache log tmp lib/apt lib/cni lib/containerd lib/containers lib/dpkg; do
  others="$others -path /var/$place -prune -o"
done
find $(ls -d /etc /opt /usr /var) $others -print
find /run -iname '*flock*'
nft list tables
ip -br link | sed 's/[@ ].*//'
for family in -4 -6; do
  ip $family -N route show table all | sed '/proto 2 /d'
  ip $family rule
done
ip nexthop
"""
