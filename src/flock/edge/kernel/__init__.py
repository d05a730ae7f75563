"""What we make of the kernel: pod links, host routes, neighbours, switches; and reading them back.

`netns` enters namespaces, `podlink` sets one pod up and takes it down, which the process of `linkmaker` does most of,
asked by `linkprocess` for `making`; `node` prepares the host and reads its facts,
`observe` reads back what is ours, `monitor` tells when it changes, `connections` reads the table of connections and
`conntrack` forgets some of them, `threads` keeps all of it off the event loop.
"""
