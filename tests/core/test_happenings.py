"""What can happen is a closed set of values that know how they are said, how loud, and in whose share."""

import logging
from typing import get_type_hints

import msgspec
import pytest

from flock.core import happenings
from flock.core.happenings import Dropped, Happening, Share

KINDS = sorted(
    (kind for kind in vars(happenings).values() if isinstance(kind, type) and issubclass(kind, Happening)),
    key=lambda kind: kind.__name__,
)
KINDS.remove(Happening)


def sample(kind: type[Happening]) -> Happening:
    """One of them, with something in every field."""
    hints = get_type_hints(kind)
    values = {str: "something", int: 7, bool: True}
    return kind(**{field.name: values[hints[field.name]] for field in msgspec.structs.fields(kind)})


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_it_is_one_line_and_survives_json(kind: type[Happening]) -> None:
    happening = sample(kind)
    said = str(happening)
    assert said and "\n" not in said
    assert kind.__name__ not in said, "it has words of its own"
    assert msgspec.convert(msgspec.json.decode(msgspec.json.encode(happening)), kind) == happening


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_it_knows_its_share_its_logger_and_its_label(kind: type[Happening]) -> None:
    assert kind.share in Share
    assert kind.level in (logging.NOTSET, logging.DEBUG, logging.INFO, logging.WARNING, logging.ERROR)
    assert not kind.counted_by or kind.counted_by in {field.name for field in msgspec.structs.fields(kind)}


@pytest.mark.parametrize(
    ("port", "policies", "said"),
    [
        (80, "shop/a,shop/b", "ingress  shop/db: 192.0.2.1 -> 192.0.2.2 TCP/80 isolated by shop/a,shop/b"),
        (0, "", "ingress  shop/db: 192.0.2.1 -> 192.0.2.2 TCP"),
    ],
)
def test_a_drop_says_who_sent_what_to_whom_and_why_not(port: int, policies: str, said: str) -> None:
    drop = Dropped(
        what="ingress",
        pod="shop/db",
        source="192.0.2.1",
        destination="192.0.2.2",
        protocol="TCP",
        port=port,
        policies=policies,
    )
    assert str(drop) == said
