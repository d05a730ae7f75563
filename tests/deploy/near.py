"""Values near those of a good NodeConfig: one step across a limit, one character off, the same address in another
spelling."""

from ipaddress import IPv4Address, IPv6Address, ip_network
from typing import Any

from configs import CONTAINERS, SCALARS
from hypothesis import strategies as st

# What is reserved, what may be had, and everything.
NETWORKS = (
    *("::/128", "::1/128", "::ffff:0:0/96", "fe80::/10", "ff00::/8", "::/0", "2001:db8::/32", "2001:db8:1::/64"),
    *("0.0.0.0/8", "127.0.0.0/8", "169.254.0.0/16", "224.0.0.0/4", "240.0.0.0/4", "0.0.0.0/0", "192.0.2.0/24"),
)
LENGTHS = (0, 1, 3, 4, 7, 8, 9, 10, 11, 15, 16, 24, 30, 31, 32, 33, 64, 95, 96, 126, 127, 128, 129)
LIMITS = (0, 1, 3, 10, 100, 255, 576, 1280, 3600, 4095, 23456, 65535, 65536, 10**7, 2**24, 2**32 - 1)
NUMBERS = st.sampled_from(LIMITS).flatmap(lambda limit: st.sampled_from((limit - 1, limit, limit + 1)))


@st.composite
def addresses(draw: st.DrawFn) -> IPv4Address | IPv6Address:
    network = ip_network(draw(st.sampled_from(NETWORKS)))
    last = network.num_addresses - 1
    return network[draw(st.sampled_from((0, 1, last)) | st.integers(0, last)) % network.num_addresses]


@st.composite
def spelled(draw: st.DrawFn, address: IPv4Address | IPv6Address) -> str:
    """The address in any of its spellings."""
    if isinstance(address, IPv4Address):
        return str(address)
    width = draw(st.sampled_from((1, 4)))
    groups = [f"{int(address) >> shift & 0xFFFF:0{width}x}" for shift in range(112, -1, -16)]
    if draw(st.booleans()):
        groups[6:] = [str(IPv4Address(int(address) & 0xFFFFFFFF))]
    runs = [(a, b) for a in range(6) for b in range(a + 1, 7) if not any(int(g, 16) for g in groups[a:b])]
    text = ":".join(groups)
    if runs and draw(st.booleans()):
        start, end = draw(st.sampled_from(runs))
        text = f"{':'.join(groups[:start])}::{':'.join(groups[end:])}"
    text = draw(st.sampled_from((text, str(address))))
    return (text.upper() if draw(st.booleans()) else text) + draw(st.sampled_from(("", "", "", "%eth0")))


@st.composite
def prefixes(draw: st.DrawFn) -> str:
    address, length = draw(addresses()), draw(st.sampled_from(LENGTHS))
    if length <= address.max_prefixlen and draw(st.integers(0, 9)):
        address = ip_network((address, length), strict=False).network_address
    return f"{draw(spelled(address))}/{draw(st.sampled_from(('', '', '0')))}{length}"


@st.composite
def misspelled(draw: st.DrawFn, text: str) -> str:
    """One character more, less or another."""
    at, character = draw(st.integers(0, len(text))), draw(st.sampled_from("019afF:./%-_ \n,@}+é"))
    return text[:at] + draw(st.sampled_from(("", character))) + text[at + draw(st.integers(0, 1)) :]


def near(value: Any) -> st.SearchStrategy[Any]:
    durations = st.tuples(NUMBERS, st.sampled_from(("", "ms", "s", "m", "h", "S"))).map(lambda d: f"{d[0]}{d[1]}")
    communities = st.lists(NUMBERS, min_size=1, max_size=4).map(lambda parts: ":".join(map(str, parts)))
    anything = st.none() | st.just(1.5) | NUMBERS.map(float) | st.sampled_from((*SCALARS, *CONTAINERS))
    others = (addresses().flatmap(spelled), prefixes(), durations, communities, anything, NUMBERS)
    if isinstance(value, str):
        return st.one_of(misspelled(value), *others)
    if isinstance(value, int) and not isinstance(value, bool):
        return st.one_of(st.sampled_from((value - 1, value + 1)), *others)
    return st.one_of(*others)
