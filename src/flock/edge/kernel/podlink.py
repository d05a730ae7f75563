"""One pod's link: made, configured, taken down.

    node                                            pod
    flockXXXXXXXX  02:66:6c:6f:63:6b  ── veth ──    eth0  0a:…            lo
      fe80::1/128, no generated address               <ip6>/128 <ip4>/32    <anycast>/128|32
      <ip6>/128, <ip4>/32, <link-local>/128 routes    <addresses>
      permanent neighbours: <ip6>, <ip4>              default via fe80::1 and via 169.254.1.1 (onlink)
                                                      permanent neighbours: both gateways

Three batches: the bare pair, the host side, the pod side.  All of it may be repeated.  Nothing waits: no duplicate
address detection, no resolution.
"""

import contextlib
import errno
import os
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, NamedTuple

from flock.core.errors import Code, FieldError, FlockError, KernelRefused
from flock.core.faults import Point, faults
from flock.core.naming import HOST_MAC, is_host_interface
from flock.core.whose import Identity, Whose, whose
from flock.core.wiring import Wired
from flock.edge.boot import boot_id
from flock.edge.kernel import carrier
from flock.edge.kernel.freshproc import FreshProc
from flock.edge.kernel.linkmessages import LOOPBACK_INDEX, Announced, host_routes, host_side, packed, pod_side
from flock.edge.kernel.netns import Netns, inside, own_netns
from flock.edge.kernel.podnetns import Entered, enter, entered, number_of
from flock.edge.kernel.switches import correct_switch, write_switch
from flock.edge.netlink import route as r
from flock.edge.netlink.socket import Netlink

if TYPE_CHECKING:
    from pathlib import Path

    from flock.core.model import Allocation

Claimed = Callable[[str], bool]  # another container uses that host interface

NO_GROUP = 0  # that of links in general


def new_group() -> int:
    """A number nobody else has: deleting by group takes whatever is in it."""
    return 1 << 30 | int.from_bytes(os.urandom(4), "big") >> 2


class Attached(NamedTuple):
    """A finished link: the host side's index, and which namespace the pod side is in."""

    host_index: int
    netns: Identity


class Bare(NamedTuple):
    """A pair that is down: the host side, a socket in the pod's namespace, and what brings up either end, composed
    while nobody waits.  What is announced is not known by then, and mostly nothing."""

    host: r.Link
    pod: Netlink
    netns: Identity
    host_side: list[r.Request]
    pod_side: list[r.Request]


class PodLinks:
    """For one thread at a time, which steps into pods' namespaces and back to where this was made."""

    def __init__(self, *, sysctl: "str | Path") -> None:
        self.host = Netlink()
        self.home = own_netns()
        boot_id()  # while there is something to read it with
        self.sysctl = str(sysctl)
        self._pods_switches = FreshProc(self.sysctl)

    # --- setting up ---

    def attach(self, wired: Wired, *, announced: Announced, claimed: Claimed) -> Attached:
        """Everything from nothing to a working pod."""
        bare = self.create(wired, self.open(wired.netns), claimed)
        return self.bring_up(wired, bare, announced=announced)

    def open(self, netns: str) -> Entered:
        """Nothing is made yet."""
        opened = enter(netns, home=self.home)
        if opened.namespace.id == self.home.id:
            opened.close()
            raise FlockError(
                f"CNI_NETNS: {netns} is the node's own network namespace",
                code=Code.NODE_NETNS,
                details="flock attaches pods with a namespace of their own; host-network pods need no CNI",
            )
        return opened

    def create(self, wired: Wired, opened: Entered, claimed: Claimed | None) -> Bare:
        """Both ends, down: no packet passes.  `opened` is used up.

        Something of ours that stands in the way and that nobody claims is left over, and is replaced; without `claimed`
        nobody can tell, and it stays: KernelRefused.
        """
        _, namespace, pod, netns = opened
        try:
            link = self._create_pair(wired, namespace, pod, claimed)
            faults.reach(Point.ADD_LINK)
            peer = pod.link(wired.ifname)
            if peer is None:
                raise KernelRefused(f"link {wired.ifname} vanished while it was set up", errno=errno.ENODEV)
            if wired.ip6:
                self._enable_ipv6(wired.ifname, peer, namespace)
        except BaseException:
            pod.close()
            raise
        finally:
            namespace.close()
        return Bare(link, pod, netns, host_side(link, wired, announced=()), pod_side(peer.index, wired))

    def bring_up(self, wired: Wired, bare: Bare, *, announced: Announced) -> Attached:
        """From a bare pair to a working pod."""
        with bare.pod as pod:
            self.host.run(host_side(bare.host, wired, announced) if announced else bare.host_side)
            faults.reach(Point.ADD_HOST_SIDE)
            # Host side first: when the pod side comes up, everything a first packet needs is there.
            pod.run(bare.pod_side)
            carrier.start_queue(self.host, bare.host.name)
            faults.reach(Point.ADD_POD_SIDE)
        return Attached(bare.host.index, bare.netns)

    def _create_pair(self, wired: Wired, namespace: Netns, pod: Netlink, claimed: Claimed | None) -> r.Link:
        """The bare pair.  Returns the host side, which listens to no router."""
        name = wired.host_interface
        request = r.create_veth(
            name=name,
            mac=HOST_MAC,
            mtu=wired.mtu,
            peer_name=wired.ifname,
            peer_mac=bytes.fromhex(wired.mac.replace(":", "")),
            peer_netns_fd=namespace.fd,
        )
        try:
            link = self.host.create(request, name)
        except KernelRefused as refused:
            if refused.errno != errno.EEXIST or claimed is None:
                raise
            self._clear_the_way(wired, name, namespace, pod, claimed)
            link = self.host.create(request, name)
        if link.heeds_routers or (wired.ip6 and (link.ipv6_off or not link.forwards6)):
            prepare_host_side(self.sysctl, name, ipv6=bool(wired.ip6))
        return link

    def _clear_the_way(self, wired: Wired, name: str, namespace: Netns, pod: Netlink, claimed: Claimed) -> None:
        stale = self.host.link(name)
        if stale is not None:
            self.host.run([r.delete_link(stale.index)], ignore=[errno.ENODEV])
        taken = pod.link(wired.ifname)
        if taken is None:
            return
        other_end = self.host.link(taken.peer_index) if taken.kind == "veth" and taken.peer_index else None
        ours = (
            other_end is not None
            and is_host_interface(other_end.name)
            and self.is_pair(other_end, taken, namespace)
            and not claimed(other_end.name)
        )
        if not ours:
            raise FlockError(
                f"CNI_IFNAME: interface {wired.ifname} exists in {wired.netns} and is not ours",
                code=Code.INTERFACE_TAKEN,
                details="another plugin or container uses this namespace; give flock another interface name",
            )
        assert other_end is not None
        self.host.run([r.delete_link(other_end.index)], ignore=[errno.ENODEV])

    def _enable_ipv6(self, ifname: str, peer: r.Link, namespace: Netns) -> None:
        """In the pod: IPv6 on where a runtime switched it off, and no router advertisements.

        The link tells its switches, so that files are touched only where one is wrong.
        """
        if not peer.has_ipv6:
            raise KernelRefused(
                "IPv6 is switched off in this kernel (ipv6.disable=1)",
                details="set spec.defaults.ipv6 to false in the NodeConfig, or enable IPv6",
            )
        if not (peer.ipv6_off or peer.accepts_ra):
            return
        conf, opener = f"{self.sysctl}/ipv6/conf", self._pods_switches.open
        with inside(namespace, home=self.home):
            if peer.ipv6_off:
                for interface in (ifname, "lo"):
                    write_switch(f"{conf}/{interface}/disable_ipv6", "0", opener=opener)
            if peer.accepts_ra:
                correct_switch(f"{conf}/{ifname}/accept_ra", "0", opener=opener)

    def is_intact(self, allocation: "Allocation", netns: str) -> bool:
        """Is the link there, and is `netns` the namespace it leads to?  Raises if `netns` is no namespace."""
        with entered(netns, home=self.home) as found:
            if whose(allocation, found.identity) is Whose.ANOTHERS:
                return False
        link = self.host.link(allocation.host_interface)
        return link is not None and link.up

    # --- taking down ---

    def detach(self, allocations: Collection["Allocation"], *, group: int) -> dict[str, FlockError | OSError]:
        """Delete the links of all at once; what is gone already is fine.  Returns failures by container.

        Deleting a link takes its addresses, routes and neighbours along and touches no other link's, so a late
        DEL never harms the sandbox that holds the same address now.  When a link has this group, all else is done; and
        nothing is done a second time, for by then the container's next link may have that name.
        """
        failures: dict[str, FlockError | OSError] = {}
        for allocation in allocations:
            try:
                self._clear_loopback(allocation)
                routes = self._announced4(allocation)
                self.host.run([r.delete_route(route) for route in routes], ignore=[errno.ESRCH])
            except (FlockError, OSError) as error:
                failures[allocation.container_id] = error  # one must not fail the others
        rest = [a for a in allocations if a.container_id not in failures]
        try:
            self.delete_links([a.host_interface for a in rest], group=group)
        except (FlockError, OSError) as error:
            failures |= {a.container_id: error for a in rest}
        return failures

    def delete_links(self, links: Collection[str | int], *, group: int | None = None) -> None:
        """By name or index; what is gone is fine.  For one deletion the kernel waits 14 to 40 ms before it answers, and
        so it does for a group of any size: whoever wants to know earlier listens (`deleting.py`)."""
        if links:
            number = new_group() if group is None else group
            requests = [*(r.set_group(link, number) for link in links), r.delete_group(number)]
            self.host.run(requests, ignore=[errno.ENODEV])

    def _announced4(self, allocation: "Allocation") -> list[r.Route]:
        """IPv4 routes that BIRD may announce for the pod's primary address: only one it named can be such.

        The kernel tells nobody which IPv4 routes go with a link.  BIRD looks again when it hears that a link is down,
        which may be before they are gone, and then announces them on until its next look."""
        if allocation.ip4 not in allocation.addresses or (link := self.host.link(allocation.host_interface)) is None:
            return []
        return host_routes(link.index, allocation, frozenset({allocation.ip4}))[-1:]

    def _clear_loopback(self, allocation: "Allocation") -> None:
        """Anycast addresses sit on the pod's `lo`, which outlives the link if the namespace does.

        An ADD that failed may have been refused because the namespace is another pod's, or the node's own: what
        stands on `lo` there is not ours.  So it has to be the namespace we recorded, or the one our link leads to.
        """
        if not allocation.anycast or not allocation.netns:
            return
        if not allocation.netns_id and self.host.link(allocation.host_interface) is None:
            return  # nothing leads there: no need to look
        with contextlib.suppress(FieldError), entered(allocation.netns, home=self.home) as found:
            judged = whose(allocation, found.identity)
            if judged is Whose.ITS_OWN or (judged is Whose.UNTOLD and self.leads_to(allocation, found)):
                requests = [r.delete_address(LOOPBACK_INDEX, a, 8 * len(a)) for a in map(packed, allocation.anycast)]
                found.socket.run(requests, ignore=[errno.EADDRNOTAVAIL, errno.ENODEV])

    # --- looking ---

    def leads_to(self, allocation: "Allocation", found: Entered) -> bool:
        """Are the host interface, and the pod's interface in this namespace, the two ends of one link?"""
        host, peer = self.host.link(allocation.host_interface), found.socket.link(allocation.ifname)
        return host is not None and peer is not None and self.is_pair(host, peer, found.namespace)

    def is_pair(self, host: r.Link, peer: r.Link, namespace: Netns) -> bool:
        """`peer` is in `namespace`.  Numbers of links are each namespace's own, so two that agree may be others'."""
        numbers_agree = (host.peer_index, peer.peer_index) == (peer.index, host.index)
        return numbers_agree and 0 <= host.peer_netns == number_of(namespace, seen_by=self.host)


def prepare_host_side(sysctl: "str | Path", name: str, *, ipv6: bool) -> None:
    """Host side, before it goes up: no pod is the node's router, whichever families it has.

    `ipv6`: the pod has an IPv6 address, which works even where the node's default is off.
    """
    conf = f"{sysctl}/ipv6/conf/{name}"
    write_switch(f"{conf}/accept_ra", "0")  # first: what follows may let it listen
    write_switch(f"{conf}/accept_redirects", "0")
    if ipv6:
        write_switch(f"{conf}/disable_ipv6", "0")
        write_switch(f"{conf}/forwarding", "1")
