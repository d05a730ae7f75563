"""NetworkPolicy: what the API says, compiled to what a packet filter can do, and explained.  Pure.

`parse` checks one policy object, `index` keeps everything compiled as objects come and go, `compiled` is the form both
the renderer and `explain` work from, so an explanation is about what is in the kernel.
"""
