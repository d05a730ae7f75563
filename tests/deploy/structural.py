"""As much of the API server's validation as the definitions in deploy/crds use.

For tests that try thousands of objects; e2e/test_api_objects.py shows that a real API server judges alike.  Unknown
fields are an error here: the API server drops them, and `kubectl apply` complains.
"""

import functools
import re
from collections.abc import Iterator, Mapping
from typing import Any

TYPES: Mapping[str, type | tuple[type, ...]] = {
    "object": dict,
    "array": list,
    "string": str,
    "boolean": bool,
    "integer": int,
}


def complaints(schema: Mapping[str, Any], value: Any, path: str = "") -> Iterator[str]:
    """Everything that is wrong with the value, by path."""
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    kind = schema.get("type")
    if kind and (not isinstance(value, TYPES[kind]) or (kind == "integer" and isinstance(value, bool))):
        yield f"{path}: is no {kind}"
        return
    if schema.get("x-kubernetes-int-or-string") and (isinstance(value, bool) or not isinstance(value, int | str)):
        yield f"{path}: is neither integer nor string"
        return
    yield from _own(schema, value, path)
    yield from _inside(schema, value, path)
    yield from _junctions(schema, value, path)


@functools.cache
def _pattern(text: str) -> re.Pattern[str]:
    """Go's `$` is the end of the text, and not also before a line's end."""
    return re.compile(re.sub(r"\$(?=\)|\||\Z)", r"\\Z", text))


def fits(schema: Mapping[str, Any], value: Any) -> bool:
    return next(complaints(schema, value), None) is None


def _own(schema: Mapping[str, Any], value: Any, path: str) -> Iterator[str]:
    """Each rule is for one type of value; all others pass it."""
    if "enum" in schema and not any(type(value) is type(one) and value == one for one in schema["enum"]):
        yield f"{path}: is none of {schema['enum']}"
    if isinstance(value, int) and not isinstance(value, bool):
        if not schema.get("minimum", value) <= value <= schema.get("maximum", value):
            yield f"{path}: is out of range"
    elif isinstance(value, str):
        if "pattern" in schema and not _pattern(schema["pattern"]).search(value):
            yield f"{path}: does not match"
        if not schema.get("minLength", 0) <= len(value) <= schema.get("maxLength", len(value)):
            yield f"{path}: is too short or too long"
    elif isinstance(value, list):
        if not schema.get("minItems", 0) <= len(value) <= schema.get("maxItems", len(value)):
            yield f"{path}: has too few or too many items"
        if _repeated(schema, value):
            yield f"{path}: has an item twice"
    elif isinstance(value, dict):
        yield from (f"{path}.{key}: is required" for key in schema.get("required", ()) if key not in value)
        if not schema.get("minProperties", 0) <= len(value) <= schema.get("maxProperties", len(value)):
            yield f"{path}: has too few or too many fields"


def _repeated(schema: Mapping[str, Any], items: list[Any]) -> bool:
    match schema.get("x-kubernetes-list-type"):
        case "set":
            keys = [repr(item) for item in items]
        case "map":
            names = schema["x-kubernetes-list-map-keys"]
            keys = [repr([item.get(name) for name in names]) for item in items if isinstance(item, dict)]
        case _:
            return False
    return len(set(keys)) < len(keys)


def _inside(schema: Mapping[str, Any], value: Any, path: str) -> Iterator[str]:
    if isinstance(value, list) and "items" in schema:
        for number, item in enumerate(value):
            yield from complaints(schema["items"], item, f"{path}[{number}]")
    if not isinstance(value, dict):
        return
    known, others = schema.get("properties", {}), schema.get("additionalProperties")
    for key, item in value.items():
        if key in known:
            yield from complaints(known[key], item, f"{path}.{key}")
        elif others:
            yield from complaints(others, item, f"{path}.{key}")
        elif schema.get("type") == "object" and known:
            yield f"{path}.{key}: there is no such field"


def _junctions(schema: Mapping[str, Any], value: Any, path: str) -> Iterator[str]:
    if "not" in schema and fits(schema["not"], value):
        yield f"{path}: must not be {schema['not']}"
    if not all(fits(part, value) for part in schema.get("allOf", ())):
        yield f"{path}: does not fit all of {schema['allOf']}"
    if "anyOf" in schema and not any(fits(part, value) for part in schema["anyOf"]):
        yield f"{path}: fits none of {schema['anyOf']}"
    if "oneOf" in schema and sum(fits(part, value) for part in schema["oneOf"]) != 1:
        yield f"{path}: does not fit one of {schema['oneOf']}"


def stored(value: Any) -> Any:
    """The API server drops fields that are null, before it looks."""
    if isinstance(value, dict):
        return {key: stored(item) for key, item in value.items() if item is not None}
    return [stored(item) for item in value] if isinstance(value, list) else value
