"""bird.conf, rendered from a NodeConfig and the facts of its node: pure, the same text for the same input.

BIRD is given a file that only an operator's change alters.  What the node announces at a given moment is not in
it: BIRD learns that from kernel routes, by protocol number.

    kernel routes, proto 134 ──learn, preference 200──▶ ┌────────┐ ──announced()──▶ BGP, OSPF
    aggregates (static blackholes) ──────────────────▶  │ master │
    kernel, metric 32 ◀────────── BGP and OSPF only ──  └────────┘ ◀──not own()──── BGP, OSPF

Preference 200 ranks a route to a pod here above the same address learned from another node (BGP 100, OSPF 150);
metric 32 keeps what BIRD installs below the agent's own routes, which have a lower one.
Entries are sorted wherever their order means nothing, so reordering a NodeConfig does not reload BIRD.
"""

from flock.core.birdconf.document import MARK, bootstrap_bird_conf, render_bird_conf
from flock.core.birdconf.sessions import protocol_name

__all__ = ["MARK", "bootstrap_bird_conf", "protocol_name", "render_bird_conf"]
