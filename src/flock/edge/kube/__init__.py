"""The Kubernetes API, as little of it as a node agent needs.

Own client because it was measured: the Python clients cost 0.2 to 1.2 s of import and 30 to 150 MiB, and none of their
watches survived both a killed API server and a 410 with missed deletes.  `access` finds the server and credentials,
`client` speaks HTTP, `reflector` keeps one kind of object current in the cache, `feeder` has one
for each that is wanted.
"""
