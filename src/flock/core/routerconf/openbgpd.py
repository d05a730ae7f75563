"""OpenBGPD as a router: sessions and a table, no BFD, and IPv4 only over IPv4 (it learned extended next hops late)."""

from collections.abc import Iterable

from flock.core.errors import FlockError
from flock.core.nodeconfig import Family
from flock.core.routerconf.speaker import Neighbour, Speaker, shortened

_LONGEST_DESCRIPTION = 31
_FAMILIES: tuple[Family, ...] = ("ipv6", "ipv4")


def render(speaker: Speaker) -> str:
    lines = [
        f"# {speaker.name}: written by flockctl",
        f"AS {speaker.asn}",
        f"router-id {speaker.router_id}",
        "connect-retry 1",
        "nexthop qualify via default",
        *(line for n in speaker.neighbours for line in ("", *_neighbour(n))),
        "",
        *(rule for n in speaker.neighbours for rule in _filters(n)),
    ]
    return "\n".join(lines) + "\n"


def carried(n: Neighbour) -> tuple[Family, ...]:
    """A session carries the family of its addresses."""
    return tuple(family for family in n.families if (family == "ipv6") == (":" in n.address))


def _neighbour(n: Neighbour) -> Iterable[str]:
    yield f"neighbor {_zoned(n.address, n)} {{"
    yield f'\tdescr "{shortened(n.name, _LONGEST_DESCRIPTION)}"'
    yield f"\tremote-as {n.asn}"
    yield f"\tlocal-address {_zoned(n.local_address, n)}"
    yield f"\tholdtime {n.hold_time}"
    for family in _FAMILIES:
        yield f"\tannounce {family.replace('ip', 'IP')} {'unicast' if family in carried(n) else 'none'}"
    if n.multihop is not None and n.multihop > 1:  # it knows no other name for one hop than none
        yield f"\tmultihop {n.multihop}"
    if n.ttl_security:
        yield "\tttl-security yes"
    if n.password:
        yield f'\ttcp md5sig password "{_word(n.password)}"'
    # Nothing but the default route, that is.  The lab's routers have nothing else that a node could want.
    if n.default_route and (n.only_default or n.accepted is None):
        yield "\texport default-route"
    yield "}"


def _filters(n: Neighbour) -> Iterable[str]:
    """Nothing passes that no rule lets pass."""
    neighbour = _zoned(n.address, n)
    yield f"allow to {neighbour}"
    if n.accepted is None:
        yield f"allow from {neighbour}"
        return
    for family in carried(n):
        aggregates, hosts = n.accepted.of(family)
        longest = 128 if family == "ipv6" else 32
        yield from (f"allow from {neighbour} prefix {aggregate}" for aggregate in aggregates)
        yield from (f"allow from {neighbour} prefix {host} prefixlen = {longest}" for host in hosts)


def _zoned(address: str, n: Neighbour) -> str:
    return f"{address}%{n.interface}" if n.interface else address


def _word(secret: str) -> str:
    if not secret.isascii() or not secret.isprintable() or '"' in secret:
        raise FlockError("OpenBGPD takes only passwords of printable ASCII without double quotes")
    return secret
