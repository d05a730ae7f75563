"""Which addresses of Services a node announces, and why not the others."""

from ipaddress import ip_interface
from typing import Any

import msgspec
import pytest

from flock.core.decoding import decode_service, decode_slice
from flock.core.facts import HostAddress, NodeFacts
from flock.core.kinds import Extent
from flock.core.model import EXCLUDED, EndpointSlice, Metadata, Namespace, Node, Service
from flock.core.nodeconfig import NodeConfig, parse_node_config
from flock.core.services import ANYWHERE, EVERY_SERVICE, HERE, WATCHES, Book, Offer, excluded, extents, offers, rights

V4, V6 = "198.18.0.1", "2001:db8:5e::1"
ALLOWED = [{"prefixes": ["198.18.0.0/24", "2001:db8:5e::/64"]}]
UNGRANTED = "no entry of spec.services.allowed grants it to this Service"


def config(**services: Any) -> NodeConfig:
    services = {"allowed": ALLOWED} | services
    spec = {"cidr4": ["192.0.2.0/24"], "services": services}
    head = {"apiVersion": "flock.fritzlab.net/v1alpha1", "kind": "NodeConfig", "metadata": {"name": "n1"}}
    return parse_node_config(head | {"spec": spec})


def service(*addresses: Any, policy: str = "Local", metadata: dict[str, Any] | None = None, **spec: Any) -> Service:
    ingress = [address if isinstance(address, dict) else {"ip": address} for address in addresses]
    given = {
        "metadata": {"name": "web", "namespace": "shop"} | (metadata or {}),
        "spec": {"type": "LoadBalancer", "externalTrafficPolicy": policy, "healthCheckNodePort": 30001} | spec,
        "status": {"loadBalancer": {"ingress": ingress}},
    }
    decoded = decode_service(msgspec.json.encode(given))
    assert decoded is not None
    return decoded


def endpoints(*conditions: dict[str, Any], node: str = "n1", family: str = "IPv4") -> EndpointSlice:
    given = {
        "metadata": {"name": "web-x", "namespace": "shop", "labels": {"kubernetes.io/service-name": "web"}},
        "addressType": family,
        "endpoints": [{"addresses": ["192.0.2.7"], "conditions": c, "nodeName": node} for c in conditions],
    }
    return decode_slice(msgspec.json.encode(given))


READY = endpoints({"ready": True})


def why_not(
    given: Service,
    *slices: EndpointSlice,
    by: NodeConfig | None = None,
    labels: dict[str, str] | None = None,
    facts: NodeFacts | None = None,
) -> dict[str, str]:
    by, facts = by or config(), facts or NodeFacts("n1")
    right = rights(by, facts, {("", "shop"): Namespace(Metadata("shop", labels=labels))})
    return {offer.address: offer.obstacle for offer in offers(given, slices, node="n1", config=by, right=right)}


# --- addresses ---


def test_an_address_that_is_granted_and_has_a_ready_endpoint_here_is_offered() -> None:
    assert why_not(service(V4), READY) == {V4: ""}


@pytest.mark.parametrize("ingress", [(), ({"hostname": "web.example.com"},)])
def test_a_service_without_an_address_says_so(ingress: tuple[Any, ...]) -> None:
    assert why_not(service(*ingress), READY) == {"": "the Service has no address"}


def test_only_addresses_of_mode_vip_are_announced() -> None:
    assert why_not(service({"ip": V4, "ipMode": "VIP"}), READY) == {V4: ""}
    assert why_not(service({"ip": V4, "ipMode": "Proxy"}), READY) == {V4: "the address's ipMode is Proxy"}


def test_an_address_is_known_however_it_is_written() -> None:
    assert list(why_not(service("2001:DB8:5e:0::1", V6))) == [V6]
    assert why_not(service("nonsense"), READY) == {"nonsense": "nonsense is no address"}


def test_a_service_that_is_being_deleted_is_withdrawn_before_its_rules_go() -> None:
    dying = service(V4, metadata={"deletionTimestamp": "2026-01-01T00:00:00Z"})
    assert why_not(dying, READY) == {V4: "the Service is being deleted"}


# --- grants ---


def test_nothing_is_announced_unless_granted_inside_the_nodes_cidrs_too() -> None:
    assert why_not(service("192.0.2.9"), READY) == {"192.0.2.9": UNGRANTED}
    inside = config(allowed=[{"prefixes": ["192.0.2.8/29"]}])
    assert why_not(service("192.0.2.9"), READY, by=inside) == {"192.0.2.9": ""}


def test_a_grant_selects_namespaces_and_services_by_their_labels() -> None:
    grant = {
        "prefixes": ["198.18.0.0/24"],
        "namespaceSelector": {"matchLabels": {"lb": "yes"}},
        "serviceSelector": {"matchExpressions": [{"key": "tier", "operator": "In", "values": ["front"]}]},
    }
    by, front = config(allowed=[grant]), service(V4, metadata={"labels": {"tier": "front"}})
    assert why_not(front, READY, by=by, labels={"lb": "yes"}) == {V4: ""}
    assert why_not(front, READY, by=by) == {V4: UNGRANTED}
    assert why_not(service(V4), READY, by=by, labels={"lb": "yes"}) == {V4: UNGRANTED}


def test_no_grant_gives_away_what_is_a_nodes_or_a_lans() -> None:
    facts = NodeFacts("n1", (HostAddress("eth0", ip_interface("198.18.0.1/25")),))
    wide = config(allowed=[{"prefixes": ["198.18.0.0/16", "126.0.0.0/7"]}])
    found = why_not(service("198.18.0.1", "198.18.0.2", "198.18.0.200", "127.0.0.1"), READY, by=wide, facts=facts)
    assert found == {
        "198.18.0.1": "198.18.0.1 belongs to a node, a router or their network (198.18.0.1/32)",
        "198.18.0.2": "198.18.0.2 belongs to a node, a router or their network (198.18.0.0/25)",
        "198.18.0.200": "",
        "127.0.0.1": "127.0.0.1 is loopback",
    }


def test_an_address_that_kube_proxy_put_on_its_own_interface_is_not_the_nodes() -> None:
    facts = NodeFacts("n1", (HostAddress("kube-ipvs0", ip_interface(f"{V4}/32")),))
    assert why_not(service(V4), READY, facts=facts) == {V4: ""}


def test_of_classes_the_default_is_none_and_our_own() -> None:
    ours, other = "flock.fritzlab.net/bgp", "example.com/lb"
    by_default = {c: why_not(service(V4, loadBalancerClass=c), READY)[V4] for c in (None, ours, other)}
    refused = f"its loadBalancerClass is {other}, which is not announced here"
    assert by_default == {None: "", ours: "", other: refused}
    by = config(**{"class": other})
    assert why_not(service(V4, loadBalancerClass=other), READY, by=by) == {V4: ""}
    assert why_not(service(V4), READY, by=by) == {V4: "its loadBalancerClass is empty, which is not announced here"}


# --- endpoints ---


@pytest.mark.parametrize(
    ("conditions", "local", "cluster"),
    [
        ({"ready": True}, True, True),
        ({}, True, True),
        ({"ready": None, "serving": None}, True, True),
        ({"ready": False}, False, False),
        ({"ready": False, "serving": True, "terminating": True}, False, True),
        ({"ready": False, "serving": False, "terminating": True}, False, False),
        ({"ready": True, "serving": True, "terminating": True}, False, True),
        ({"ready": False, "serving": True, "terminating": False}, False, False),
    ],
)
def test_what_counts_of_an_endpoint_depends_on_the_policy(conditions: Any, local: bool, cluster: bool) -> None:
    there = endpoints(conditions)
    assert why_not(service(V4), there) == {V4: "" if local else HERE}
    assert why_not(service(V4, policy="Cluster"), there) == {V4: "" if cluster else ANYWHERE}


def test_local_needs_one_here_and_cluster_one_anywhere() -> None:
    elsewhere = endpoints({"ready": True}, node="n2")
    assert why_not(service(V4), elsewhere) == {V4: HERE}
    assert why_not(service(V4, policy="Cluster"), elsewhere) == {V4: ""}
    assert why_not(service(V4), elsewhere, READY) == {V4: ""}


def test_an_address_counts_endpoints_of_its_own_family() -> None:
    assert why_not(service(V4, V6), READY) == {V4: "", V6: HERE}
    assert why_not(service(V4, V6), endpoints({}, family="IPv6")) == {V4: HERE, V6: ""}
    assert why_not(service(V4, V6), endpoints({}, family="FQDN")) == {V4: HERE, V6: HERE}


def test_local_without_a_health_port_is_not_announced() -> None:
    assert why_not(service(V4, healthCheckNodePort=0), READY) == {V4: "the Service has no healthCheckNodePort"}


def test_an_older_slice_names_the_node_in_its_topology() -> None:
    old = {
        "apiVersion": "discovery.k8s.io/v1beta1",
        "metadata": {"name": "web-x", "namespace": "shop", "labels": {"kubernetes.io/service-name": "web"}},
        "addressType": "IPv4",
        "endpoints": [{"addresses": ["192.0.2.7"], "topology": {"kubernetes.io/hostname": "n1"}}],
    }
    assert why_not(service(V4), decode_slice(msgspec.json.encode(old))) == {V4: ""}
    assert why_not(service(V4), msgspec.convert(old, EndpointSlice)) == {V4: ""}


# --- what is kept, and the rest ---


def test_of_slices_only_is_kept_where_endpoints_are_of_use() -> None:
    conditions = {"ready": True}
    many = endpoints(*[conditions] * 50, {"ready": False})
    assert len(many.endpoints or ()) == 1 and many == endpoints(conditions)
    assert decode_slice(msgspec.json.encode(many)) == many


def test_services_of_other_types_are_dropped_on_arrival() -> None:
    assert decode_service(b'{"metadata": {"name": "web"}, "spec": {"type": "ClusterIP"}}') is None


def test_a_node_is_excluded_by_its_configuration_or_by_its_label() -> None:
    labelled = Node(Metadata("n1", labels={EXCLUDED: ""}))
    assert excluded(config(exclude=True), None) == "the node is excluded (spec.services.exclude)"
    assert EXCLUDED in excluded(config(), labelled)
    assert not excluded(config(), Node(Metadata("n1"))) and not excluded(config(), None)


def test_endpoints_are_followed_service_by_service_until_there_are_many() -> None:
    few = [("shop", f"s{n}") for n in range(WATCHES)]
    found = extents(few)
    assert len(found) == WATCHES and {str(e) for e in found} >= {"shop, kubernetes.io/service-name=s0"}
    more = [*few, ("shop", "more")]
    many = extents(more)
    assert many == {Extent(labels=EVERY_SERVICE, owners=tuple(sorted(more)))} == extents(few, before=many)
    assert len(extents(few[: WATCHES // 2], before=many)) == WATCHES // 2


def test_a_service_that_comes_after_one_watch_was_begun_for_many_has_its_own_until_there_are_many() -> None:
    first = [("shop", f"s{n}") for n in range(100)]
    late = [("bank", f"s{n}") for n in range(WATCHES + 1)]
    shared = extents(first)
    some = extents([*first, *late[:-1]], before=shared)
    assert some == shared | {Extent("bank", f"kubernetes.io/service-name=s{n}") for n in range(WATCHES)}
    assert extents([*first, *late], before=some) == {
        Extent(labels=EVERY_SERVICE, owners=tuple(sorted((*first, *late))))
    }
    assert extents(first[1:], before=some) == shared, "what is gone costs nothing new"
    assert extents(first[:49], before=shared) == {Extent(labels=EVERY_SERVICE, owners=tuple(sorted(first[:49])))}


def test_the_book_knows_who_shares_an_address_and_what_a_change_is_about() -> None:
    book, one, two = Book(), Offer(service="shop/a", address=V4), Offer(service="shop/b", address=V4)
    assert book.put(("shop", "a"), (one,)) == {V4}
    assert book.put(("shop", "b"), (two, Offer(service="shop/b", address=V6))) == {V4, V6}
    assert book.at(V4) == {("shop", "a"): one, ("shop", "b"): two} and book.addresses == {V4, V6}
    assert book.put(("shop", "b"), ()) == {V4, V6} and book.put(("shop", "a"), (Offer(service="shop/a"),)) == {V4}
    assert not book.addresses and not book.at(V4)
