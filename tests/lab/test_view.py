"""The picture, from made-up states: pure."""

from flock.lab.speaker import Session
from flock.lab.status import NodeStatus, PodStatus, RouterStatus, Status
from flock.lab.view import draw


def session(peer: str, *, up: bool = True, bfd: str = "up") -> Session:
    return Session(peer=peer, address="fe80::1", up=up, state="Established" if up else "Active", received=2, bfd=bfd)


def router(name: str, *sessions: Session, trouble: str = "") -> RouterStatus:
    return RouterStatus(name=name, asn=64520, trouble=trouble, sessions=sessions, routes={"2001:db8:1::/64": ("n1",)})


def node(name: str, *, alive: bool = True, trouble: str = "") -> NodeStatus:
    return NodeStatus(name=name, asn=64600, agent=alive, bird=alive, trouble=trouble)


STATUS = Status(
    name="demo",
    directory="/run/flock-lab/demo",
    topology="leaf-spine",
    router="bird",
    nodes=(node("n1"), node("n2", trouble="no NodeConfig"), node("n3", alive=False)),
    routers=(
        router("r1", session("n1"), session("n2", up=False), session("n3", up=False)),
        router("r2", session("n1", bfd=""), session("n2"), trouble="r2: birdc failed"),
        router("client", session("r1"), session("r2", up=False)),
    ),
    pods=(
        PodStatus(
            name="default/web",
            node="n1",
            addresses=("2001:db8:1::5", "100.64.1.2"),
            anycast=("2001:db8:53::1",),
            ready=True,
            terminating=False,
        ),
    ),
    anycast={"2001:db8:53::1": {"r1": ("n1", "n2"), "client": ("n1",)}},
    cut=("n2-r1", "r2-client"),
)

PICTURE = """\
lab demo · leaf-spine · routers are bird · /run/flock-lab/demo

client AS64520 ─┬─ r1 AS64520  ● up bfd      1 prefixes learned
                └─ r2 AS64520  ✂ ○ Active    r2: birdc failed

            r1            r2
n1 AS64600  ● up bfd      ● up
n2 AS64600  ✂ ○ Active    ● up bfd      no NodeConfig
n3 AS64600  ○ Active      ·             dead

POD          NODE  STATE  ADDRESSES                 ANYCAST
default/web  n1    ready  2001:db8:1::5 100.64.1.2  2001:db8:53::1

ANNOUNCED       r1 SENDS TO  r2 SENDS TO
2001:db8:53::1  n1 n2        -

cut: n2-r1 r2-client
"""


def test_the_picture_shows_nodes_sessions_pods_anycast_and_cuts() -> None:
    assert draw(STATUS) == PICTURE
