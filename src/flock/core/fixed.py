"""Addresses and a MAC that a runtime asks for by its own means, as podman's `--ip`, `--ip6` and `--mac-address` do.

They come by the capabilities `ips` and `mac` of the conflist (`runtimeConfig`), or as IP= and MAC= in CNI_ARGS.  Such
an address is what one in the annotation `addresses` is, under the same rules: the first of its family is the
container's primary address.  What cannot be had is refused with an error that names where it came from.
"""

import re
from collections.abc import Sequence
from ipaddress import ip_address

import msgspec

from flock.core.errors import Code, FieldError, shown
from flock.core.facts import Address
from flock.core.naming import HOST_MAC, format_mac
from flock.core.reserved import reserved

IPS, MAC = "runtimeConfig.ips", "runtimeConfig.mac"
ARGS_IP, ARGS_MAC = "CNI_ARGS IP", "CNI_ARGS MAC"

_MAC = re.compile(r"(?:[0-9a-f]{2}[:-]){5}[0-9a-f]{2}", re.IGNORECASE)


class Fixed(msgspec.Struct, frozen=True, kw_only=True):
    """What was asked for; `field` names its origin in errors.  An empty `mac`: any."""

    field: str = ""
    addresses: tuple[Address, ...] = ()
    mac: str = ""
    warnings: tuple[str, ...] = ()

    def error(self, problem: str, *, details: str = "") -> FieldError:
        return _error(self.field, problem, details=details)


NOTHING = Fixed()


def parse_fixed(*, ips: Sequence[str], mac: str, args_ip: str, args_mac: str) -> Fixed:
    """What comes by a capability counts before CNI_ARGS, where both speak.  Raises FieldError."""
    field, texts = (IPS, ips) if ips else (ARGS_IP, args_ip.split(",") if args_ip else ())
    found: dict[Address, None] = {}
    warnings = []
    for text in texts:
        address, _, length = text.strip().partition("/")
        found[_address(field, address)] = None
        if length and length not in ("32", "128"):
            warnings.append(f"{field}: the length of {shown(text, 80)} is ignored, a pod's addresses stand alone")
    if ips and args_ip:
        warnings.append(f"{ARGS_IP}: ignored beside {IPS}")
    hardware = _mac(MAC, mac) if mac else _mac(ARGS_MAC, args_mac) if args_mac else ""
    return Fixed(field=field, addresses=tuple(found), mac=hardware, warnings=tuple(warnings))


def _address(field: str, text: str) -> Address:
    try:
        address = ip_address(text)
    except ValueError:
        raise _error(field, f"{text[:80]!r} is not an IP address") from None
    if "%" in text:
        raise _error(field, f"{text[:80]!r} has a zone; pod addresses are routed and have none")
    if reason := reserved(address):
        raise _error(field, f"no pod can have {address}: it is {reason}")
    return address


def _mac(field: str, text: str) -> str:
    if not _MAC.fullmatch(text):
        raise _error(field, f"{text[:80]!r} is not a MAC address", details="six pairs of hex digits, 0a:58:00:00:00:01")
    octets = bytes.fromhex(text.replace("-", ":").replace(":", ""))
    if octets[0] & 1 or not any(octets):
        raise _error(field, f"{text} is no address of one interface", details="a unicast one is needed")
    if octets == HOST_MAC:
        raise _error(field, f"{text} is the other end's", details="the node's side of every pod's link has it")
    return format_mac(octets)


def _error(field: str, problem: str, *, details: str = "") -> FieldError:
    code = Code.INVALID_ENVIRONMENT if field.startswith("CNI_ARGS") else Code.INVALID_CONFIG
    return FieldError(field, problem, details=details, code=code)
