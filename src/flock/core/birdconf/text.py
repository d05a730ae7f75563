"""The few shapes bird.conf is made of: blocks, prefix sets, quoted strings."""

from collections.abc import Iterable

from flock.core.errors import FieldError
from flock.core.facts import Network
from flock.core.nodeconfig.values import Community

Lines = list[str]


def block(head: str, body: Iterable[str], *, end: str = "}") -> Lines:
    inner = [f"  {line}" if line else "" for line in body]
    return [f"{head} {{", *inner, end] if inner else [f"{head} {{ {end}"]


def channel(family: str, body: Iterable[str]) -> Lines:
    """A channel, filter or interface inside a protocol: like a block, but closed by a semicolon."""
    return block(family, body, end="};")


def prefix_set(networks: Iterable[Network]) -> str:
    """Each prefix with all that is inside it; a default route stands for itself alone."""
    ordered = sorted(networks, key=lambda network: (network.network_address, network.prefixlen))
    return f"[ {', '.join(f'{n}+' if n.prefixlen else str(n) for n in ordered)} ]"


def community(numbers: Community) -> str:
    """The statement that adds the community to a route."""
    attribute = "bgp_community" if len(numbers) == 2 else "bgp_large_community"
    return f"{attribute}.add(({', '.join(map(str, numbers))}));"


def password(secret: str, *, field: str, longest: int) -> str:
    """The secret as BIRD reads it.  BIRD knows no escapes, so what would need one is refused; no message shows it."""
    if not 1 <= len(secret) <= longest:
        raise FieldError(field, f"the password must have 1 to {longest} characters")
    if not all(" " <= character <= "~" and character != '"' for character in secret):
        raise FieldError(field, "the password must be printable ASCII without double quotes")
    return f'"{secret}"'
