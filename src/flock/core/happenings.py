"""What can happen on a node, as values: a closed set of frozen structs, each of which knows how it is said.

Whoever makes something happen notes it once (`agent/happened.py`); the log, the counters, Kubernetes events and
`flockctl` all read the same value and say it with its words (`str`).  A pod is `namespace/name`.
"""

import logging
from enum import StrEnum
from typing import ClassVar

import msgspec


class Share(StrEnum):
    """Of what is remembered: who can make it happen pushes out only the like of it."""

    NODE = "node"  # the operator, the fabric, the machine
    PODS = "pods"  # whoever makes pods, labels them, and writes policies
    DROPS = "drops"  # whoever sends a packet


class Happening(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """`part` names its logger, `level` says how loud it is there (0: never), `counted_by` the field its counter has as
    a label."""

    share: ClassVar[Share] = Share.NODE
    part: ClassVar[str] = "agent"
    level: ClassVar[int] = logging.INFO
    counted_by: ClassVar[str] = ""


class Dropped(Happening, frozen=True, kw_only=True, gc=False):
    """A packet, by our rules.  `what`: ingress or egress (policy), spoofed (anti-spoofing), walled (never for or from a
    pod), overfull (the pod opened too many connections, or sent too many fragments).  `policies` isolate the pod, as in
    the class's comment."""

    share = Share.DROPS
    part = "policy"
    level = logging.NOTSET

    what: str
    pod: str
    source: str
    destination: str
    protocol: str
    port: int
    policies: str

    def __str__(self) -> str:
        what = self.protocol + (f"/{self.port}" if self.port else "")
        why = f" isolated by {self.policies}" if self.policies else ""
        return f"{self.what:<8} {self.pod}: {self.source} -> {self.destination} {what}{why}"
