"""Edges: thin code that touches the disk, the kernel, sockets and other programs."""
