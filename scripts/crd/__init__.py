"""NodeConfig and NodeConfigTemplate as the API server understands them.

The agent checks every NodeConfig itself (`flock.core.nodeconfig`); these definitions make the API server refuse at
`kubectl apply` what the agent would refuse later.  `patterns` has numbers, durations and addresses as regular
expressions, `schema` the fields, `definitions` the two objects.  Nothing of this is installed: `crds.py` writes
deploy/crds from it, and a test compares its verdicts with the agent's.
"""
