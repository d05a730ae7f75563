"""A datacenter on one machine: nodes, routers and pods as network namespaces that run the real programs.

`topology` plans, `nodeconfigs` and `mirror` say who speaks BGP to whom, `namespaces` and `hosts` build and run it,
`router_*` speak each daemon's language, `pods` and `cni` play the container runtime, `fabric` ties it together.
`status` and `view` show it, `reach` and `traffic` try it.
"""
