"""What a node believes about its configuration: NodeConfig, templates, Node in; configuration, problem out.  Pure.

Bad input never takes away what is in force (invariant 7): a layer that cannot be read, a NodeConfig that is refused and
one that was deleted leave the last good version where it is, and say so.
"""

import msgspec

from flock.core.errors import FlockError
from flock.core.nodeconfig import NodeConfig, parse_node_config
from flock.core.nodeconfig.layers import Effective, FromNode, Raw, effective


class Inputs(msgspec.Struct, frozen=True, kw_only=True):
    """All that a node's configuration follows from."""

    given: FromNode = FromNode()
    templates: tuple[Raw, ...] = ()
    own: Raw | None = None


class Configuration(msgspec.Struct, frozen=True):
    """`config` is in force, None while there was never a good one; `layers` say who said what of it; `problem` is why
    the last inputs did not become it."""

    config: NodeConfig | None = None
    layers: Effective | None = None
    problem: str = ""


def decide(node: str, inputs: Inputs, *, before: Configuration) -> Configuration:
    """What is believed after these inputs.  Never raises.  An equal configuration is the very object it was."""
    try:
        layers = effective(node, given=inputs.given, templates=inputs.templates, own=inputs.own)
        config = parse_node_config(layers.raw) if layers else None
    except FlockError as error:
        return msgspec.structs.replace(before, problem=error.msg)
    except Exception as error:  # a mistake of ours is no reason to lose the configuration in force
        return msgspec.structs.replace(before, problem=f"cannot be understood: {error!r}")
    if config is None:
        lost = f"NodeConfig {node} was deleted; its last version stays in force" if before.config else ""
        return msgspec.structs.replace(before, problem=lost)
    return Configuration(before.config if config == before.config else config, layers)
