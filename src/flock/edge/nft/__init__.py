"""nftables: what is rendered goes into the kernel, and what the kernel has and drops is read back.

`batch` packs element operations into netlink messages, `socket` sends them as one transaction and asks questions,
`apply` runs `nft` for whatever changes chains, `watch` tells when somebody else changes our tables, `drops` reads what
was logged, `observe` counts what is there.
"""
