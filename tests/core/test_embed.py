"""ip-algo: the digits of an address, worked out by hand from the hashes below."""

from ipaddress import IPv6Address, IPv6Network

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flock.core.annotations import IP_ALGO
from flock.core.embed import Field, Misfit, app_name, embed, image_ref, parse_ip_algo, resolve_ip_algo
from flock.core.errors import FieldError
from flock.core.model import Container, Metadata, OwnerReference, Pod, PodSpec
from flock.core.naming import fnv1a64

NAMESPACE, APP, IMAGE = Field.NAMESPACE, Field.APP, Field.IMAGE
WORKLOAD = {"namespace": "shop", "app": "web", "image": "nginx:1.27", "container_id": "c0ffee"}
DIGEST = "deadbeef01234567" + "89abcdef" * 6

# FNV-1a-64: shop 46dc5e18e28e2409, web 5ea0e11948721ef1, nginx:1.27 9242d174ced18067, c0ffee 4613a36b99ed2270
GOLDEN = [
    # 15 digits: 5 + 5 + 5, then the instance
    ("2001:db8:1::/64", (NAMESPACE, APP, IMAGE), "2001:db8:1:0:e240:921e:f118:0670"),
    ("2001:db8:1::/64", (IMAGE, APP, NAMESPACE), "2001:db8:1:0:1806:721e:f1e2:4090"),
    # 15 digits for two: the first gets the odd one, 8 + 7
    ("2001:db8:1::/64", (NAMESPACE, APP), "2001:db8:1:0:e28e:2409:8721:ef10"),
    ("2001:db8:1::/64", (APP,), "2001:db8:1:0:ea0e:1194:8721:ef10"),
    # 14 digits for three: 5 + 5 + 4
    ("2001:db8:1:0:8000::/68", (IMAGE, APP, NAMESPACE), "2001:db8:1:0:8180:6721:ef12:4090"),
    # 17 digits for one: a hash has 16, so a zero follows the prefix
    ("2001:db8:0:ff00::/56", (NAMESPACE,), "2001:db8:0:ff04:6dc5:e18e:28e2:4090"),
    # 23 digits for two: 12 + 11
    ("2001:db8::/32", (NAMESPACE, APP), "2001:db8:5e18:e28e:2409:1194:8721:ef10"),
    # one digit each
    ("2001:db8:1::/112", (NAMESPACE, APP, IMAGE), "2001:db8:1::9170"),
    ("2001:db8:1::/120", (APP,), "2001:db8:1::10"),
]


@pytest.mark.parametrize(("prefix", "fields", "expected"), GOLDEN)
def test_fields_share_the_host_digits_in_order(prefix: str, fields: tuple[Field, ...], expected: str) -> None:
    base = embed(IPv6Network(prefix), fields, **WORKLOAD)
    assert isinstance(base, int)
    assert IPv6Address(base) == IPv6Address(expected)


@pytest.mark.parametrize(
    ("prefix", "fields"),
    [
        ("2001:db8::/62", (APP,)),
        ("2001:db8::/127", (APP,)),
        ("2001:db8::/116", (NAMESPACE, APP, IMAGE)),
        ("2001:db8::/124", (APP,)),
        ("2001:db8::/128", (APP,)),
    ],
)
def test_a_prefix_without_room_says_why(prefix: str, fields: tuple[Field, ...]) -> None:
    misfit = embed(IPv6Network(prefix), fields, **WORKLOAD)
    assert isinstance(misfit, Misfit)
    assert prefix in misfit.reason


@pytest.mark.parametrize("image", [DIGEST, DIGEST.upper(), f"sha256:{DIGEST}", f"ghcr.io/x/y:v1@sha256:{DIGEST}"])
def test_a_pinned_image_shows_its_own_digest(image: str) -> None:
    base = embed(IPv6Network("2001:db8::/64"), (IMAGE,), **(WORKLOAD | {"image": image}))
    assert base == int(IPv6Address("2001:db8::dead:beef:0123:4560"))


@pytest.mark.parametrize("image", [DIGEST[:-1], DIGEST + "0", "g" + DIGEST[1:], f"sha512:{DIGEST}", f"{DIGEST}\n"])
def test_what_only_resembles_a_digest_is_hashed_as_text(image: str) -> None:
    base = embed(IPv6Network("2001:db8::/64"), (IMAGE,), **(WORKLOAD | {"image": image}))
    assert base == int(IPv6Address("2001:db8::")) | fnv1a64(image.encode()) << 4 & 0xFFFF_FFFF_FFFF_FFFF


def test_a_pod_without_an_image_shows_its_container() -> None:
    base = embed(IPv6Network("2001:db8::/64"), (IMAGE,), **(WORKLOAD | {"image": ""}))
    assert base == int(IPv6Address("2001:db8::613a:36b9:9ed2:2700"))


FAMILIES = [
    [f"web-{n}" for n in range(100)],
    [f"ns-{n}" for n in range(1, 200)],
    [chr(ord("a") + n) for n in range(26)],
    [f"team-{letter}-{n}" for letter in "abcdef" for n in range(50)],
    [f"{stage}-db" for stage in ("dev", "test", "stage", "prod")],
]


@pytest.mark.parametrize("names", FAMILIES, ids=lambda names: names[0])
@pytest.mark.parametrize("field", [NAMESPACE, APP])
def test_names_that_differ_in_a_letter_or_a_number_show_different_digits(names: list[str], field: Field) -> None:
    """Five digits, as in a /64 with three fields."""
    seen = {embed(IPv6Network("2001:db8::/104"), (field,), **(WORKLOAD | {field.value: name})) for name in names}
    assert len(seen) == len(names)


@given(st.text(max_size=20), st.text(max_size=20), st.characters(codec="ascii"), st.characters(codec="ascii"))
def test_names_that_differ_in_one_letter_never_show_the_same_two_digits(a: str, b: str, one: str, other: str) -> None:
    def shown(app: str) -> int | Misfit:
        return embed(IPv6Network("2001:db8::/116"), (APP,), **(WORKLOAD | {"app": app}))

    a, b = (text.encode(errors="replace").decode() for text in (a, b))
    assert (shown(a + one + b) == shown(a + other + b)) is (one == other)


@given(
    length=st.integers(0, 128),
    fields=st.permutations(list(Field)).flatmap(lambda order: st.integers(1, 3).map(lambda n: tuple(order[:n]))),
    text=st.text(st.characters(codec="utf-8"), max_size=80),
)
def test_whatever_is_embedded_stays_in_the_prefix_and_leaves_the_instance_digit(
    length: int, fields: tuple[Field, ...], text: str
) -> None:
    prefix = IPv6Network((0xFD00 << 112, length), strict=False)
    base = embed(prefix, fields, namespace=text, app=text, image=text, container_id=text)
    if isinstance(base, Misfit):
        assert length % 4 or (128 - length) // 4 - 1 < len(fields)
    else:
        assert IPv6Address(base) in prefix
        assert base % 16 == 0


# --- which fields -------------------------------------------------------------------------------------------


def test_fields_are_read_in_order_with_spaces() -> None:
    assert parse_ip_algo(" app , namespace,image ") == (APP, NAMESPACE, IMAGE)


@pytest.mark.parametrize("text", ["", " , ", "app,app", "app,pod", "App"])
def test_bad_fields_are_refused_by_name(text: str) -> None:
    with pytest.raises(FieldError) as error:
        parse_ip_algo(text)
    assert error.value.field == IP_ALGO


@pytest.mark.parametrize(
    ("pod", "node", "fields", "warnings"),
    [
        ("app", "namespace", (APP,), 0),
        (None, "namespace", (NAMESPACE,), 0),
        (" ", "namespace", (NAMESPACE,), 0),
        ("color", "namespace", (NAMESPACE,), 1),
        ("app,app", "nothing", (), 2),
        (None, "nothing", (), 1),
        (None, None, (), 0),
    ],
)
def test_the_pod_is_asked_first_then_the_node_then_chance(
    pod: str | None, node: str | None, fields: tuple[Field, ...], warnings: int
) -> None:
    annotations = [{} if text is None else {IP_ALGO: text} for text in (pod, node)]
    found, warned = resolve_ip_algo(*annotations)
    assert found == fields
    assert len(warned) == warnings


def test_a_warning_says_whose_annotation_is_passed_over() -> None:
    _, warnings = resolve_ip_algo({IP_ALGO: "color"}, {IP_ALGO: "taste"})
    assert warnings == (
        "pod annotation flock.fritzlab.net/ip-algo: unknown field 'color', ignored",
        "NodeConfig annotation flock.fritzlab.net/ip-algo: unknown field 'taste', ignored",
    )


# --- what a pod is called -----------------------------------------------------------------------------------


def pod(*owners: OwnerReference, labels: dict[str, str] | None = None, name: str = "web-5d4f8-x2x9q") -> Pod:
    return Pod(metadata=Metadata(name=name, namespace="shop", labels=labels, owner_references=owners))


@pytest.mark.parametrize(
    ("subject", "app"),
    [
        (pod(OwnerReference("ReplicaSet", "web-5d4f8", True), labels={"pod-template-hash": "5d4f8"}), "web"),
        (pod(OwnerReference("ReplicaSet", "web-blue", True), labels={"pod-template-hash": "5d4f8"}), "web-blue"),
        (pod(OwnerReference("ReplicaSet", "web-5d4f8", True)), "web-5d4f8"),
        (pod(OwnerReference("ReplicaSet", "web-", True), labels={"pod-template-hash": ""}), "web-"),
        (pod(OwnerReference("StatefulSet", "db-5d4f8", True), labels={"pod-template-hash": "5d4f8"}), "db-5d4f8"),
        (pod(OwnerReference("Backup", "b", False), OwnerReference("Job", "j", True)), "j"),
        (pod(OwnerReference("Backup", "b", None)), "web-5d4f8-x2x9q"),
        (pod(), "web-5d4f8-x2x9q"),
    ],
)
def test_the_app_is_the_controller_that_replicas_share(subject: Pod, app: str) -> None:
    assert app_name(subject) == app


def test_replicas_differ_in_the_instance_digit_alone() -> None:
    owner = OwnerReference("ReplicaSet", "web-5d4f8", True)
    replicas = [pod(owner, labels={"pod-template-hash": "5d4f8"}, name=f"web-5d4f8-{i}") for i in range(3)]
    bases = {
        embed(
            IPv6Network("2001:db8::/64"),
            (NAMESPACE, APP, IMAGE),
            namespace="shop",
            app=app_name(replica),
            image="nginx",
            container_id=f"sandbox{i}",
        )
        for i, replica in enumerate(replicas)
    }
    assert len(bases) == 1


def test_the_image_is_the_first_containers() -> None:
    two = PodSpec(containers=(Container(image="a"), Container(image="b")))
    assert image_ref(Pod(metadata=Metadata(), spec=two)) == "a"
    assert image_ref(pod()) == ""
