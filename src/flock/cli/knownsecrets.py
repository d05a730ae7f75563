"""Passwords and tokens of this node, where they are kept: read only to be taken out wherever else they have come to."""

import base64
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import yaml

LONGEST_SECRET = 64 << 10  # bytes of a file that holds one
LONGEST_CONF = 4 << 20
TOKEN = Path("/var/run/secrets/kubernetes.io/serviceaccount/token")
KUBECONFIGS = ("FLOCK_KUBECONFIG", "KUBECONFIG")
_PASSWORD_LINE = re.compile(r'\b(?:password|secret)\s+"([^"]*)"')  # BIRD knows no escapes
_SECRET_VARIABLE = re.compile(r"PASS|TOKEN|SECRET|KEY|CREDENTIAL|_PWD\b|AUTH", re.IGNORECASE)
_IN_URL = re.compile(r"://[^/@]*:(\S+)@")


def known_secrets(bird_dir: Path, documents: list[Any]) -> list[str]:
    """Passwords and tokens of this node, as far as they can be read here: documents have them, or name their files."""
    # a short value of a variable that is called like a secret is rather a word
    found = [value for name, value in os.environ.items() if _SECRET_VARIABLE.search(name) and len(value) > 5]
    found += [word for value in os.environ.values() for word in _IN_URL.findall(value)]
    found += _PASSWORD_LINE.findall(_read(bird_dir / "bird.conf", at_most=LONGEST_CONF))
    secrets = (each for each in documents if isinstance(each, dict) and each.get("kind") == "Secret")
    found += [value for secret in secrets for value in _values(secret)]
    found += [_read(path, at_most=LONGEST_SECRET) for path in (TOKEN, *map(Path, _password_files(documents)))]
    for path in filter(None, map(os.environ.get, KUBECONFIGS)):
        found += _of_kubeconfig(Path(path))
    return found


def _read(path: Path, *, at_most: int) -> str:
    """What there is of a file.  One that is none, such as a pipe, would keep us waiting."""
    with suppress(OSError, ValueError):
        if path.is_file():
            with path.open("rb") as file:
                return file.read(at_most).decode(errors="replace")
    return ""


def _values(secret: Mapping[str, Any]) -> Iterator[str]:
    for part in ("stringData", "data"):
        values = secret.get(part)
        for value in values.values() if isinstance(values, dict) else ():
            yield str(value)
            with suppress(ValueError):
                yield base64.b64decode(str(value)).decode(errors="replace") if part == "data" else ""


def _password_files(value: object) -> Iterator[str]:
    if isinstance(value, dict):
        for key, inner in value.items():
            if key == "passwordFile" and isinstance(inner, str):
                yield inner
            else:
                yield from _password_files(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _password_files(inner)


def _of_kubeconfig(path: Path) -> Iterator[str]:
    with suppress(yaml.YAMLError, RecursionError):
        config = yaml.load(_read(path, at_most=LONGEST_CONF), Loader=yaml.CSafeLoader)
        users = config.get("users") if isinstance(config, dict) else None
        for user in users if isinstance(users, list) else ():
            given = user.get("user") if isinstance(user, dict) else None
            for key, value in given.items() if isinstance(given, dict) else ():
                if key in ("token", "password", "client-key-data"):
                    yield str(value)
                elif key == "tokenFile":
                    yield _read(path.parent / str(value), at_most=LONGEST_SECRET)
