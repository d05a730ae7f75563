"""What around flock will hurt, why, and how it is cured.  Pure: facts in, findings out.

Facts are what `edge/around.py` could see.  What it could not see (a host's files from inside a pod) is absent, and
nothing is said of it.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from flock.core.birdreplies import KNOWN_MAJOR
from flock.core.conflist import CHAINED, VERSION
from flock.core.foreignrules import Obstacle

OURS = "01-flock.conflist"
LEAST = {"kernel": (5, 13), "nft": (1, 0, 6), "bird": (2, 0, 8)}
NEEDS = {
    "kernel": "anycast addresses of several pods need resilient groups of next hops",
    "nft": "older ones read or write rules of flock wrongly",
    "bird": "older ones lack what bird.conf uses",
}
PODMAN_CONF = "/etc/containers/containers.conf.d"
NAMED = 5  # pods, in a finding
EPOCH = 1735689600  # 2025: no clock that is right is earlier


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """`about` is short and stays; `note`: worth knowing, and no reason to call the host unwell."""

    about: str
    finding: str
    why: str
    cure: str
    note: bool = False


class Plugin(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    path: str
    versions: tuple[str, ...]
    usable: bool  # where every runtime looks


class Daemon(msgspec.Struct, frozen=True, kw_only=True):
    """A network daemon that runs, and what its configuration does not say."""

    name: str
    lacks: str


class Podman(msgspec.Struct, frozen=True, kw_only=True):
    """`netavark`: the file that has it use that; empty if none does."""

    knows_cni: bool
    netavark: str = ""


class Facts(msgspec.Struct, frozen=True, kw_only=True):
    families: tuple[str, ...] = ()  # ipv6, ipv4: those the node has CIDRs of
    obstacles: tuple[Obstacle, ...] = ()
    unclear: tuple[str, ...] = ()  # packet filters of which nobody here can say what they do
    birds: tuple[str, ...] = ()  # command lines of BIRDs that are not ours, on this host's network
    bird_unit: str = ""  # by which the distribution's starts at the next boot
    bird_is_a_unit: bool = False  # ours, of this host: whoever starts the distribution's stops it
    bird_problem: str = ""  # why ours does not do what it is expected to
    daemons: tuple[Daemon, ...] = ()
    conflist_dir: str = ""
    conflists: tuple[str, ...] | None = None  # by order of letters; None: not looked at
    plugins: tuple[Plugin, ...] = ()
    podman: Podman | None = None
    switches: Mapping[str, str] = {}  # sysctls by name below net/, of the node and its uplinks
    at_boot: tuple[tuple[str, str], ...] = ()  # files of sysctl.d, and lines in them
    default6: bool = True  # there is a default route
    pods_mtu: int = 0
    mtus: Mapping[str, int] = {}  # of the uplinks
    fabric: tuple[str, ...] = ()
    lan: tuple[str, ...] = ()  # prefixes for pods that are networks of the host's
    unclaimed: tuple[str, ...] = ()  # Pod manifests of this host whose name no container has
    unnamed: tuple[str, ...] = ()  # containers that no Pod manifest names
    now: float = EPOCH
    newest_record: float = 0
    synchronised: bool = True
    versions: Mapping[str, str | None] = {}  # None: not there; empty: it does not say


def diagnose(facts: Facts) -> list[Finding]:
    around = (_obstacles, _bird, _birds, _daemons, _conflists, _plugins, _podman)
    judges = (*around, _switches, _mtu, _fabric, _lan, _pods, _clock, _versions)
    return [finding for judge in judges for finding in judge(facts)]


def _found(about: str, finding: str, why: str, cure: str, **more: Any) -> Finding:
    return Finding(about=about, finding=finding, why=why, cure=cure, **more)


def _obstacles(facts: Facts) -> Iterator[Finding]:
    for obstacle in facts.obstacles:
        yield _found(
            "firewall", str(obstacle), "flock's rules allow and theirs forbid: they decide", _opening(obstacle)
        )
    for told in facts.unclear:
        cure = "look at that rule, and try: flockctl check, or a connection from a pod"
        yield _found("firewall", told, "flock's rules allow and theirs may forbid", cure, note=True)


def _opening(obstacle: Obstacle) -> str:
    into, out = obstacle.sent or not obstacle.received, obstacle.received
    sides = [(side, name) for side, name, on in (("i", "in", into), ("o", "out", out)) if on]
    family, _, chain = obstacle.chain.split(" ", 2)
    if obstacle.whose == "ufw":
        return "; ".join(f"ufw route allow {name} on flock+" for _, name in sides)
    if obstacle.whose == "firewalld":
        policy = "firewall-cmd --permanent --policy flock"
        opened = f"{policy} --add-ingress-zone ANY --add-egress-zone ANY --set-target ACCEPT"
        return f"firewall-cmd --permanent --new-policy flock; {opened}; firewall-cmd --reload"
    if obstacle.whose == "nft":
        if obstacle.hook == "prerouting":  # where nobody knows by which interface a packet will leave
            sides = [(side if side == "i" else "fib daddr o", name) for side, name in sides]
        return "; ".join(f"""nft insert rule {obstacle.chain} {side}ifname "flock*" accept""" for side, _ in sides)
    program = ("ip6tables" if family == "ip6" else "iptables") + obstacle.whose.removeprefix("iptables")
    return "; ".join(f"{program} -I {chain} -{side} flock+ -j ACCEPT" for side, _ in sides)


def _bird(facts: Facts) -> Iterator[Finding]:
    if facts.bird_problem:
        unit = "systemctl start flock-bird; journalctl -u flock-bird"
        other = "in a cluster look at this node's pod flock-bird, elsewhere at whoever starts BIRD (docs/bgp.md)"
        why = "no router hears of pods here, or of changes among them"
        yield _found("bird", facts.bird_problem, why, unit if facts.bird_is_a_unit else other)


def _birds(facts: Facts) -> Iterator[Finding]:
    why = "at each of its scans it removes the routes of flock's: a second or two without any, every minute"
    cure = "systemctl disable --now bird.service"
    cure += "; systemctl start flock-bird" if facts.bird_is_a_unit else ""
    for command in facts.birds:
        yield _found("second-bird", f"another BIRD runs on this host's network: {command}", why, cure)
    if facts.bird_unit and not facts.birds:
        yield _found("second-bird", f"the distribution's BIRD starts at the next boot ({facts.bird_unit})", why, cure)


def _daemons(facts: Facts) -> Iterator[Finding]:
    for daemon in facts.daemons:
        why = (
            "it takes pods' links, or routes it did not make, for its own to change, at its next restart at the latest"
        )
        cure = f"`flock-installer` puts a drop-in there; then restart {daemon.name}"
        yield _found("network-daemon", f"{daemon.name} runs, and is not told of {daemon.lacks}", why, cure)


def _conflists(facts: Facts) -> Iterator[Finding]:
    if facts.conflists is None:
        return
    if OURS not in facts.conflists:
        why, cure = "no runtime hands flock its pods", "look why in `flockctl status`; --cni-conf-dir of the agent"
        yield _found("conflist", f"there is no {OURS} in {facts.conflist_dir}", why, cure)
    for other in facts.conflists:
        if other < OURS:
            why = "runtimes take the first by order of letters: pods get that network"
            yield _found("conflist", f"{other} comes before {OURS}", why, f"mv {facts.conflist_dir}/{other} out of it")


def _plugins(facts: Facts) -> Iterator[Finding]:
    if facts.conflists is None:
        return  # nobody chains anything
    for plugin in facts.plugins:
        if not plugin.usable:
            what = f"{plugin.name} is at {plugin.path}, where not every runtime looks"
            why = f"it is not chained: {CHAINED[plugin.name]} of containers have no effect"
            yield _found("plugins", what, why, "--cni-bin-dir of the agent, or a link in the runtime's directory")
        elif VERSION not in plugin.versions:
            what = f"{plugin.path} knows CNI up to {max(plugin.versions, default='nothing')}"
            why = f"it cannot be chained with {VERSION}: {CHAINED[plugin.name]} have no effect"
            yield _found("plugins", what, why, "a newer release of the reference plugins")
    if not any(plugin.name == "portmap" for plugin in facts.plugins):
        why = "published ports of containers have no effect"
        cure = "apt install containernetworking-plugins, if you publish ports"
        yield _found("plugins", "there is no portmap in any usual directory", why, cure, note=True)


def _podman(facts: Facts) -> Iterator[Finding]:
    if facts.conflists is None or facts.podman is None:
        return
    blind = "it does not see the network flock"
    if not facts.podman.knows_cni:
        what, why = f"podman has no CNI, as none has from 5 on: {blind}", "its containers get networks of its own alone"
        yield _found("podman", what, why, "use ctr (containerd) for containers of flock", note=True)
    elif facts.podman.netavark:
        what, why = f"podman uses netavark, not CNI: {blind}", f"{facts.podman.netavark} says so"
        text = r"""'[network]\nnetwork_backend = "cni"\n'"""
        yield _found("podman", what, why, f"mkdir -p {PODMAN_CONF}; printf {text} >{PODMAN_CONF}/flock.conf")


def _switches(facts: Facts) -> Iterator[Finding]:
    for name, value in facts.switches.items():
        if name.endswith("rp_filter") and value == "1":
            why = "a packet that comes back by another router than it left by is dropped"
            yield _found("rp_filter", f"net.{_dotted(name)} is 1 (strict)", why, f"sysctl -w net.{_dotted(name)}=2")
        if name.endswith("accept_ra") and value == "1" and not facts.default6 and "ipv6" in facts.families:
            why = "a host that forwards ignores router advertisements unless it is 2, and has no IPv6 default route"
            yield _found("accept_ra", f"net.{_dotted(name)} is 1", why, f"sysctl -w net.{_dotted(name)}=2")
    for family, name in (("ipv6", "ipv6/conf/all/forwarding"), ("ipv4", "ipv4/ip_forward")):
        if family in facts.families and facts.switches.get(name, "1") != "1":
            why = "no packet reaches or leaves a pod; the agent turns it on again within half a minute"
            yield _found(
                "sysctl", f"net.{_dotted(name)} is off", why, "find who turns it off: sysctl --system, a script"
            )
    for file, line in facts.at_boot:
        why = "it undoes what flock set whenever these files are applied, at boot or by `sysctl --system`"
        yield _found("sysctl", f"{file} says {line}", why, "remove the line")


def _dotted(name: str) -> str:
    return name.replace("/", ".")


def _mtu(facts: Facts) -> Iterator[Finding]:
    small = {name: mtu for name, mtu in facts.mtus.items() if mtu < facts.pods_mtu}
    for name, mtu in small.items():
        why = "large packets of pods are dropped there, or each connection has to find that out"
        cure = "spec.mtu of the NodeConfig, for new pods; or the interface's"
        yield _found("mtu", f"pods get an MTU of {facts.pods_mtu}, and {name} has {mtu}", why, cure)


def _fabric(facts: Facts) -> Iterator[Finding]:
    for complaint in facts.fabric:
        why = "pods of that family are not found, or reach nothing beyond this node"
        yield _found("fabric", complaint, why, "`flockctl bgp`; `flockctl router-config` has what the router needs")


def _lan(facts: Facts) -> Iterator[Finding]:
    for complaint in facts.lan:
        why = "whoever is on that network asks for containers on the wire, where nobody answers for them"
        cure = "give containers a prefix of their own in the NodeConfig, and route it to this host"
        yield _found("lan", complaint, why, cure)


def _pods(facts: Facts) -> Iterator[Finding]:
    """A container may be about to be started, so that this is a note."""
    if facts.unclaimed:
        what = f"no container has the name of the Pod manifest {_few(facts.unclaimed)}"
        why = "its labels and annotations are nobody's: they are read when a container of that name starts"
        cure = "start it, mend metadata.name, or remove the manifest"
        without = f"; containers without a manifest: {_few(facts.unnamed)}" if facts.unnamed else ""
        yield _found("pods", what, why, cure + without, note=True)


def _few(names: tuple[str, ...]) -> str:
    more = len(names) - NAMED
    return ", ".join(names[:NAMED]) + (f" and {more} more" if more > 0 else "")


def _clock(facts: Facts) -> Iterator[Finding]:
    why = "addresses cool down by it, and certificates and tokens of the API server are judged by it"
    cure = "run a time daemon: apt install systemd-timesyncd, or chrony"
    if facts.now < EPOCH:
        yield _found("clock", "the clock is years behind", why, cure)
    elif facts.newest_record > facts.now + 300:
        behind = int(facts.newest_record - facts.now)
        yield _found("clock", f"the clock is {behind} s behind what it was when a pod was attached", why, cure)
    elif not facts.synchronised:
        yield _found("clock", "the kernel says that nothing keeps the clock in step", why, cure, note=True)


def _versions(facts: Facts) -> Iterator[Finding]:
    for name, least in LEAST.items():
        if name not in facts.versions:
            continue
        version = facts.versions[name]
        wanted = ".".join(map(str, least))
        if version is None:
            if name == "nft":
                yield _found("versions", "there is no nft", "no rule can be put in force", "apt install nftables")
            continue
        number = tuple(int(part) for part in re.findall(r"\d+", version)[:3])
        if number and number < least:
            yield _found("versions", f"{name} {version} is older than {wanted}", NEEDS[name], f"upgrade {name}")
        if name == "bird" and number > (KNOWN_MAJOR + 1,):
            why = f"flock knows BIRD {KNOWN_MAJOR} and tells a later one nothing"
            yield _found("versions", f"bird is {version}", why, "apt install bird2")
