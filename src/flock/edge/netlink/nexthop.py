"""Nexthop objects and resilient groups: how several local pods share one anycast address.

A resilient group maps flows to buckets and buckets to members.  When a member leaves, only its buckets move; when one
joins, only buckets that have been idle for a while do.  Plain multipath reshuffles flows of healthy members instead.

A member can also leave gently: with next to no weight it wants one bucket at most, and those it has move to the others
as they fall idle, which for that time is a matter of a tenth of a second.
"""

import struct
from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from flock.edge.netlink import wire as w
from flock.edge.netlink.route import Request, family

RTM_NEWNEXTHOP, RTM_DELNEXTHOP, RTM_GETNEXTHOP, RTM_GETNEXTHOPBUCKET = 104, 105, 106, 118
NHA_ID, NHA_GROUP, NHA_GROUP_TYPE, NHA_OIF, NHA_GATEWAY, NHA_RES_GROUP, NHA_RES_BUCKET = 1, 2, 3, 5, 6, 12, 13
NHA_RES_GROUP_BUCKETS, NHA_RES_GROUP_IDLE_TIMER = 1, 2
NHA_RES_BUCKET_NH_ID = 3
GROUP_TYPE_RESILIENT = 1

# A joining pod gets buckets as they fall idle, so there have to be more of them than flows usually active at once;
# each costs the kernel some 24 bytes.
BUCKETS = 256
# Longer than common keep-alive intervals: a flow that is merely quiet keeps its pod.  In hundredths of a second.
IDLE_TIMER = 12000
# While a member leaves: longer than the pauses within a request.
LEAVING_IDLE_TIMER = 10
HEAVIEST = 256  # which all kernels take
FEW = 3  # buckets; who has no more leaves at once, because weights this fine cannot tell them apart

_NHMSG = struct.Struct("=BBBBI")
_MEMBER = struct.Struct("=IBBH")


@dataclass(frozen=True, slots=True)
class Nexthop:
    """A single next hop (index and gateway), or a group (members with their weights)."""

    id: int
    index: int = 0
    gateway: bytes = b""
    members: Mapping[int, int] = field(default_factory=dict)
    protocol: int = 0

    @staticmethod
    def decode(body: bytes) -> "Nexthop":
        _, _, protocol, _, _ = _NHMSG.unpack_from(body)
        a = w.attrs(body, _NHMSG.size)
        group = a.get(NHA_GROUP, b"")
        return Nexthop(
            id=w.as_u32(a[NHA_ID]),
            index=w.as_u32(a[NHA_OIF]) if NHA_OIF in a else 0,
            gateway=a.get(NHA_GATEWAY, b""),
            members={member: weight + 1 for member, weight, _, _ in _MEMBER.iter_unpack(group)},
            protocol=protocol,
        )


def add_nexthop(identifier: int, *, index: int, gateway: bytes, protocol: int) -> Request:
    """`gateway` need not be on a connected network: it is reached over the link, whatever the routes say."""
    body = _NHMSG.pack(family(gateway), 0, protocol, 0, w.RTNH_F_ONLINK)
    body += w.attr(NHA_ID, w.u32(identifier)) + w.attr(NHA_OIF, w.u32(index)) + w.attr(NHA_GATEWAY, gateway)
    return Request("add a next hop", RTM_NEWNEXTHOP, w.NLM_F_CREATE | w.NLM_F_EXCL, body)


def set_group(identifier: int, members: Mapping[int, int], *, protocol: int, idle_timer: int = IDLE_TIMER) -> Request:
    """Create the group, or change its members and their weights while flows keep theirs."""
    body = _NHMSG.pack(w.AF_UNSPEC, 0, protocol, 0, 0)
    body += w.attr(NHA_ID, w.u32(identifier))
    body += w.attr(NHA_GROUP, b"".join(_MEMBER.pack(member, weight - 1, 0, 0) for member, weight in members.items()))
    body += w.attr(NHA_GROUP_TYPE, struct.pack("=H", GROUP_TYPE_RESILIENT))
    body += w.nested(
        NHA_RES_GROUP | w.NLA_F_NESTED,
        w.attr(NHA_RES_GROUP_BUCKETS, struct.pack("=H", BUCKETS)),
        w.attr(NHA_RES_GROUP_IDLE_TIMER, w.u32(idle_timer)),
    )
    return Request("set a next hop group", RTM_NEWNEXTHOP, w.NLM_F_CREATE | w.NLM_F_REPLACE, body)


def delete_nexthop(identifier: int) -> Request:
    body = _NHMSG.pack(0, 0, 0, 0, 0) + w.attr(NHA_ID, w.u32(identifier))
    return Request("delete a next hop", RTM_DELNEXTHOP, 0, body)


def dump_nexthops() -> Request:
    return Request("list next hops", RTM_GETNEXTHOP, w.NLM_F_ROOT_MATCH, _NHMSG.pack(0, 0, 0, 0, 0))


def dump_buckets(group: int) -> Request:
    body = _NHMSG.pack(0, 0, 0, 0, 0) + w.attr(NHA_ID, w.u32(group))
    return Request("list a group's buckets", RTM_GETNEXTHOPBUCKET, w.NLM_F_ROOT_MATCH, body)


def decode_bucket(body: bytes) -> int:
    """The member that has this bucket."""
    bucket = w.attrs(w.attrs(body, _NHMSG.size)[NHA_RES_BUCKET])
    return w.as_u32(bucket[NHA_RES_BUCKET_NH_ID])


def weights(staying: Collection[int], leaving: Collection[int], owned: Counter[int]) -> dict[int, int]:
    """Such that those that leave want next to nothing, and those that stay all the buckets they have and a share more.

    With equal weights, flows would also move from one that stays to one that has just joined."""
    if not leaving:
        return dict.fromkeys(staying, 1)
    share = -(-sum(owned[member] for member in leaving) // len(staying))
    heavy = {member: min(HEAVIEST, max(2, owned[member] + share)) for member in staying}
    return heavy | dict.fromkeys(leaving, 1)
