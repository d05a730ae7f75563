"""How our rules drop: logged at a limited rate, counted by what they were dropped for.

What audited policies would drop is told in the same way, to a group of its own: neither crowds out the other."""

NFLOG_GROUP, AUDIT_GROUP = 133, 134
# Enough to see what is going on, too few to slow anything down.  Each place that drops has a limit of its own.
LOG_LIMIT = "limit rate 10/second burst 20 packets"

# Comes before what drops, where a pod may be both ends: it reaches itself through a Service.
ITSELF = "iifname . oifname @self accept"

COUNTERS = {
    "ingress-drops": "ingress",
    "egress-drops": "egress",
    "spoofed": "spoofed",
    "walled": "walled",
    "overfull": "overfull",
    "audited": "audited",
}

# In the mark of a connection that a pod may not have opened, on the way of its first packet between the two chains that
# audit: what is told on its way out is not told again on its way in.  No number of a pod has this bit.
TOLD = 0x00008000


def logged_drop(prefix: str, counter: str) -> list[str]:
    return [f'{LOG_LIMIT} log prefix "{prefix}" group {NFLOG_GROUP}', f"counter name {counter} drop"]


def audited(prefix: str, *, told: bool) -> list[str]:
    """It would be dropped.  `told`: there is another chain to tell."""
    tell = f" ct mark set ct mark | 0x{TOLD:08x}" if told else ""
    return [f'{LOG_LIMIT} log prefix "{prefix}" group {AUDIT_GROUP}', f"counter name audited{tell} accept"]
