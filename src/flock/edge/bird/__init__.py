"""BIRD from outside: `control` speaks to its socket, `replies` understands what it says, `conffile` writes its file."""
