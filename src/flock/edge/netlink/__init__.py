"""Netlink, as little of it as we use.

Own encoder because it was measured: the same eleven messages take 6 ms to encode with pyroute2 and 0.1 ms here,
and pod set-up is a handful of batched messages.  `wire` turns values into bytes and back and knows no sockets;
`route` holds one function per message about links and routes; `socket` sends batches and reads answers, of netfilter
too; `listener` hears what the kernel tells by itself.
"""
