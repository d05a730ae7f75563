"""Other names and addresses, the same for the same, and nothing of the old ones."""

from ipaddress import ip_address, ip_network

import pytest

from flock.core.pseudonyms import Pseudonyms


@pytest.fixture
def other() -> Pseudonyms:
    pseudonyms = Pseudonyms(b"k" * 32)
    pseudonyms.learn(
        {
            "node": "cobalt17",
            "podList": [{"namespace": "payroll", "pod": "ledger-0", "policies": ["payroll/only-hr"]}],
            "sessions": [{"peer": "tor-east"}],
            "metadata": {"name": "ledger", "labels": {"team": "finance", "corp.example/cost": "c99"}},
        }
    )
    return pseudonyms


def test_names_go_from_text_also_as_parts_of_other_words(other: Pseudonyms) -> None:
    text = (
        "attached pod=payroll/ledger-0 by only-hr peer=tor-east, pods.payroll.ledger ledger-0_in /run/cobalt17 tor_east"
    )
    told = other.text(text)
    for name in ("payroll", "ledger", "only-hr", "tor-east", "tor_east", "cobalt17", "finance"):
        assert name not in told
    assert told == other.text(text)


def test_one_name_is_one_pseudonym_everywhere(other: Pseudonyms) -> None:
    row = other.value({"pod": "payroll/ledger-0", "said": "dropped payroll/ledger-0"})
    assert row["said"] == f"dropped {row['pod']}"


def test_labels_lose_names_and_values_and_other_keys_stay(other: Pseudonyms) -> None:
    told = other.value(
        {"labels": {"team": "finance"}, "matchLabels": {"corp.example/cost": "c99"}, "pods": {"committed": 1}}
    )
    assert "finance" not in str(told) and "corp.example" not in str(told)
    assert told["pods"] == {"committed": 1}


def test_words_of_the_documents_language_stay_whatever_a_pod_is_called() -> None:
    pseudonyms = Pseudonyms(b"k")
    pseudonyms.learn({"pod": "default/Established"})
    assert pseudonyms.value({"state": "Established", "namespace": "default"}) == {
        "state": "Established",
        "namespace": "default",
    }


@pytest.mark.parametrize("one", ["2001:db8:1::/64", "192.0.2.0/26"])
def test_an_address_stays_in_its_network(other: Pseudonyms, one: str) -> None:
    inside, outside = str(ip_network(one)[5]), "198.51.100.7" if "." in one else "2001:db8:2::5"
    network = ip_network(other.text(one))
    assert network != ip_network(one)
    assert ip_address(other.text(inside)) in network
    assert ip_address(other.text(outside)) not in network
    assert other.text(inside) != inside


def test_addresses_are_found_in_text_and_as_keys(other: Pseudonyms) -> None:
    six, four = other.text("2001:db8::1"), other.text("192.0.2.1")
    assert (
        other.text("[2001:db8::1]:179, 192.0.2.1:80; peer 2001:db8::1: error")
        == f"[{six}]:179, {four}:80; peer {six}: error"
    )
    assert other.text("2001:db8::1-2001:db8::1") == f"{six}-{six}"
    assert other.value({"routes": {"2001:db8::1/128": ["cobalt17"]}}) == {"routes": {f"{six}/128": ["node-1"]}}


@pytest.mark.parametrize(
    "kept", ["::1", "127.0.0.1", "0.0.0.0", "fe80::1", "ff02::5", "12:30:05.118", "64601:100", "::/0"]
)
def test_what_says_nothing_of_anybody_stays(other: Pseudonyms, kept: str) -> None:
    assert other.text(kept) == kept


def test_hardware_addresses_go(other: Pseudonyms) -> None:
    assert other.text("link/ether 52:54:00:12:34:56 brd") != "link/ether 52:54:00:12:34:56 brd"


def test_another_key_gives_other_addresses() -> None:
    assert Pseudonyms(b"a" * 32).text("2001:db8::1") != Pseudonyms(b"b" * 32).text("2001:db8::1")


def test_interfaces_and_words_of_a_sentence_about_policies_stay() -> None:
    pseudonyms = Pseudonyms(b"k")
    pseudonyms.learn({"name": "eth0", "policies": "shop/web allows nothing of it", "where": "watch of /api/v1/pods"})
    assert pseudonyms.text("dev eth0 allows nothing, watch of pods") == "dev eth0 allows nothing, watch of pods"
    assert "shop" not in pseudonyms.text("shop/web") and "web" not in pseudonyms.text("shop/web")


def test_a_word_of_a_hundred_thousand_pieces_is_read_once(other: Pseudonyms) -> None:
    """Somebody else writes it, into an annotation: looked for in all its parts it would take days."""
    assert other.text("a-" * 100_000 + "ledger-0").endswith(other.text("ledger-0"))


@pytest.mark.parametrize(
    ("text", "gone"),
    [
        ("made pod=payroll/intern-0 container=c1", ["payroll", "intern"]),
        ('x namespace="payroll" pod="payroll/intern-0"', ["payroll", "intern"]),
        ('\t\tcomment "payroll/intern-0"\n', ["payroll", "intern"]),
        ('comment "kube-proxy for payroll/intern:https"', ["payroll", "intern"]),
        ('comment "payroll-db"', ["payroll"]),
        ("    alias payroll/intern-0\n", ["payroll", "intern"]),
        ("protocol bgp 'bgp_tor-west' {", ["west"]),
        ("protocol bgp bgp_tor_west {", ["west"]),
        ("bgp_tor-west BGP        ---        up     2026-11-18 Established", ["west"]),
        ('  description "tor-west";', ["west"]),
        (
            "from pods team=ledgers,corp.example/cost=c42 of namespace payroll: 80/TCP",
            ["ledgers", "corp", "c42", "payroll"],
        ),
        ("pods team in (ledgers, interns) of all namespaces", ["ledgers", "interns"]),
        ("--- payroll-agent-x7z9q\nstarted", ["payroll"]),
        ("<WARN> bgp_tor-west: Error: Hold timer expired", ["west"]),
        ("GET http://ledger.payroll.svc.cluster.local/", ["ledger", "payroll"]),
        ('User "system:serviceaccount:payroll:robot" cannot list', ["payroll", "robot"]),
        ('User "system:node:cobalt18" cannot get', ["cobalt18"]),
        ("watch of /api/v1/namespaces/payroll/pods/intern-0 failed", ["payroll", "intern"]),
        ("patch /apis/flock.fritzlab.net/v1alpha1/nodeconfigs/cobalt18/status", ["cobalt18"]),
        ('pods "intern-0" not found; nodeconfigs.flock.fritzlab.net "cobalt18" is forbidden', ["intern", "cobalt18"]),
    ],
)
def test_names_that_only_a_text_has_go_from_all_of_it(text: str, gone: list[str]) -> None:
    pseudonyms = Pseudonyms(b"k" * 32)
    pseudonyms.learn_text(text)
    told = pseudonyms.text(f"{text} and again: {text}")
    assert not [name for name in gone if name in told]
    assert told == f"{(once := pseudonyms.text(text))} and again: {once}"


def test_names_that_only_selectors_taints_and_services_have_go_too() -> None:
    pseudonyms = Pseudonyms(b"k" * 32)
    expression = {"key": "corp.example/team", "operator": "In", "values": ["ledgers", "interns"]}
    documents = [
        {"podSelector": {"matchExpressions": [expression]}, "ports": [{"port": "ledger-port"}]},
        {"spec": {"selector": {"purpose": "payments"}, "externalName": "db.corp.example"}},
        {"taints": [{"key": "dedicated-to", "value": "payroll", "effect": "NoSchedule"}]},
        {"selector": {"matchLabels": {"crew": "night"}}},
    ]
    for document in documents:
        pseudonyms.learn(document)
    told = str([pseudonyms.value(document) for document in documents])
    words = ("corp", "ledger", "intern", "purpose", "payments", "dedicated-to", "payroll", "crew", "night")
    assert not [word for word in words if word in told]
    for kept in ("In", "NoSchedule", "matchExpressions", "matchLabels", "operator", "effect"):
        assert kept in told


def test_a_label_is_called_the_same_in_objects_and_in_texts() -> None:
    pseudonyms = Pseudonyms(b"k" * 32)
    pseudonyms.learn({"labels": {"corp.example/team": "ledgers"}})
    ((key, value),) = pseudonyms.value({"labels": {"corp.example/team": "ledgers"}})["labels"].items()
    assert pseudonyms.text("corp.example/team=ledgers") == f"{key}={value}"


@pytest.mark.parametrize(
    "pod", ["loki-0", "lotus1", "bridge-7", "enterprise-1", "ethics0", "bonds-2", "vlans3", "dummy-app-1"]
)
def test_a_pod_called_nearly_like_an_interface_has_another_name(pod: str) -> None:
    pseudonyms = Pseudonyms(b"k" * 32)
    pseudonyms.learn({"pod": pod})
    assert pseudonyms.text(f"dev lo pod={pod} dev eth0.7 enp1s0f1") == "dev lo pod=pod-1 dev eth0.7 enp1s0f1"


@pytest.mark.parametrize(
    "kept", ["lo", "eth0", "enp3s0", "ens18", "eno1", "bond0", "br0", "vlan12", "eth0.100", "enx0123456789ab"]
)
def test_interfaces_stay(kept: str) -> None:
    pseudonyms = Pseudonyms(b"k" * 32)
    pseudonyms.learn({"name": kept})
    assert pseudonyms.text(f"dev {kept}") == f"dev {kept}"


@pytest.mark.timeout(20)
@pytest.mark.parametrize(
    "word",
    [
        "pod=",
        "a/",
        'comment "',
        "in (",
        "pods a=b,",
        "--- ",
        "protocol bgp ",
        "a=",
        " BGP ",
        "a.",
        "/namespaces/a",
        "bgp_a",
        "pods.a",
    ],
)
def test_whatever_somebody_wrote_is_looked_through_for_names_in_no_time(word: str) -> None:
    Pseudonyms(b"k").learn_text((word * 250_000)[:250_000])
