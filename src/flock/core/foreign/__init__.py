"""Other people's packet filters, understood: what their rules compare, and what of a packet is known to answer them.

From below: `bits.py` (values of which only some bits are known), `packet.py` (the packet that asks), `matches.py` (one
rule for that packet: yes, no, or it depends), `extensions.py` (the same of iptables' own matches).  Which chains there
are and what becomes of a packet in them: `core/foreignrules.py`.
"""
