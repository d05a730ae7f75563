"""What the routers beside flock's nodes are told.  Pure."""
