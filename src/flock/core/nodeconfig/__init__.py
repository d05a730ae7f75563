"""NodeConfig: what an operator says about one node, checked and typed.

`shape` holds the structs, `parse_node_config` makes them from the raw object (every field checked, every problem
reported at once), `right` and `grants` answer what a pod may hold or announce.  All of it is pure: nothing the
operator wrote reaches a template, the kernel or BIRD but through these types.
"""

from flock.core.nodeconfig.grants import Kind, Right, grants, right, service_refusal, set_aside
from flock.core.nodeconfig.parse import parse_node_config
from flock.core.nodeconfig.section import NodeConfigError
from flock.core.nodeconfig.shape import Limits, NodeConfig, PasswordSource, Peer
from flock.core.nodeconfig.values import Family

__all__ = [
    "Family",
    "Kind",
    "Limits",
    "NodeConfig",
    "NodeConfigError",
    "PasswordSource",
    "Peer",
    "Right",
    "grants",
    "parse_node_config",
    "right",
    "service_refusal",
    "set_aside",
]
