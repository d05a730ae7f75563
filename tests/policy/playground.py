"""A node, its pods and a host outside, as network namespaces; sockets of this process inside them; rules by hand.

    outside (2001:db8:ff::9, 198.51.100.9) ── uplink ── node ── flock000000NN ── pod NN (2001:db8:1::NN, 192.0.2.NN)

Pods are wired as our ADD wires them: permanent neighbours on both ends, so that a first packet waits for nobody.
"""

import asyncio
import itertools
import os
import socket
from collections.abc import Awaitable, Callable
from ipaddress import ip_address
from typing import TypeVar

from arriving import PATIENCE, Judge, Place, Socket, connected, received

from flock.core.naming import link_local
from flock.core.policy.compiled import Address, Change, Compiled, CompiledPolicy, GroupId, Rule, Subject, Verdicts
from flock.core.policy.elements import TABLES
from flock.core.policy.numbers import Numbers
from flock.core.policy.render import Ruleset
from flock.core.policy.rendered import Transaction
from flock.edge.nft import batch
from flock.edge.nft.apply import Nft
from flock.edge.nft.socket import NftSocket
from harness import run

T = TypeVar("T")
S = TypeVar("S", bound=socket.socket)
_numbers = itertools.count()
OUTSIDE6, OUTSIDE4 = "2001:db8:ff::9", "198.51.100.9"
HOST_MAC = "02:66:6c:6f:63:6b"
FAMILIES = ("6", "4")


def present(socket: NftSocket) -> bool:
    """Are all our tables there?"""
    return all(socket.ask(batch.GETTABLE, batch.header(table), dump=False) for table in TABLES)


def interface(number: int) -> str:
    return f"flock{number:08x}"


def address(number: int, family: str) -> str:
    return f"2001:db8:1::{number:x}" if family == "6" else f"192.0.2.{number}"


def mac(number: int) -> str:
    return f"0a:00:00:00:00:{number:02x}"


# Groups a pod's kernel reports and routers it asks for, at its leisure: what is dropped could not be counted.
_SILENCE = """
add table inet silence
add chain inet silence out { type filter hook output priority 0; }
add rule inet silence out icmpv6 type { 131, 132, 133, 143 } drop
"""


class Playground:
    """Use as a context manager; everything it made is gone afterwards."""

    def __init__(self, pods: int) -> None:
        prefix = f"fp{os.getpid()}x{next(_numbers)}"
        self.node = Place(f"{prefix}n")
        self.judge = Judge(self.node)
        self.node.judge = self.judge
        self.outside = Place(f"{prefix}o", self.judge)
        self.pods: dict[int, Place] = {}
        self._prefix = prefix
        self._open: list[socket.socket] = []
        self.numbers = Numbers()
        self.ruleset = Ruleset(self.numbers)
        self._wire_up()
        for number in range(1, pods + 1):
            self.add_pod(number)

    def __enter__(self) -> "Playground":
        return self

    def __exit__(self, *_: object) -> None:
        for made in self._open:
            made.close()
        self.judge.close()
        for place in (*self.pods.values(), self.outside, self.node):
            place.close()

    def _wire_up(self) -> None:
        node, outside = self.node.name, self.outside.name
        with self.node.inside():
            for path in ("ipv6/conf/all/forwarding", "ipv4/ip_forward", "ipv6/conf/default/forwarding"):
                _write(path, "1")
        script = [
            "link set lo up",
            f"link add uplink address {HOST_MAC} type veth peer name eth0 address {mac(0)} netns {outside}",
            "addr add 2001:db8:ff::1/64 dev uplink nodad",
            "addr add 198.51.100.1/24 dev uplink",
            "link set uplink up",
            f"neigh add {OUTSIDE6} lladdr {mac(0)} dev uplink nud permanent",
            f"neigh add {OUTSIDE4} lladdr {mac(0)} dev uplink nud permanent",
        ]
        _ip(node, script)
        script = [
            "link set lo up",
            f"addr add {OUTSIDE6}/64 dev eth0 nodad",
            f"addr add {OUTSIDE4}/24 dev eth0",
            "link set eth0 up",
            f"neigh add 2001:db8:ff::1 lladdr {HOST_MAC} dev eth0 nud permanent",
            f"neigh add 198.51.100.1 lladdr {HOST_MAC} dev eth0 nud permanent",
            "route add default via 2001:db8:ff::1",
            "route add default via 198.51.100.1",
        ]
        _ip(outside, script)

    def add_pod(self, number: int, *, owns: int | None = None) -> None:
        """`owns`: it has the addresses of that number instead, and takes over the routes to them."""
        place = self.pods[number] = Place(f"{self._prefix}p{number}", self.judge)
        place.execute("nft", _SILENCE)
        name, owned = interface(number), owns or number
        _ip(
            self.node.name,
            [
                f"link add {name} address {HOST_MAC} type veth peer name eth0 address {mac(number)} netns {place.name}",
                f"link set {name} addrgenmode none",
                f"addr add fe80::1/64 dev {name} nodad",
                f"link set {name} up",
            ],
        )
        with self.node.inside():
            _write(f"ipv4/conf/{name}/proxy_arp", "1")
        _ip(
            place.name,
            [
                "link set lo up",
                f"addr add {address(owned, '6')}/128 dev eth0 nodad",
                f"addr add {address(owned, '4')}/32 dev eth0",
                "link set eth0 up",
                "route add default via fe80::1 dev eth0",
                f"neigh add fe80::1 lladdr {HOST_MAC} dev eth0 nud permanent",
                f"neigh add 169.254.1.1 lladdr {HOST_MAC} dev eth0 nud permanent",
                "route add default via 169.254.1.1 dev eth0 onlink",
            ],
        )
        self.route(owned, number)

    def route(self, owned: int, to: int) -> None:
        for family in FAMILIES:
            where, length = address(owned, family), 128 if family == "6" else 32
            script = [
                f"route replace {where}/{length} dev {interface(to)}",
                f"neigh replace {where} lladdr {mac(to)} dev {interface(to)} nud permanent",
            ]
            _ip(self.node.name, script)

    # --- rules ---

    def do(self, work: Callable[[Nft], Awaitable[T]]) -> T:
        """Run something with an Nft of the node."""

        async def whole() -> T:
            nft = Nft()
            try:
                return await work(nft)
            finally:
                nft.close()

        with self.node.inside():
            return asyncio.run(whole())

    def load(self, compiled: Compiled) -> None:
        self.do(lambda nft: nft.replace(self.ruleset, compiled))

    def change(self, change: Change) -> Transaction:
        transaction = self.ruleset.transaction(change)
        self.do(lambda nft: nft.apply(transaction))
        return transaction

    def settle(self) -> None:
        """As the agent does a while after connections were to be judged again."""
        transaction = self.ruleset.settle(list(self.numbers.unsettled))
        self.do(lambda nft: nft.apply(transaction))

    def listing(self) -> str:
        return self.node.execute("nft", "list", "ruleset")

    # --- traffic ---

    def place(self, who: int) -> Place:
        """0 is outside."""
        return self.pods[who] if who else self.outside

    def at(self, who: int, family: str) -> str:
        if who:
            return address(who, family)
        return OUTSIDE6 if family == "6" else OUTSIDE4

    def keep(self, made: S) -> S:
        """Closed at the end."""
        self._open.append(made)
        return made

    def udp(self, who: int, family: str, port: int = 0) -> Socket:
        made = self.keep(self.place(who).socket(family))
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made.bind(("::" if family == "6" else "0.0.0.0", port))
        return made

    def reaches(self, source: int, to: int, family: str, port: int = 80) -> bool:
        """Does a first UDP packet get there?"""
        with self.place(to).socket(family) as server, self.place(source).socket(family) as client:
            server.bind(("::" if family == "6" else "0.0.0.0", port))
            client.sendto(b"x", (self.at(to, family), port))
            return received(server)

    def connects(self, source: int, to: int, family: str, port: int = 80) -> bool:
        """Does TCP connect?  Being refused is an error: what is denied must time out."""
        with self.place(to).socket(family, socket.SOCK_STREAM) as server:
            server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            server.bind(("::" if family == "6" else "0.0.0.0", port))
            server.listen()
            with self.place(source).socket(family, socket.SOCK_STREAM) as client:
                return connected(client, (self.at(to, family), port))

    def pings(self, source: int, where: str) -> bool:
        return self._answered(source, where, within=PATIENCE)

    def gets_no_answer(self, source: int, where: str) -> bool:
        return not self._answered(source, where, within=0.3)

    def _answered(self, source: int, where: str, *, within: float) -> bool:
        return "1 received" in self.place(source).execute("ping", "-c1", f"-W{within}", "-n", where, check=False)


def _ip(name: str, script: list[str]) -> None:
    for family in ("-6", "-4"):
        lines = [line for line in script if _family(line) == family]
        if lines:
            run("ip", family, "-n", name, "-batch", "-", input="\n".join(lines) + "\n")


def _family(line: str) -> str:
    """Links first: they are in the first batch."""
    return "-4" if "." in line else "-6"


def _write(path: str, value: str) -> None:
    with open(f"/proc/sys/net/{path}", "w") as file:
        file.write(value)


# --- compiled states by hand -----------------------------------------------------------------------------------------


def addresses(*numbers: int) -> tuple[Address, ...]:
    return tuple(ip_address(address(n, family)) for n in numbers for family in FAMILIES)


def subject(number: int, *, ingress: str | None = None, egress: str | None = None, owns: int | None = None) -> Subject:
    """`ingress` and `egress`: names of the policies that isolate it, separated by commas; None: not isolated."""

    def keys(names: str | None) -> tuple[tuple[str, str], ...] | None:
        return None if names is None else tuple(("default", name) for name in sorted(filter(None, names.split(","))))

    return Subject(
        interface=interface(number),
        container_id=f"container{number}",
        pod=f"default/pod{number}",
        addresses=addresses(owns or number),
        link_local=link_local(mac(number)),
        verdicts=Verdicts(ingress=keys(ingress), egress=keys(egress)),
    )


def policy(
    name: str, *, ingress: list[Rule] | None = None, egress: list[Rule] | None = None, strict: bool = False
) -> CompiledPolicy:
    return CompiledPolicy(
        key=("default", name),
        ingress=None if ingress is None else tuple(ingress),
        egress=None if egress is None else tuple(egress),
        strict=strict,
    )


def group(pods: str) -> GroupId:
    return GroupId("default", "", pods)


def compiled(
    subjects: list[Subject],
    policies: list[CompiledPolicy],
    groups: dict[GroupId, tuple[Address, ...]] | None = None,
    named: dict[object, object] | None = None,
) -> Compiled:
    return Compiled(
        subjects={s.interface: s for s in subjects},
        policies={p.key: p for p in policies},
        groups=groups or {},
        named=named or {},  # type: ignore[arg-type]
    )
