"""A state of rules, changes of it, and what the kernel has of them."""

from playground import Playground, addresses, compiled, group, interface, policy, subject

from flock.core.policy.compiled import Change, Membership, NamedMembership, NamedPort, Peers, Rule

FRIENDS, HTTP = group("app=friend"), NamedPort("http", "TCP")
POLICIES = [
    policy("in", ingress=[Rule(peers=Peers(groups=(FRIENDS,)), any_port=True)], strict=True),
    policy("out", egress=[Rule(peers=Peers(groups=(FRIENDS,)), any_port=False, named=(HTTP,))]),
    policy("named", ingress=[Rule(peers=Peers(anywhere=True), any_port=False, named=(HTTP,))]),
]
STATE = compiled(
    [subject(1, ingress="in,named", egress="out"), subject(3)],
    POLICIES,
    {FRIENDS: addresses(1)},
    {(None, HTTP): [(interface(1), 80)], (FRIENDS, HTTP): [(a, 80) for a in addresses(1)]},
)
CHANGES = [
    Change(
        subjects=(subject(2, ingress="in,named", egress="out"),),
        added=(Membership(FRIENDS, frozenset(addresses(*range(10, 250)))),),
        added_named=(
            NamedMembership(None, HTTP, frozenset({(interface(2), 8080)})),
            NamedMembership(FRIENDS, HTTP, frozenset((a, 8080) for a in addresses(2))),
        ),
    ),
    Change(subjects=(subject(1, egress="out"),), dropped=(Membership(FRIENDS, frozenset(addresses(1))),)),
    Change(removed_subjects=(interface(3), interface(2))),
]


def listing(ground: Playground) -> list[str]:
    """What matters of it: the order of elements in a set and of chains is the kernel's."""
    text = ground.listing().replace("elements = {", "").replace("}", "").replace(",", "\n")
    return sorted(line.strip() for line in text.splitlines() if "packets" not in line)
