"""FRR as a router."""

from collections.abc import Iterable

from flock.core.errors import FlockError
from flock.core.nodeconfig import Family
from flock.core.nodeconfig.shape import BFD
from flock.core.routerconf.speaker import MULTIPATH, Neighbour, OspfLink, Speaker

DAEMONS = ("zebra", "bfdd", "bgpd", "ospfd", "ospf6d")
LEAST_MULTIPLIER = 2  # that bfdd knows
# For all neighbours: a router of the lab has no others.
_FOR_ALL = (" no bgp ebgp-requires-policy", " no bgp default ipv4-unicast", " no bgp network import-check")


def render(speaker: Speaker) -> dict[str, str]:
    """One file per daemon, in the order they start."""
    head = f"! {speaker.name}: written by flockctl\nfrr defaults datacenter\nhostname {speaker.name}\n"
    files = {
        "zebra": f"{head}ip router-id {speaker.router_id}\n",
        "bfdd": head + _bfd(_profiles(speaker)),
        "bgpd": head + _bgp(speaker),
    }
    for daemon, family in (("ospfd", "ipv4"), ("ospf6d", "ipv6")):
        links = [link for link in speaker.ospf if family in link.families]
        if links:
            files[daemon] = head + _ospf(links, family, router_id=speaker.router_id)
    return files


def integrated(speaker: Speaker) -> str:
    """What a router is given through `vtysh`.  It may be in use: its name and its number stay, which FRR makes of an
    IPv4 address where nobody says another, and so does what it asks of its other neighbours."""
    _tell_apart(speaker.neighbours)
    number = f"`bgp router-id {speaker.router_id}` below `router bgp {speaker.asn}`"
    head = f"! {speaker.name}: written by flockctl\n! A router without an IPv4 address also needs {number}\n"
    profiles = _profiles(speaker)
    return head + (_bfd(profiles) if profiles else "") + _bgp(speaker, ours=False)


def _tell_apart(neighbours: Iterable[Neighbour]) -> None:
    links: dict[str, list[str]] = {}
    for n in neighbours:
        links.setdefault(n.address, []).append(n.name)
    for address, names in links.items():
        if len(names) > 1:
            text = f"FRR tells neighbours apart by address alone, and {address} is that of several links"
            raise FlockError(f"{text}: {', '.join(names)}; give each another localAddress")


def _profiles(speaker: Speaker) -> dict[str, BFD]:
    bgp = {n.session: n.bfd for n in speaker.neighbours if n.bfd.enabled}
    return bgp | {link.interface: link.settings.bfd for link in speaker.ospf if link.settings.bfd.enabled}


def _bfd(profiles: dict[str, BFD]) -> str:
    lines = ["bfd"]
    for name, bfd in profiles.items():
        lines += [
            f" profile {name}",
            f"  detect-multiplier {max(bfd.multiplier, LEAST_MULTIPLIER)}",
            f"  receive-interval {bfd.interval}",
            f"  transmit-interval {bfd.interval}",
            " !",
        ]
    return "\n".join([*lines, "!", ""])


def _bgp(speaker: Speaker, *, ours: bool = True) -> str:
    """One that is not ours keeps what holds for all its neighbours, save what nodes with one address need."""
    neighbours = speaker.neighbours
    lines = [
        *(line for n in neighbours for line in _prefix_lists(n, otherwise="" if ours else "any")),
        f"router bgp {speaker.asn}",
        *([f" bgp router-id {speaker.router_id}", *_FOR_ALL] if ours else []),
        " bgp bestpath as-path multipath-relax",
        *(line for n in neighbours for line in _neighbour(n)),
        *(line for family in ("ipv6", "ipv4") for line in _address_family(speaker, family, ours=ours)),
        "!",
    ]
    return "\n".join(lines) + "\n"


def _neighbour(n: Neighbour) -> Iterable[str]:
    name = n.address
    yield f" neighbor {name} remote-as {n.asn}"
    yield f" neighbor {name} description {n.name}"
    yield f" neighbor {name} timers {max(n.hold_time // 3, 1)} {n.hold_time}"
    yield f" neighbor {name} timers connect 1"
    if n.interface:
        yield f" neighbor {name} interface {n.interface}"
    else:
        yield f" neighbor {name} update-source {n.local_address}"
    if ":" in n.address and "ipv4" in n.families:
        yield f" neighbor {name} capability extended-nexthop"
    if n.multihop is not None:
        yield f" neighbor {name} ebgp-multihop {n.multihop}"
    if n.ttl_security:
        yield f" neighbor {name} ttl-security hops 1"
    if n.password:
        yield f" neighbor {name} password {_word(n.password)}"
    if n.bfd.enabled:
        yield f" neighbor {name} bfd profile {n.session}"


def _prefix_lists(n: Neighbour, *, otherwise: str) -> Iterable[str]:
    """What is taken from it and what it is sent; a list that nothing stands in would take everything.  What is sent one
    who takes all has to be said, too (`otherwise`), where FRR keeps to itself what nobody has decided about."""
    for family, word in (("ipv6", "ipv6"), ("ipv4", "ip")):
        if family not in n.families:
            continue
        way_out = "::/0" if family == "ipv6" else "0.0.0.0/0"
        if n.accepted:
            aggregates, hosts = n.accepted.of(family)
            longest = 128 if family == "ipv6" else 32
            patterns = aggregates + [h if h.endswith(f"/{longest}") else f"{h} ge {longest}" for h in hosts]
            for number, pattern in enumerate(patterns, start=1):
                yield f"{word} prefix-list {n.session}-in seq {5 * number} permit {pattern}"
            yield f"{word} prefix-list {n.session}-in seq {5 * len(patterns) + 5} deny any"
        if sent := way_out if n.only_default else otherwise:
            yield f"{word} prefix-list {n.session}-out seq 5 permit {sent}"


def _address_family(speaker: Speaker, family: Family, *, ours: bool) -> Iterable[str]:
    yield f" address-family {family} unicast"
    if speaker.connected:
        yield "  redistribute connected"
    yield f"  maximum-paths {MULTIPATH}"
    for n in speaker.neighbours:
        if family in n.families:
            name = n.address
            yield f"  neighbor {name} activate"
            if n.asn == speaker.asn:
                yield f"  neighbor {name} route-reflector-client"
                yield f"  neighbor {name} next-hop-self"
            if n.default_route:
                yield f"  neighbor {name} default-originate"
            if n.accepted:
                yield f"  neighbor {name} prefix-list {n.session}-in in"
            if n.only_default or not ours:
                yield f"  neighbor {name} prefix-list {n.session}-out out"
        elif family == "ipv4" and not ours:  # which FRR gives to everybody
            yield f"  no neighbor {n.address} activate"
    yield " exit-address-family"


def _ospf(links: Iterable[OspfLink], family: str, *, router_id: str) -> str:
    word, version = ("ip ospf", "ospf") if family == "ipv4" else ("ipv6 ospf6", "ospf6")
    lines: list[str] = []
    for link in links:
        lines += [f"interface {link.interface}", *(f" {word} {option}" for option in _ospf_options(link, family)), "!"]
    lines += [
        f"router {version}",
        f" {version} router-id {router_id}",
        " default-information originate always",
        " redistribute connected",
        " redistribute bgp",
        "!",
    ]
    return "\n".join(lines) + "\n"


def _ospf_options(link: OspfLink, family: str) -> Iterable[str]:
    s = link.settings
    yield f"area {link.area}"
    yield f"cost {s.cost}"
    yield f"hello-interval {s.hello_interval}"
    yield f"dead-interval {s.dead_interval}"
    yield f"network {'point-to-point' if s.type == 'ptp' else 'broadcast'}"
    if s.bfd.enabled:
        yield "bfd"
        yield f"bfd profile {link.interface}"
    if s.authentication and link.password:
        if family == "ipv4":
            if s.authentication.algorithm != "md5":
                raise FlockError(f"FRR's ospfd knows md5 authentication only, not {s.authentication.algorithm}")
            yield "authentication message-digest"
            yield f"message-digest-key {s.authentication.key_id} md5 {_word(link.password)}"
        else:
            yield (
                f"authentication key-id {s.authentication.key_id} "
                f"hash-algo {s.authentication.algorithm} key {_word(link.password)}"
            )


def _word(secret: str) -> str:
    if not secret.isascii() or not secret.isprintable() or " " in secret:
        raise FlockError("FRR takes only passwords that are one word of printable ASCII")
    return secret
