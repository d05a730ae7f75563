"""Which claims are announced, where that depends on who else has the address."""

from flock.core.announcing import claims, desired
from flock.core.model import Allocation, Condition, Metadata, Pod, PodStatus
from flock.core.nodeconfig import Right

ANYCAST = "192.0.2.53"


def carrying(pod: str, *, since: str) -> Allocation:
    namespace, name = pod.split("/")
    return Allocation(
        container_id=name,
        namespace=namespace,
        pod_name=name,
        owner_uid="",
        ip4=f"192.0.2.{ord(name)}",
        anycast=(ANYCAST,),
        state="committed",
        allocated_at=since,
        host_interface=f"flock-{name}",
    )


def ready(allocation: Allocation) -> Pod:
    metadata = Metadata(name=allocation.pod_name, namespace=allocation.namespace)
    return Pod(metadata=metadata, status=PodStatus(conditions=(Condition("Ready", "True"),)))


def obstacles(*allocations: Allocation, right: Right) -> dict[str, str]:
    pods = {(a.namespace, a.pod_name): ready(a) for a in allocations}
    found = claims(allocations, pods, withdrawn="", alive=lambda _: True, right=lambda *_: right)
    assert bool(desired(found)) is not all(c.obstacle for c in found)
    return {claim.pod: claim.obstacle for claim in found}


LATE, EARLY = carrying("evil/a", since="2026-01-02"), carrying("shop/b", since="2026-01-01")
LATER = carrying("shop/c", since="2026-01-03")


def test_an_address_that_no_grant_names_is_announced_for_the_namespace_that_was_first() -> None:
    late = "pods of another namespace had it first"
    assert obstacles(LATE, EARLY, LATER, right=Right()) == {"evil/a": late, "shop/b": "", "shop/c": ""}


def test_one_that_a_grant_gives_to_both_is_announced_for_both() -> None:
    assert not any(obstacles(LATE, EARLY, right=Right(granted=True)).values())


def test_what_the_configuration_takes_back_is_withdrawn_and_says_why() -> None:
    missing = "spec.anycast.allowed does not grant it any more"
    assert obstacles(EARLY, right=Right(refusal="outside", ungranted=True)) == {"shop/b": missing}
    assert obstacles(EARLY, right=Right(refusal="192.0.2.53 is a LAN's")) == {"shop/b": "192.0.2.53 is a LAN's"}
