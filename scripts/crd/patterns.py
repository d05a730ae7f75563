"""Regular expressions for what a schema has no other words for: numbers in a range written as text, durations,
addresses, prefixes.

The API server knows Go's dialect: no look-ahead, no back-reference.  Expressions match a part; `whole` anchors one.
They accept exactly what `flock.core.nodeconfig.values` accepts, odd spellings included: leading zeros up to a number
of digits, `::` anywhere, IPv4 at the end of IPv6.
"""

HEX = "[0-9a-fA-F]"
_GROUP = f"{HEX}{{1,4}}"
_OCTET = "(25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])"

SECOND, MINUTE, HOUR = 1000, 60_000, 3_600_000  # in milliseconds
DURATION_DIGITS = 9


def whole(*alternatives: str) -> str:
    return f"^({'|'.join(alternatives)})$"


# --- numbers ------------------------------------------------------------------------------------------------


def between(low: int, high: int, *, digits: int) -> str:
    """Decimal numbers from `low` to `high` in at most so many digits, leading zeros among them."""
    alternatives = []
    for length in range(len(str(low)), len(str(high)) + 1):
        smallest = max(low, 10 ** (length - 1) if length > 1 else 0)
        largest = min(high, 10**length - 1)
        zeros = f"0{{0,{digits - length}}}" if digits > length else ""
        alternatives += [zeros + part for part in _span(str(smallest), str(largest))]
    return f"({'|'.join(alternatives)})"


def _span(low: str, high: str) -> list[str]:
    """Numbers of one length: those that share the first digit of `low`, those between, those that share `high`'s."""
    if not low:
        return [""]
    if low[0] == high[0]:
        return [low[0] + rest for rest in _span(low[1:], high[1:])]
    below, above = [], []
    first, last, rest = int(low[0]), int(high[0]), len(low) - 1
    if low[1:] != "0" * rest:
        below = [low[0] + part for part in _span(low[1:], "9" * rest)]
        first += 1
    if high[1:] != "9" * rest:
        above = [high[0] + part for part in _span("0" * rest, high[1:])]
        last -= 1
    between_ = [_digit(first, last) + (f"[0-9]{{{rest}}}" if rest else "")] if first <= last else []
    return [*below, *between_, *above]


def _digit(first: int, last: int) -> str:
    return str(first) if first == last else f"[{first}-{last}]"


# --- durations ----------------------------------------------------------------------------------------------


def duration(low: int, high: int, *, step: int) -> str:
    """From `low` to `high` milliseconds, whole multiples of `step`: 1, or 1000 for whole seconds."""
    alternatives = []
    for unit, length in (("s?", SECOND), ("m", MINUTE), ("h", HOUR)):
        first, last = -(-low // length), high // length
        if first <= last:
            alternatives.append(between(first, last, digits=DURATION_DIGITS) + unit)
    # In milliseconds a multiple of 1000 is a number and three zeros.
    ending = "000" if step == SECOND else ""
    digits = DURATION_DIGITS - len(ending)
    alternatives.append(between(-(-low // step), high // step, digits=digits) + f"{ending}ms")
    return whole(*alternatives)


# --- addresses ----------------------------------------------------------------------------------------------


def _ipv6() -> str:
    """`::` stands for one group or more: so many groups before it leave so many for behind it.  The last two may be
    written as an IPv4 address."""
    alternatives = [f"({_GROUP}:){{7}}{_GROUP}", f"({_GROUP}:){{6}}{IPV4}"]
    for before in range(8):
        head = f"({_GROUP}:){{{before}}}:" if before else "::"
        behind = []
        if before <= 6:
            behind.append(f"({_GROUP}:){{0,{6 - before}}}{_GROUP}")
        if before <= 5:
            behind.append(f"({_GROUP}:){{0,{5 - before}}}{IPV4}")
        alternatives.append(head + (f"({'|'.join(behind)})?" if behind else ""))
    return f"({'|'.join(alternatives)})"


IPV4 = rf"({_OCTET}\.){{3}}{_OCTET}"
IPV6 = _ipv6()
LINK_LOCAL6 = f"[fF][eE][89abAB]{HEX}:"  # how an address in fe80::/10 begins

# Addresses that no router and no pod can have (`flock.core.reserved`), up to their end or a `/`: ::, ::1 and mapped
# IPv4 in every spelling, as the rest of what is a valid address can only be zeros.  fe80::/10 and 169.254.0.0/16 are
# apart, as a router may have such a one.
_MAPPED = rf"([0:]*:[fF]{{4}}:({_GROUP}:{_GROUP}|{IPV4})|(0{{1,4}}:){{5}}[fF]{{4}}:(:({_GROUP})?|{_GROUP}::))"
_ZEROS_OR_ONE = r"[0:]*:(0{0,3}1|0\.0\.0\.[01])?"
RESERVED = rf"((0|127|22[4-9]|2[345][0-9])\.|[fF][fF]{HEX}{{2}}:|([0:]+|{_ZEROS_OR_ONE}|{_MAPPED})(/|$))"
LINK_LOCAL = rf"(169\.254\.|{LINK_LOCAL6})"


def prefix4(longest: int = 32) -> str:
    return f"{IPV4}/{between(0, longest, digits=3)}"


def prefix6(longest: int = 128) -> str:
    return f"{IPV6}/{between(0, longest, digits=3)}"


# Prefixes that lie in one reserved class as a whole, so that nothing in them can be granted.
RESERVED_PREFIX = whole(
    rf"(0|127)\.[0-9.]+/{between(8, 32, digits=3)}",
    rf"2(2[4-9]|[345][0-9])\.[0-9.]+/{between(4, 32, digits=3)}",
    rf"169\.254\.[0-9.]+/{between(16, 32, digits=3)}",
    rf"[fF][fF]{HEX}{{2}}:[^/]*/{between(8, 128, digits=3)}",
    rf"{LINK_LOCAL6}[^/]*/{between(10, 128, digits=3)}",
    rf"{_MAPPED}/{between(96, 128, digits=3)}",
    rf"([0:]+|{_ZEROS_OR_ONE})/128",
)
