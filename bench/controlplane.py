"""The API server and etcd that `make e2e` builds and keeps in its cache."""

import os
import sys
from pathlib import Path

from launching import HERE

sys.path.insert(0, str(HERE.parent / "e2e"))

from places import Failed
from watching import PORT, SERVICE, Server, watched_server

__all__ = ["PORT", "SERVICE", "Failed", "Server", "is_built", "watched_server"]


def is_built() -> bool:
    cache = Path(os.environ.get("FLOCK_E2E_CACHE") or Path.home() / ".cache" / "flock-e2e")
    return (cache / "kubernetes" / "versions").exists()
