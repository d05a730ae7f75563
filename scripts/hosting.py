"""What is tried on a booted machine, step by step: a host without Kubernetes, as docs/host.md has it, and a router.

Every step is a function of the host that returns what is to be said of it, or raises Failed.
"""

import json
import re
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

from machine import Failed, Machine, run

sys.path.append(str(Path(__file__).parents[1] / "tests" / "runtime"))

from pause_image import ENTRYPOINT, IMAGE, compile_pause, write_archive  # type: ignore[import-not-found]

ANYCAST = "2001:db8:53::53"
ROUTER, HOST = "2001:db8:ffff::1", "2001:db8:ffff::2"
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
"""
POD = f"""\
apiVersion: v1
kind: Pod
metadata: {{name: "@name@", labels: {{app: web}}, annotations: {{flock.fritzlab.net/anycast: "{ANYCAST}"}}}}
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
# `ctr` starts nothing by itself at boot.
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
PODMAN = ("--network", "flock", "--ulimit", "host", "--cgroups=disabled", "--restart", "always")


class Host:
    """A machine with flock's package, its runtime, and a router beside it."""

    def __init__(self, machine: Machine, *, runtime: str) -> None:
        self.machine, self.runtime = machine, runtime
        self.pod = "web" if runtime == "podman" else "default-web"
        self.address = ""
        self._router = f"{machine.name}-r"
        self._bird: subprocess.Popen[bytes] | None = None
        run("ip", "netns", "add", self._router)

    def boot(self) -> None:
        self.machine.boot(self._wire)

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

    def from_router(self, address: str) -> bool:
        command = ["ip", "netns", "exec", self._router, "ping", "-n", "-c", "1", "-W", "1", address]
        return subprocess.run(command, capture_output=True).returncode == 0

    def start_router(self, configuration: str) -> None:
        place = self.machine.root / "router"
        place.mkdir()
        (place / "bird.conf").write_text(configuration)
        command = ["ip", "netns", "exec", self._router, "bird", "-f", "-c", f"{place}/bird.conf", "-s", f"{place}/ctl"]
        with (place / "log").open("wb") as log:
            self._bird = subprocess.Popen(command, stdout=log, stderr=log)

    def traffic(self) -> subprocess.Popen[str]:
        """400 packets in 20 seconds, from the router."""
        command = ["ip", "netns", "exec", self._router, "ping", "-n", "-q", "-i", "0.05", "-c", "400", ANYCAST]
        return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)

    def close(self) -> None:
        if self._bird is not None:
            self._bird.kill()
            self._bird.wait()
        subprocess.run(["ip", "netns", "delete", self._router], capture_output=True)
        self.machine.close()


def install(host: Host, package: Path) -> str:
    """By apt, from a file; one NodeConfig, and it is ready."""
    run("cp", str(package), str(host.machine.root / "root"))
    host.machine.run("apt-get", "install", "-q", "-y", f"/root/{package.name}", patience=600)
    host.put("etc/flock/manifests/nodeconfig.yaml", NODE_CONFIG.replace("@name@", host.machine.name))
    host.put("etc/flock/manifests/web.yaml", POD.replace("@name@", host.pod))
    host.put("etc/flock/manifests/policy.yaml", POLICY)
    host.machine.wait("flockctl status to say ready", lambda: re.search(r"ready +yes", _status(host)))
    if "bird.service" in host.machine.run("sh", "-c", "systemctl is-enabled bird.service && echo bird.service || true"):
        raise Failed("the distribution's bird.service is enabled")
    return "ready"


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
        host.put("etc/systemd/system/web.service", UNIT)
        machine.run("systemctl", "daemon-reload")
        machine.run("systemctl", "enable", "--now", "web.service")
    machine.wait("the container", lambda: _addresses(host))
    host.address = _addresses(host)
    machine.wait("its anycast address at the router", lambda: host.from_router(ANYCAST))
    machine.wait("its own address at the router", lambda: host.from_router(host.address))
    run("ip", "-n", f"{machine.name}-r", "address", "add", "2001:db8:ffff::3/64", "dev", "r0", "nodad")
    other = ["ip", "netns", "exec", f"{machine.name}-r", "ping", "-n", "-c", "1", "-W", "1", "-I", "2001:db8:ffff::3"]
    if subprocess.run([*other, host.address], capture_output=True).returncode == 0:
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
    """The container is back with its address, and announced."""
    host.machine.shutdown()
    if host.from_router(ANYCAST):
        raise Failed("it answers while it is down")
    host.boot()
    host.machine.wait("the container after a reboot", lambda: _addresses(host))
    if (now := _addresses(host)) != host.address:
        raise Failed(f"the container had {host.address} and has {now}")
    host.machine.wait("its anycast address at the router", lambda: host.from_router(ANYCAST))
    return "same address"


def upgrade(host: Host, package: Path) -> str:
    """To a version that differs in nothing but its number, while the router asks the container all the time."""
    files, next_one = host.machine.root / "root/next", host.machine.root / "root/next.deb"
    run("dpkg-deb", "-R", str(package), str(files))
    control = files / "DEBIAN/control"
    control.write_text(re.sub(r"^Version: .*$", r"\g<0>+next", control.read_text(), flags=re.MULTILINE))
    run("dpkg-deb", "--root-owner-group", "-Znone", "-b", str(files), str(next_one))
    traffic = host.traffic()
    host.machine.run("apt-get", "install", "-q", "-y", "/root/next.deb", patience=600)
    said, _ = traffic.communicate(timeout=120)
    counted = re.search(r"(\d+) packets transmitted, (\d+) received", said)
    if counted is None or counted[1] != counted[2]:
        raise Failed(f"packets were lost: {said}")
    return f"{counted[2]} of {counted[1]} packets"


def purge(host: Host) -> str:
    """Nothing left: no file, no rule, no route, no link."""
    machine = host.machine
    if host.runtime == "podman":
        machine.run("podman", "rm", "-f", "-t", "0", "web")
    else:
        machine.run("systemctl", "disable", "--now", "web.service")
        machine.run("sh", "-c", "ctr task kill --signal 9 web; ctr container delete web; true")
    machine.run("apt-get", "purge", "-q", "-y", "flock", patience=600)
    places = "/etc /usr /var/lib/flock /opt /run/flock"
    left = machine.run("sh", "-c", f"find {places} -iname '*flock*' -not -path '*/dpkg/*' 2>/dev/null || true").split()
    # Programs and words of the system that only sound like us.
    left = [path for path in left if not re.search(r"(flock|lckdo|flockfile)(\.\d\S*|\.p[my]c?|\.h|)$", path)]
    left += machine.run("sh", "-c", "nft list tables | grep flock || true").split("\n")[:-1]
    left += machine.run("sh", "-c", "ip -6 route show table all | grep -E 'proto (flock|bird)' || true").split("\n")[
        :-1
    ]
    left += machine.run("sh", "-c", "ip -o link | grep flock || true").split("\n")[:-1]
    if left:
        raise Failed(f"left behind: {', '.join(left)}")
    return "nothing left"
