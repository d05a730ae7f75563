"""One manifest file's text → the objects in it, as `kubectl` would take them.

YAML with several documents, JSON, and `kind: List` in both.  Objects are taken or refused one by one, each refusal
naming object and field; a refused policy is handed on as such, for it isolates.  Text in which some document
cannot be told to be an object at all is refused as a whole: that is what a half-written file looks like.  Kinds flock
does not read pass without a word, unless they claim to be flock's own.
"""

from collections.abc import Iterable, Iterator, Mapping
from hashlib import blake2b
from typing import Any, NamedTuple

import msgspec

from flock.core.decoding import Unreadable
from flock.core.documents import Document, documents
from flock.core.errors import in_one_line
from flock.core.kinds import KINDS, NODE_CONFIGS, Envelope, Kind, Raw, is_name
from flock.core.model import PREFIX, REFUSED, EndpointSlice, Namespace, Node, Pod, Service

DEFAULT_NAMESPACE = "default"
CALLED = {kind.name: kind.kind for kind in KINDS}  # by whoever writes manifests

Object = Pod | Namespace | Node | Service | EndpointSlice | Raw


class ObjectKey(NamedTuple):
    kind: str
    namespace: str  # empty for what has none
    name: str  # empty for an object refused for its name or namespace

    def __str__(self) -> str:
        kind = CALLED.get(self.kind, self.kind)
        return f"{kind} {self.namespace}/{self.name}" if self.namespace else f"{kind} {self.name or '?'}"


class Manifest(msgspec.Struct, frozen=True):
    objects: Mapping[ObjectKey, Object]
    refused: Mapping[ObjectKey, str]
    warnings: tuple[str, ...]
    others: tuple[str, ...] = ()  # nodes whose NodeConfig is in it, and left out


class Refused(Exception):
    """One object is wrong; the message names the field."""


def parse_manifest(data: bytes, *, node: str | None, kinds: Iterable[Kind[Any]] = KINDS) -> Manifest:
    """NodeConfigs of nodes other than `node` are left out, unless that is None, and Nodes told as another kind than
    the own one.  Raises Unreadable."""
    rows = [kind for kind in kinds if kind.shape is not None]
    objects: dict[ObjectKey, Object] = {}
    refused: dict[ObjectKey, str] = {}
    warnings: list[str] = []
    others: list[str] = []
    for item, wrong in _items(documents(data)):
        kind = next((kind for kind in rows if _is_one(item, kind, node)), None)
        if kind is None:
            if _group(str(item.get("apiVersion"))) == PREFIX:
                if item["kind"] == NODE_CONFIGS.kind:
                    others.append(_key(item, NODE_CONFIGS).name)
                elif item["kind"] not in CALLED.values():
                    warnings.append(f"kind {in_one_line(item['kind'])[:80]} is not known")
            continue
        key = _key(item, kind)
        try:
            if wrong:
                raise Refused(wrong)
            value = _object(item, kind)
        except Refused as error:
            refused[key] = str(error)
            key = _judged(item, key, namespaced=kind.namespaced)
            if not kind.judged or not key.name:
                continue
            value = {**item, "metadata": {**item["metadata"], "name": key.name}, REFUSED: str(error)}
        if key in objects:
            warnings.append(f"{key}: more than once in this file, the last one counts")
        objects[key] = value
    return Manifest(objects, refused, tuple(warnings), tuple(others))


def _items(found: Iterable[Document]) -> Iterator[tuple[dict[str, Any], str]]:
    """Every object with a kind, those of Lists in place of the List; and what is wrong with its text."""
    for number, document in enumerate(found, 1):
        if document.value is None:
            continue  # an empty document, such as `---` at the end
        item = _with_kind(document.value, f"document {number}")
        if item["kind"] != "List":
            yield item, document.wrong
            continue
        if document.wrong:
            raise Unreadable(document.wrong)  # whose it is would have to be told
        entries = item.get("items")
        if not isinstance(entries, list | None):
            raise Unreadable(f"document {number}: items of a List must be a list")
        for index, entry in enumerate(entries or ()):
            yield _with_kind(entry, f"document {number}: items[{index}]"), ""


def _with_kind(value: Any, where: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise Unreadable(f"{where}: not an object")
    if not isinstance(value.get("kind"), str):
        raise Unreadable(f"{where}: no kind")
    return value


# --- document → object --------------------------------------------------------------------------------------


def _is_one(item: Raw, kind: Kind[Any], node: str | None) -> bool:
    """Of the kind, and of those that concern the node.  Another API group may have a kind of the same name, as Calico
    has a NetworkPolicy."""
    version = item.get("apiVersion")
    foreign = isinstance(version, str) and _group(version) != _group(kind.api_version)
    if item["kind"] != kind.kind or foreign:
        return False
    return not kind.is_of_one_node or node is None or _key(item, kind).name in ("", node)


def _group(api_version: str) -> str:
    return api_version.rpartition("/")[0]


def _key(item: Raw, kind: Kind[Any]) -> ObjectKey:
    """Which object this is; without a name if its metadata does not say so properly."""
    metadata = item.get("metadata")
    if isinstance(metadata, dict):
        name: Any = metadata.get("name")
        namespace = (metadata.get("namespace") or DEFAULT_NAMESPACE) if kind.namespaced else ""
        if is_name(name) and (is_name(namespace) or not kind.namespaced):
            return ObjectKey(kind.name, namespace, name)
    return ObjectKey(kind.name, "", "")


def _judged(item: Raw, key: ObjectKey, *, namespaced: bool) -> ObjectKey:
    """What a refused object is handed on as; without a name if it cannot be.  One whose namespace can be read and whose
    name cannot goes by its content, so that none takes another's place."""
    metadata = item.get("metadata")
    namespace = (metadata.get("namespace") or DEFAULT_NAMESPACE) if isinstance(metadata, dict) else None
    if key.name or not is_name(namespace):
        return key
    namespace = str(namespace) if namespaced else ""
    return ObjectKey(key.kind, namespace, f"nameless-{blake2b(repr(item).encode(), digest_size=16).hexdigest()}")


def _object(item: Raw, kind: Kind[Any]) -> Object:
    if item.get("apiVersion") not in (kind.api_version, kind.older or kind.api_version):
        raise Refused(f"apiVersion must be {kind.api_version} - at `$.apiVersion`")
    # A key without a value ("status:" with all below commented out) is the same as no key, to kubectl too.
    item = {field: value for field, value in item.items() if value is not None}
    metadata = item.get("metadata")
    if isinstance(metadata, dict):
        _check_texts(metadata)
        metadata = {field: value for field, value in metadata.items() if value is not None}
        if kind.namespaced:
            metadata["namespace"] = metadata.get("namespace") or DEFAULT_NAMESPACE
        item["metadata"] = metadata
    try:
        value = msgspec.convert(item, kind.shape)
    except msgspec.ValidationError as error:
        raise Refused(str(error)) from None
    if not is_name(value.metadata.name):
        raise Refused(f"{value.metadata.name!r:.80} is not a DNS name (small letters) - at `$.metadata.name`")
    if kind.namespaced and not is_name(value.metadata.namespace):
        raise Refused("not a DNS name - at `$.metadata.namespace`")
    return item if isinstance(value, Envelope) else value


def _check_texts(metadata: Raw) -> None:
    """Labels and annotations are where YAML turns an unquoted true or 1 into something else than text."""
    for field in ("labels", "annotations"):
        texts = metadata.get(field)
        if not isinstance(texts, dict):
            continue
        for name, value in texts.items():
            if not isinstance(name, str) or not isinstance(value, str):
                raise Refused(
                    f"Expected text, got {name!r}: {value!r:.80} - at `$.metadata.{field}[{name!r}]`; put it in quotes"
                )
