"""What can happen on a node, as values: a closed set of frozen structs, each of which knows how it is said.

Whoever makes something happen notes it once (`agent/happened.py`); the log, the counters, Kubernetes events and
`flockctl` all read the same value and say it with its words (`str`).  A pod is `namespace/name`.

A new kind is a struct here, and nothing else: `flockctl happened` and `/happenings` tell it.  There its fields stand
beside `time`, `kind` and `said`, so a field of one of these names has another one in JSON (`msgspec.field(name=)`).
"""

from enum import StrEnum
from logging import DEBUG, ERROR, INFO, NOTSET, WARNING
from typing import ClassVar

import msgspec

from flock.core.errors import Code

# Events about what a pod's owner can do something about; everything else is the operator's.
REASONS: dict[int, str] = {
    Code.BAD_ANNOTATION: "FlockBadAnnotation",
    Code.NOT_GRANTED: "FlockAddressNotGranted",
    Code.ADDRESS_IN_USE: "FlockAddressInUse",
    Code.POOL_EXHAUSTED: "FlockPoolExhausted",
    Code.ANOTHER_NAMESPACES: "FlockAddressOfAnotherNamespace",
    Code.TOO_MANY_CLAIMS: "FlockTooManyAddresses",
}


class Share(StrEnum):
    """Of what is remembered: who can make it happen pushes out only the like of it."""

    NODE = "node"  # the operator, the fabric, the machine
    PODS = "pods"  # whoever makes pods, labels them, and writes policies
    DROPS = "drops"  # whoever sends a packet
    AUDIT = "audit"  # the same, where policies are audited


class Happening(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """`part` names its logger, `level` says how loud it is there (NOTSET: never), `words` what is said, and
    `counted_by` the field its counter has as a label."""

    share: ClassVar[Share] = Share.NODE
    part: ClassVar[str] = "agent"
    level: ClassVar[int] = INFO
    words: ClassVar[str] = ""
    counted_by: ClassVar[str] = ""

    def __str__(self) -> str:
        return self.words.format_map(msgspec.structs.asdict(self))


# --- what the node, its routers and its operator do ---


class Started(Happening, frozen=True, kw_only=True):
    """Nothing that happened before is known."""

    words = "started node={node} version={version}"
    node: str
    version: str


class ConfigTaken(Happening, frozen=True, kw_only=True):
    part, words = "node", "took NodeConfig node={node} cidrs={cidrs}"
    node: str
    cidrs: str


class ConfigRefused(Happening, frozen=True, kw_only=True):
    """An event for whoever wrote it."""

    part, level = "node", ERROR
    words = "refused NodeConfig node={node} problem={problem!r} last_good={last_good}"
    node: str
    problem: str
    last_good: bool


class SessionUp(Happening, frozen=True, kw_only=True):
    part, words = "bird", "session up peer={peer}"
    peer: str


class SessionDown(Happening, frozen=True, kw_only=True):
    part, level, words = "bird", WARNING, "session down peer={peer} state={state!r} problem={problem!r}"
    peer: str
    state: str
    problem: str


class BfdUp(Happening, frozen=True, kw_only=True):
    part, words = "bird", "BFD up peer={peer}"
    peer: str


class BfdDown(Happening, frozen=True, kw_only=True):
    part, level, words = "bird", WARNING, "BFD down peer={peer}"
    peer: str


class BirdThere(Happening, frozen=True, kw_only=True):
    part, words = "bird", "BIRD is there socket={socket}"
    socket: str


class BirdGone(Happening, frozen=True, kw_only=True):
    part, level, words = "bird", WARNING, "BIRD went away"


class NodeReady(Happening, frozen=True, kw_only=True):
    words = "ready node={node}"
    node: str


class Drained(Happening, frozen=True, kw_only=True):
    """All anycast of the node is withdrawn, by its operator or because it goes down."""

    part, words = "anycast", "drained reason={reason!r}"
    reason: str


class Undrained(Happening, frozen=True, kw_only=True):
    part, words = "anycast", "undrained"


class RulesMadeAnew(Happening, frozen=True, kw_only=True):
    part, level, words = "policy", WARNING, "our tables were changed by somebody else, making them anew"


class Repaired(Happening, frozen=True, kw_only=True):
    """`what` as `ip` would print it, of a pod or of nobody."""

    part, level, words, counted_by = "heal", WARNING, "repaired {kind}: {what}", "kind"
    kind: str = msgspec.field(name="repaired")
    what: str
    pod: str

    def __str__(self) -> str:
        return super().__str__() + (f" (pod {self.pod})" if self.pod else "")


# --- what pods, and those who make them, do ---


class Attached(Happening, frozen=True, kw_only=True):
    """The call itself is in the log already."""

    share, part, level = Share.PODS, "attach", DEBUG
    words = "attached pod={pod} container={container} addresses={addresses}"
    pod: str
    container: str
    addresses: str


class Detached(Happening, frozen=True, kw_only=True):
    share, part, level, words = Share.PODS, "attach", DEBUG, "detached pod={pod} container={container}"
    pod: str
    container: str


class Buried(Happening, frozen=True, kw_only=True):
    """Its link and its namespace are gone, and nobody deleted it."""

    share, part, level, words = Share.PODS, "heal", WARNING, "releasing dead container={container} pod={pod}"
    pod: str
    container: str


class AddFailed(Happening, frozen=True, kw_only=True):
    """An event for the pod's owner, where they can change it (`reason`).  The call itself is in the log already."""

    share, part, level = Share.PODS, "cni", DEBUG
    words = "could not attach pod={pod} container={container} code={code} problem={problem!r}"
    pod: str
    uid: str
    container: str
    code: int
    problem: str

    @property
    def reason(self) -> str:
        return REASONS.get(self.code, "") if self.pod else ""


class PolicyRefused(Happening, frozen=True, kw_only=True):
    """An event for whoever wrote it, where it is about a pod of this node.  `policy` is `namespace/name`, or the name
    of one that has no namespace."""

    share, part, level = Share.PODS, "policy", WARNING
    words = "refused {kind} {policy} problem={problem!r}"
    kind: str = msgspec.field(default="NetworkPolicy", name="policy_kind")
    policy: str
    problem: str


class Overfull(Happening, frozen=True, kw_only=True):
    share, part, level = Share.PODS, "limit", WARNING
    words = "no further connections pod={pod} has={has} limit={limit}"
    pod: str
    has: int
    limit: int


class OverfullNoMore(Happening, frozen=True, kw_only=True):
    share, part, words = Share.PODS, "limit", "connections again pod={pod}"
    pod: str


class Announced(Happening, frozen=True, kw_only=True):
    share, part, words = Share.PODS, "anycast", "announced address={address}"
    address: str


class Rerouted(Happening, frozen=True, kw_only=True):
    """Announced as before, for other pods."""

    share, part, words = Share.PODS, "anycast", "changed address={address}"
    address: str


class Withdrawn(Happening, frozen=True, kw_only=True):
    share, part, words = Share.PODS, "anycast", "withdrew address={address}"
    address: str


class ServiceAnnounced(Happening, frozen=True, kw_only=True):
    share, part, words = Share.PODS, "services", "announced address={address} of Service={services}"
    address: str
    services: str


class ServiceWithdrawn(Happening, frozen=True, kw_only=True):
    share, part, words = Share.PODS, "services", "withdrew address={address} of a Service reason={reason!r}"
    address: str
    reason: str


class ServiceRefused(Happening, frozen=True, kw_only=True):
    """An event for whoever made it: another address, or another configuration, is needed."""

    share, part, level = Share.PODS, "services", WARNING
    words = "cannot announce address={address} of Service={service} problem={problem!r}"
    service: str
    address: str
    problem: str


# --- what packets do ---


class Dropped(Happening, frozen=True, kw_only=True):
    """By our rules.  `what`: ingress or egress (policy), spoofed (anti-spoofing), walled (never for or from a pod),
    overfull (the pod opened too many connections, or sent too many fragments).  `policies` isolate the pod, as in the
    class's comment; or it is the tier, the policy and the rule that denied."""

    share, part, level = Share.DROPS, "policy", NOTSET
    words = "{what:<8} {pod}: {source} -> {destination} {protocol}"
    would: ClassVar[str] = ""
    what: str
    pod: str
    source: str
    destination: str
    protocol: str
    port: int
    policies: str

    def __str__(self) -> str:
        port = f"/{self.port}" if self.port else ""
        by = "denied" if self.policies.startswith(("Admin ", "Baseline ")) else "isolated"
        return super().__str__() + port + (f" {self.would}{by} by {self.policies}" if self.policies else "")


class WouldDrop(Dropped, frozen=True, kw_only=True):
    """A connection passed that would not have, were audited policies in force.  `what`: ingress or egress.  `policies`:
    the audited ones that would isolate the pod; or the tier, the policy and the rule that would deny."""

    share, would = Share.AUDIT, "would be "


# --- what readers have to be told as well ---


class Missed(Happening, frozen=True, kw_only=True):
    """More happened than is kept, or could be looked at; never noted, but told where it is missing."""

    words = "{count} more happened, which are not kept"
    count: int
