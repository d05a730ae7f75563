"""Takes passwords and tokens out of what leaves the house: those that are known, and whatever looks like one.  Pure.

Known are values that somebody read where they are kept (`cli/nodeparts.py`).  Beyond them, what a word like `password`
or `token` introduces goes, in JSON and in lines of text, and what has the form of a key or a signed token.
"""

import base64
import re
from collections.abc import Iterable
from typing import Any

HIDDEN = "[secret]"
SHORTEST = 4  # characters of a known secret that is looked for everywhere; a shorter one is in every other word

_WORDS = r"pass(?:word|wd|phrase)|secret|token|credentials?|private[_-]?key|api[_-]?key|access[_-]?key"
_KEY = re.compile(rf"(?:.*[^a-zA-Z])?(?:{_WORDS})s?|.*(?:Password|Secret|Token|Key)|authorization", re.IGNORECASE)
# Whoever may annotate a pod chooses what is looked through: each pattern takes time as long as the text is, not more.
_INTRODUCED = re.compile(
    rf"""((?:(?<![\w.-])[\w.-]*(?:{_WORDS})|authorization)s?"""
    r"""(?:\\*["'])?(?:\s*[:=]\s*|\s+(?=\\*["']))(?:(?:bearer|basic)\s+)?)"""
    r"""(?:(\\*["'])(?:.*?)\2|[^\s"',;}]+)""",
    re.IGNORECASE,
)
_FORMS = re.compile(
    r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)"
    r"|\beyJ[\w-]{5,500}\.[\w-]{5,}\.[\w-]*"
    r"|(?<=\bBearer )[\w.~+/=-]{8,}"
    r"|(?<=://)[^\s/@:]+:[^\s/@]+(?=@)",
    re.DOTALL,
)
# A file, a Secret's name, or which of its keys: says where a password is, and not what.
_PLACES = frozenset({"key", "publickey"})


class Redactor:
    def __init__(self, known: Iterable[str] = ()) -> None:
        values = {value.strip() for value in known if len(value.strip()) >= SHORTEST}
        forms = values | {base64.b64encode(value.encode()).decode() for value in values}
        forms |= {value.replace("\\", "\\\\").replace('"', '\\"') for value in values}
        found = sorted(forms, key=len, reverse=True)
        self._known = re.compile("|".join(map(re.escape, found))) if found else None

    def text(self, given: str) -> str:
        if self._known:
            given = self._known.sub(HIDDEN, given)
        given = _FORMS.sub(HIDDEN, given)
        return _INTRODUCED.sub(lambda m: f"{m[1]}{m[2] or ''}{HIDDEN}{m[2] or ''}", given)

    def value(self, given: Any) -> Any:
        """The same for what JSON can hold: keys stay, a key that names a secret hides what it has."""
        if isinstance(given, str):
            return self.text(given)
        if isinstance(given, dict):
            return {key: self._under(key, value) for key, value in given.items()}
        if isinstance(given, list):
            return [self.value(each) for each in given]
        return given

    def _under(self, key: str, value: Any) -> Any:
        secret = isinstance(value, str) and value and _KEY.fullmatch(key) and key.lower() not in _PLACES
        return HIDDEN if secret else self.value(value)
