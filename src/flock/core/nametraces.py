"""Names in text, of pods, peers, policies, labels: where a log, bird.conf, nft's comments or sentences have one.  Pure.

Objects that are gone, or of other nodes, are in no document; what is said of them still has their names.
"""

import re
from collections.abc import Iterator

Named = tuple[str, str]  # the name, and of what kind

_KINDS = {
    "pod": "pod", "holder": "pod", "for": "pod", "node": "node", "namespace": "ns", "ns": "ns", "peer": "peer",
    "policy": "policy", "service": "service", "name": "name", "object": "name", "host": "host", "hostname": "host",
    "nodeconfig": "node", "neighbor": "peer", "label": "label",
}  # fmt: skip
_KEYED = re.compile(rf"""\b({"|".join(_KINDS)})=(?:"([^"\n]{{1,300}})"|'([^'\n]{{1,300}})'|([^\s"',;)\]]{{1,300}}))""")
_COMMENT = re.compile(r'\bcomment "([^"\n]{1,300})"')
_ALIAS = re.compile(r"\balias (\S{1,300})")
_SESSION = re.compile(  # as `birdconf.sessions` calls them, and as BIRD lists them
    r"\bprotocol bgp '?(?:bgp_)?([\w.-]{1,100})'?|^(?:bgp_)?([\w.-]{1,100}) +BGP +\S+ +\w+ ", re.MULTILINE
)
_DESCRIBED = re.compile(r'\bdescription "([^"\n]{1,300})"')
_SELECTED = re.compile(r"\b(?:pods|nodes|namespaces) ((?:[\w./-]{1,300}=[\w.-]{0,63},?)+)")
_AMONG = re.compile(r"(?<![\w./-])([\w./-]{1,300}) (?:not )?in \(([\w., -]{1,1000})\)")
_OF = re.compile(r"\bof namespace ([a-z0-9-]{1,63})\b")
# What Kubernetes and BIRD say, with the kinds of the names in it.
_SAID: tuple[tuple[re.Pattern[str], tuple[str, ...]], ...] = (
    (re.compile(r"\bbgp_([\w.-]{1,100}): "), ("peer",)),
    (re.compile(r"\b([a-z0-9-]{1,63})\.([a-z0-9-]{1,63})\.svc\b"), ("service", "ns")),
    (re.compile(r"\bsystem:serviceaccount:([a-z0-9-]{1,63}):([a-z0-9.-]{1,253})"), ("ns", "name")),
    (re.compile(r"\bsystem:node:([a-z0-9.-]{1,253})"), ("node",)),
    (re.compile(r"/namespaces/([a-z0-9-]{1,63})(?:/[a-z]{1,63}/([a-z0-9.-]{1,253}))?"), ("ns", "name")),
    (re.compile(r"/(?:nodes|nodeconfigs)/([a-z0-9.-]{1,253})"), ("node",)),
    (
        re.compile(r'\b(?:pods|services|nodes|namespaces|networkpolicies|nodeconfigs)[a-z0-9.]* "([a-z0-9.-]{1,253})"'),
        ("name",),
    ),
)
_KUBECTL = re.compile(r"^--- ([a-z0-9][a-z0-9.-]{0,252})$", re.MULTILINE)
_PAIR = re.compile(r"(?<![\w./:-])([a-z0-9][a-z0-9-]{0,62})/([a-z0-9][a-z0-9.-]{0,252})(?![\w/-])")
# Whose words are no names, in a text about names: as much of a file system, of a protocol, of an API.
_NO_NAMES = re.compile(r"\d+|[a-z]+v?\d*/(?:json|yaml|plain|tcp|udp|sctp|ether|none|pods|a|or)|\d+/.*")


def names_in(text: str) -> Iterator[Named]:
    for match in _KEYED.finditer(text):
        yield from _divided(match[2] or match[3] or match[4], _KINDS[match[1]])
    for pattern in (_COMMENT, _ALIAS, _DESCRIBED):
        for match in pattern.finditer(text):
            yield from _of_a_comment(match[1])
    for match in _SESSION.finditer(text):
        yield match[1] or match[2], "peer"
    for match in _SELECTED.finditer(text):
        for word in filter(None, match[1].split(",")):
            key, _, value = word.partition("=")
            yield from ((key, "label"), (value, "label"))
    for match in _AMONG.finditer(text):
        yield match[1], "label"
        yield from ((value.strip(), "label") for value in match[2].split(","))
    for match in _OF.finditer(text):
        yield match[1], "ns"
    for said, kinds in _SAID:
        for match in said.finditer(text):
            yield from ((name.rstrip(".-"), kind) for name, kind in zip(match.groups(), kinds, strict=True) if name)
    for match in _KUBECTL.finditer(text):
        if not match[1].endswith(".log"):
            yield match[1], "pod"


def _divided(word: str, kind: str) -> Iterator[Named]:
    """`namespace/name`, or several."""
    if word.startswith("/") or " " in word:
        return
    for each in word.split(","):
        namespace, slash, name = each.rstrip(".:").partition("/")
        if slash:
            yield namespace, "ns"
        yield (name if slash else namespace), kind


def _of_a_comment(said: str) -> Iterator[Named]:
    """One word is a name; of a sentence only what is written as namespace/name."""
    pairs = [match for match in _PAIR.finditer(said) if not _NO_NAMES.fullmatch(match[0])]
    for match in pairs:
        yield from ((match[1], "ns"), (match[2], "pod"))
    if not pairs and " " not in said and "/" not in said:
        yield said, "name"
