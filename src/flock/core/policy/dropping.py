"""How our rules drop: logged at a limited rate, counted by what they were dropped for."""

NFLOG_GROUP = 133
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
}


def logged_drop(prefix: str, counter: str) -> list[str]:
    return [f'{LOG_LIMIT} log prefix "{prefix}" group {NFLOG_GROUP}', f"counter name {counter} drop"]
