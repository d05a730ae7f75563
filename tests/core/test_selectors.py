from typing import Any

import msgspec
import pytest

from flock.core.selectors import LabelSelector

LABELS = {"app": "web", "tier": "front", "empty": ""}


def selector(obj: Any) -> LabelSelector:
    return msgspec.convert(obj, LabelSelector)


def expression(key: str, operator: str, *values: str) -> dict[str, Any]:
    return {"matchExpressions": [{"key": key, "operator": operator, "values": list(values)}]}


@pytest.mark.parametrize(
    ("obj", "fits"),
    [
        ({}, True),
        ({"matchLabels": {}}, True),
        ({"matchLabels": {"app": "web"}}, True),
        ({"matchLabels": {"app": "web", "tier": "back"}}, False),
        ({"matchLabels": {"empty": ""}}, True),
        ({"matchLabels": {"absent": ""}}, False),
        (expression("app", "In", "db", "web"), True),
        (expression("app", "In", "db"), False),
        (expression("absent", "In", "db"), False),
        (expression("app", "NotIn", "db"), True),
        (expression("app", "NotIn", "web"), False),
        (expression("absent", "NotIn", "web"), True),
        (expression("app", "Exists"), True),
        (expression("absent", "Exists"), False),
        (expression("absent", "DoesNotExist"), True),
        (expression("app", "DoesNotExist"), False),
        ({"matchLabels": {"app": "web"}, **expression("tier", "In", "back")}, False),
    ],
)
def test_a_selector_fits_when_all_its_parts_do(obj: Any, fits: bool) -> None:
    assert selector(obj).fits(LABELS) is fits


@pytest.mark.parametrize(
    ("obj", "path"),
    [
        ({"matchLabels": {"a b": "c"}}, "matchLabels"),
        ({"matchLabels": {"A/b": "c"}}, "matchLabels"),
        ({"matchLabels": {"a": "c d"}}, "matchLabels.a"),
        (expression("a", "In"), "matchExpressions[0].values"),
        (expression("a", "Exists", "b"), "matchExpressions[0].values"),
        (expression("/a", "Exists"), "matchExpressions[0].key"),
        (expression("a", "In", "-"), "matchExpressions[0].values"),
    ],
)
def test_what_no_api_server_would_take_is_a_problem(obj: Any, path: str) -> None:
    assert [where for where, _ in selector(obj).problems()] == [path]


def test_a_good_selector_has_no_problems() -> None:
    obj = {"matchLabels": {"example.com/app": "web", "x": ""}, **expression("kubernetes.io/name", "NotIn", "a", "b")}
    assert list(selector(obj).problems()) == []
