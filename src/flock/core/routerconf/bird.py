"""BIRD 2 as a router."""

from collections.abc import Iterable

from flock.core.birdconf.text import password
from flock.core.nodeconfig import Family
from flock.core.routerconf.speaker import MULTIPATH, Neighbour, OspfLink, Speaker


def render(speaker: Speaker) -> str:
    """bird.conf for the job.  Values come from the plan and checked NodeConfigs."""
    blocks = [
        f"# {speaker.name}: written by flockctl\nrouter id {speaker.router_id};\nlog stderr all;",
        "protocol device {}",
        *(_family(speaker, family) for family in ("ipv6", "ipv4")),
        _bfd(speaker.ospf),
        *(_bgp(speaker, neighbour) for neighbour in speaker.neighbours),
        *(
            _ospf(links, family)
            for family in ("ipv6", "ipv4")
            if (links := [link for link in speaker.ospf if family in link.families])
        ),
    ]
    return "\n\n".join(blocks) + "\n"


def _family(speaker: Speaker, family: Family) -> str:
    """The kernel's routes, and what the daemon originates."""
    version = family[-1]
    source = next((a for a in speaker.source if (":" in a) == (family == "ipv6")), None)
    aggregates = [a for a in speaker.aggregates if (":" in a) == (family == "ipv6")]
    default = "::/0" if family == "ipv6" else "0.0.0.0/0"
    is_router = speaker.connected and (speaker.ospf or any(n.default_route for n in speaker.neighbours))
    way_out = [default] if is_router else []
    # One who is told where its own default route leads to sends that; it may be from advertisements or DHCP.
    passes_on = not speaker.connected and not speaker.learn and any(n.default_route for n in speaker.neighbours)
    taken = "all" if speaker.learn else f"where net = {default}" if passes_on else "none"
    lines = [
        f"protocol kernel kernel{version} {{",
        f"  {family} {{",
        f"    import {taken};",
        "    export filter {",
        "      if source = RTS_DEVICE then reject;",
        *([f"      if source ~ [RTS_BGP] then krt_prefsrc = {source};"] if source else []),
        "      accept;",
        "    };",
        *(["    preference 200;"] if speaker.learn else []),
        "  };",
        *(["  learn;"] if speaker.learn or passes_on else []),
        f"  merge paths on limit {MULTIPATH};",
        "}",
    ]
    if speaker.connected:
        lines += ["", f"protocol direct direct{version} {{ {family}; }}"]
    if way_out or aggregates:
        routes = [f"{prefix} unreachable" for prefix in way_out] + [f"{prefix} blackhole" for prefix in aggregates]
        lines += ["", f"protocol static static{version} {{", f"  {family};", *(f"  route {r};" for r in routes), "}"]
    return "\n".join(lines)


def _bfd(links: Iterable[OspfLink]) -> str:
    """BGP neighbours bring their own timers, OSPF takes the interface's."""
    timed = [
        f'  interface "{link.interface}" {{ interval {link.settings.bfd.interval} ms; '
        f"multiplier {link.settings.bfd.multiplier}; }};"
        for link in links
        if link.settings.bfd.enabled
    ]
    return "\n".join(["protocol bfd {", *timed, "}"])


def _bgp(speaker: Speaker, neighbour: Neighbour) -> str:
    reach = "direct;" if neighbour.multihop is None else f"multihop {neighbour.multihop};"
    bfd = f"  bfd {{ interval {neighbour.bfd.interval} ms; multiplier {neighbour.bfd.multiplier}; }};"
    lines = [
        f"protocol bgp {neighbour.session} {{",
        f"  local {neighbour.local_address} as {speaker.asn};",
        f"  neighbor {neighbour.address} as {neighbour.asn};",
        *([f'  interface "{neighbour.interface}";'] if neighbour.interface else []),
        f"  {reach}",
        f"  hold time {neighbour.hold_time};",
        "  connect delay time 1; connect retry time 1; error wait time 1, 2; error forget time 10;",
        *(["  ttl security on;"] if neighbour.ttl_security else []),
        *([f"  password {_quoted(neighbour.password)};"] if neighbour.password else []),
        *([bfd] if neighbour.bfd.enabled else []),
        *([] if neighbour.asn != speaker.asn else ["  rr client;"]),
        *(_channel(speaker, neighbour, family) for family in neighbour.families),
        "}",
    ]
    return "\n".join(lines)


def _channel(speaker: Speaker, neighbour: Neighbour, family: Family) -> str:
    extended = " extended next hop on;" if family == "ipv4" and ":" in neighbour.address else ""
    if speaker.learn:  # a node
        policy = "import where net ~ [0.0.0.0/0]" if family == "ipv4" else "import where net ~ [::/0]"
        policy += "; export where source ~ [RTS_STATIC, RTS_INHERIT];"
    else:
        sent = (
            "where net.len = 0" if neighbour.only_default else "all" if neighbour.default_route else "where net.len > 0"
        )
        policy = f"import {_accepted(neighbour, family)}; export {sent};"
    return f"  {family} {{ {policy} next hop self;{extended} }};"


def _accepted(neighbour: Neighbour, family: Family) -> str:
    if neighbour.accepted is None:
        return "all"
    aggregates, hosts = neighbour.accepted.of(family)
    longest = 128 if family == "ipv6" else 32
    patterns = [*aggregates, *(f"{host}{{{longest},{longest}}}" for host in hosts)]
    return f"where net ~ [ {', '.join(patterns)} ]" if patterns else "none"


def _ospf(links: Iterable[OspfLink], family: Family) -> str:
    areas: dict[str, list[OspfLink]] = {}
    for link in links:
        areas.setdefault(link.area, []).append(link)
    version = "v3" if family == "ipv6" else "v2"
    body = "".join(
        f"  area {area} {{\n" + "".join(_ospf_interface(link) for link in members) + "  };\n"
        for area, members in areas.items()
    )
    return f"protocol ospf {version} ospf{family[-1]} {{\n  {family} {{ import all; export all; }};\n{body}}}"


def _ospf_interface(link: OspfLink) -> str:
    s = link.settings
    options = [
        f"type {s.type}",
        f"cost {s.cost}",
        f"hello {s.hello_interval}",
        f"dead {s.dead_interval}",
        f"bfd {'on' if s.bfd.enabled else 'off'}",
    ]
    if s.authentication and link.password:
        algorithm = "keyed md5" if s.authentication.algorithm == "md5" else s.authentication.algorithm.replace("-", " ")
        key = f"password {_quoted(link.password)} {{ id {s.authentication.key_id}; algorithm {algorithm}; }}"
        options += ["authentication cryptographic", key]
    return f'    interface "{link.interface}" {{ {" ".join(f"{o};" for o in options)} }};\n'


def _quoted(secret: str) -> str:
    return password(secret, field="passwordFile", longest=80)
