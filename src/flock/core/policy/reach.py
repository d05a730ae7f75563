"""How far policies in use reach into the cluster: which pods of other nodes have to be known.  Pure.

Somebody in a group is a peer of a pod of this node; nobody else matters here.  So the namespaces of the groups' scopes
are followed, each as a whole, for groups share them and their selectors change.  A group in all namespaces is followed
by its labels, where it demands some: `k8s-app=kube-dns` anywhere are a few pods.  Where that comes to most of the
cluster, or to more watches than an API server should have of one node, everything is followed, as one.
"""

from collections.abc import Collection

import msgspec

from flock.core.kinds import ALL, Extent

WATCHES = 128  # of one node: as many as a full node's kubelet has for secrets and the like
SHARE = 0.5  # of all namespaces; beyond, one watch tells little more than all these would
RETURN = 0.75  # of either: where everything was followed, it is until that little is needed


class Reach(msgspec.Struct, frozen=True):
    """Of one group.  `namespaces` None: all.  `labels` is its selector of pods, empty where that demands none.  In the
    place of a namespace may be the cluster's Nodes."""

    namespaces: frozenset[str] | None
    labels: str = ""


def own_extents(reach: Reach) -> frozenset[Extent]:
    """What tells all of it, were there no others."""
    if reach.namespaces is None:
        return frozenset({Extent(labels=reach.labels)})
    return frozenset(map(Extent, reach.namespaces))


def extents(reaches: Collection[Reach], *, namespaces: int, before: Collection[Extent] = ()) -> frozenset[Extent]:
    """What to follow, in a cluster with so many namespaces; `before`: what was."""
    most, half = float(WATCHES), SHARE * namespaces
    if ALL in before:
        most, half = RETURN * most, RETURN * half
    found = frozenset(extent for reach in reaches for extent in own_extents(reach))
    named = sum(bool(extent.namespace) for extent in found)
    return frozenset({ALL}) if ALL in found or named > half or len(found) > most else found
