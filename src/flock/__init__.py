"""flock: pods with real addresses, announced by BGP.  Read docs/design.md first."""

__version__ = "0.1.0"
