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
