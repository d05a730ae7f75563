"""A lab's name.  It becomes part of paths that are removed, and of patterns by which namespaces are found and deleted:
whoever makes one of these asks here first.  `..` would lead out of the labs' directory, `*` to everybody's labs."""

import re

from flock.core.errors import FieldError

DEFAULT = "lab"

_NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,31}")


def lab_name(text: str, *, field: str = "--name") -> str:
    """The name itself, or FieldError about where it was given."""
    if not _NAME.fullmatch(text):
        raise FieldError(field, f"{text!r} is not a name: up to 32 of a-z, 0-9 and -")
    return text
