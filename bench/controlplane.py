"""The API server and etcd that `make e2e` builds and keeps in its cache."""

import sys

from launching import HERE

sys.path.insert(0, str(HERE.parent / "e2e"))

from places import Failed
from watching import PORT, SERVICE, Server, watched_server

__all__ = ["PORT", "SERVICE", "Failed", "Server", "watched_server"]
