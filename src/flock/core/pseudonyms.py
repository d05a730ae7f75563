"""Other names and addresses for a bundle that strangers will read, the same for the same everywhere in it.  Pure.

Names are learned from what the bundle's JSON says of nodes, pods, namespaces, peers, policies and labels, and from
where texts have one (`core/nametraces.py`); then they are replaced in every file, also as parts of other words.
Addresses keep what they have in common: two of one prefix are of one prefix afterwards, so routes and pools still make
sense (each bit is flipped or not by a keyed hash of those before it).  Link-local and reserved addresses, AS numbers,
ports, times and container ids stay.
"""

import hashlib
import re
from collections.abc import Iterator
from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import Any

from flock.core.nametraces import names_in

# Where JSON has names, and what is said instead.
_KINDS = {
    "node": "node", "nodeName": "node", "pod": "pod", "peer": "peer", "namespace": "ns", "name": "name",
    "service": "service", "services": "service", "policies": "policy", "policy": "policy", "address": "host",
    "generateName": "name", "hostname": "host", "externalName": "host", "zone": "zone", "port": "port",
    "targetPort": "port",
}  # fmt: skip
# Sentences: of their words only what is written as NAMESPACE/NAME is a name.
_SENTENCES = frozenset({"policies", "policy", "services"})
_MAPS = ("labels", "matchLabels", "annotations", "selector")
_LABELLED = ("matchExpressions", "taints")  # lists of what has `key`, and `value` or `values`
_SELECTORS = ("matchLabels", "matchExpressions")
# Words of the languages in the bundle, whatever somebody calls a pod.
_KEPT_UNDER = frozenset({
    "kind", "apiVersion", "state", "type", "protocol", "policyTypes", "origin", "tier", "version", "operator", "effect",
    "phase", "verdict", "direction", "action", "level", "check", "result", "family",
})  # fmt: skip
# Of nft, BIRD and ip, without which none of them can be read.
_LANGUAGES = """
    accept drop reject return jump goto masquerade snat dnat nat filter counter set map vmap chain table
    type hook input output forward prerouting postrouting priority comment inet ip ip6 arp meta mark ct
    iifname oifname saddr daddr sport dport protocol bgp bfd ospf kernel device direct static pipe
    template function import export all none where if then else neighbor local as up down start
    established dev via proto scope link mtu state unknown global host valid forever to from
"""
_KEPT = frozenset({
    "", "default", "flock", "flock-system", "flock-agent", "kube-system", "kube-public", "kube-node-lease",
    "kubernetes", "admin", "baseline", "networkpolicy", "clusternetworkpolicy", "nodeconfig", "nodeconfigtemplate",
    "client", "true", "false", "yes", "no", "ingress", "egress", "main", "metadata", "name", "http", "https", "tcp",
    "udp", "dns", "bird", "agent", "pod", "pods", "node", "nodes", "policy", "peer", "service",
    *_LANGUAGES.split(),
})  # fmt: skip
# As the kernel and systemd call them, or people where they number them; `loki-0` is somebody's.
_INTERFACE = re.compile(
    r"(?:lo|(?:eth|bond|br|vlan|dummy|veth|tun|tap|wlan|ens|eno|wlo|wls|team)\d{1,4}"
    r"|(?:en|wl)(?:P\d+)?p\d+s\d+(?:f\d+)?(?:n\w+|d\d+)?|enx[0-9a-f]{12}|br-[0-9a-f]{12}|veth[0-9a-f]{6,11})(?:\.\d{1,4})?"
)
_OURS = re.compile(r"kubernetes\.io|k8s\.io|flock\.fritzlab\.net")
_NAMED = re.compile(r"[A-Za-z0-9]([\w.-]*[A-Za-z0-9])?")
_WORD = re.compile(
    r"(?P<mac>(?<![\w:])(?:[0-9a-fA-F]{2}:){5}[0-9a-fA-F]{2}(?![\w:]))"
    r"|(?P<six>(?<![\w.])[0-9a-fA-F:]*:[0-9a-fA-F:]*:[0-9a-fA-F:.]*)(?P<length6>/\d{1,3}\b)?"
    r"|(?P<four>(?<![\w.])\d{1,3}(?:\.\d{1,3}){3}(?![\w]|\.\d))(?P<length4>/\d{1,2}\b)?"
    r"|(?P<name>[A-Za-z0-9][\w.-]*)"
)
_SEPARATOR = re.compile(r"([._-])")


class Pseudonyms:
    """`key`: random bytes; whoever has it can undo the addresses."""

    def __init__(self, key: bytes) -> None:
        self._key = key
        self._names: dict[str, str] = {}
        self._most_pieces = 1  # of a name: no longer one is looked for, however long a word somebody writes
        self._addresses: dict[str, str] = {}
        self._bits: dict[tuple[int, int, int], int] = {}
        self._counts: dict[str, int] = {}

    # --- learning ---

    def learn(self, value: Any, *, under: str = "") -> None:
        """Every name that a document of the bundle has."""
        if isinstance(value, dict):
            for key, inner in value.items():
                if under in _LABELLED and key in ("key", "value", "values"):
                    for name in inner if isinstance(inner, list) else [inner]:
                        self.name(name if isinstance(name, str) else "", "label")
                if under in _MAPS and key not in _SELECTORS:
                    self.name(key, "label")
                    self.name(inner if isinstance(inner, str) else "", "label")
                self.learn(inner, under=key)
        elif isinstance(value, list):
            for inner in value:
                self.learn(inner, under=under)
        elif isinstance(value, str) and under in _KINDS:
            words = re.split(r"[,;\s]+", value)
            for word in words if under not in _SENTENCES else (w for w in words if "/" in w):
                for part in word.split("/"):
                    self.name(part, _KINDS[under])
        if isinstance(value, str):
            self.learn_text(value)

    def learn_text(self, text: str) -> None:
        """What a text has of names that may be in no document."""
        for name, kind in names_in(text):
            self.name(name, kind)

    def name(self, name: str, kind: str) -> None:
        """From now on it is called otherwise, unless it says nothing of anybody."""
        plain = name.lower() in _KEPT or name.isdigit() or _INTERFACE.fullmatch(name) or _OURS.search(name)
        if not plain and "/" in name:
            for part in name.split("/"):
                self.name(part, kind)
            return
        if plain or _is_address(name) or not _NAMED.fullmatch(name) or _alike(name) in self._names:
            return
        self._counts[kind] = self._counts.get(kind, 0) + 1
        self._names[_alike(name)] = f"{kind}-{self._counts[kind]}"
        self._most_pieces = max(self._most_pieces, len(_SEPARATOR.split(name)))

    # --- replacing ---

    def text(self, given: str) -> str:
        return _WORD.sub(self._instead, given)

    def value(self, given: Any, *, under: str = "") -> Any:
        if isinstance(given, str):
            return given if under in _KEPT_UNDER else self.text(given)
        if isinstance(given, dict):
            return {self._keyed(key, under): self.value(inner, under=key) for key, inner in given.items()}
        if isinstance(given, list):
            return [self.value(inner, under=under) for inner in given]
        return given

    def _keyed(self, key: str, under: str) -> str:
        """A key of a document is a word of its language, unless it is a label's or an address."""
        if under in _MAPS and key not in _SELECTORS:
            return self.text(key)
        return self.text(key) if _is_address(key.partition("/")[0]) else key

    def _instead(self, match: re.Match[str]) -> str:
        if match["mac"]:
            return "02:" + ":".join(f"{b:02x}" for b in self._hash(match["mac"].lower().encode())[:5])
        if match["name"]:
            return "".join(self._parts(match["name"]))
        written, length = match["six"] or match["four"], match["length6"] or match["length4"] or ""
        address = written.rstrip(":.") if not written.endswith("::") else written
        if not _is_address(address):
            return (
                match[0]
                if match["four"]
                else "".join(p if p == ":" else "".join(self._parts(p)) for p in _colons(match[0]))
            )
        return self._address(address, int(length[1:]) if length else None) + written[len(address) :] + length

    def _parts(self, word: str) -> Iterator[str]:
        """The longest names in a word, left to right; they begin and end at its dots and dashes."""
        pieces = _SEPARATOR.split(word)
        start = 0
        while start < len(pieces):
            for end in range(min(len(pieces), start + self._most_pieces), start, -1):
                found = self._names.get(_alike("".join(pieces[start:end])))
                if found or end == start + 1:
                    yield found or pieces[start]
                    start = end
                    break

    def _address(self, written: str, length: int | None) -> str:
        key = f"{written}/{length}"
        if key not in self._addresses:
            self._addresses[key] = str(self._other(ip_address(written), length))
        return self._addresses[key]

    def _other(self, address: IPv4Address | IPv6Address, length: int | None) -> IPv4Address | IPv6Address:
        width, number = address.max_prefixlen, int(address)
        if isinstance(address, IPv6Address) and address.ipv4_mapped:
            return IPv6Address(f"::ffff:{self._other(address.ipv4_mapped, None)}")
        if address.is_loopback or address.is_multicast or not number or (width == 32 and number >> 24 in (0, 255)):
            return address
        kept = 0  # leading bits that stay
        if address.is_link_local:
            kept = width // 2
            if width == 128 and number & 0xFFFF_FFFF_FFFF_FFFF < 1 << 16:
                return address
        changed = 0
        for index in range(width):
            bit = number >> (width - 1 - index) & 1
            flip = self._flip(width, index, number >> (width - index)) if index >= kept else 0
            changed = changed << 1 | bit ^ flip
        if length is not None and length < width and not number & ((1 << width - length) - 1):
            changed = changed >> width - length << width - length  # a network stays one
        return type(address)(changed)

    def _flip(self, width: int, index: int, prefix: int) -> int:
        """Never in the first three bits: addresses stay in the space they are of."""
        known = (width, index, prefix)
        if known not in self._bits:
            self._bits[known] = self._hash(repr(known).encode())[0] & 1 if index > 2 else 0
        return self._bits[known]

    def _hash(self, data: bytes) -> bytes:
        return hashlib.blake2b(data, key=self._key, digest_size=8).digest()


def _is_address(text: str) -> bool:
    try:
        ip_address(text)
    except ValueError:
        return False
    return True


def _alike(name: str) -> str:
    """As others write it: BIRD and nft have no dashes everywhere."""
    return name.lower().replace("_", "-").replace(".", "-")


def _colons(text: str) -> list[str]:
    return re.split("(:)", text)
