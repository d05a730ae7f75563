"""BIRD from outside: `control` speaks to its socket, which is in its `room`; `conffile` writes its file."""
