"""What `make e2e` builds and keeps in its cache: an API server with etcd, or a whole cluster with flock's image."""

import os
import sys
from pathlib import Path

from launching import HERE

sys.path.insert(0, str(HERE.parent / "e2e"))

import image
from cluster import Cluster, is_true
from deployment import deploy_flock, is_well
from images import TOOLBOX
from node import CNI_CONFIGURATION, CNI_PROGRAMS, Node
from places import Failed, eventually
from watching import PORT, SERVICE, Server, watched_server

__all__ = [
    "CNI_CONFIGURATION",
    "CNI_PROGRAMS",
    "PORT",
    "SERVICE",
    "TOOLBOX",
    "Cluster",
    "Failed",
    "Node",
    "Server",
    "deploy_flock",
    "eventually",
    "image",
    "is_built",
    "is_true",
    "is_well",
    "watched_server",
]


def is_built() -> bool:
    cache = Path(os.environ.get("FLOCK_E2E_CACHE") or Path.home() / ".cache" / "flock-e2e")
    return (cache / "kubernetes" / "versions").exists()
