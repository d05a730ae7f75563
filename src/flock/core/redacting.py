"""Takes passwords and tokens out of what leaves the house: those that are known, and whatever looks like one.  Pure.

Known are values that somebody read where they are kept (`cli/nodeparts.py`); they go in every spelling that a log or a
document may have of them.  Beyond them, what a word like `password` or `token` introduces goes, in JSON and in lines of
text, and what has the form of a key or a signed token.

All of it is looked for in the text as it was given, and then what was found goes at once: nothing that is taken out can
hide from others what stands beside it, be it the very word by which they would have been found.
"""

import base64
import json
import re
from collections.abc import Iterable, Iterator
from typing import Any
from urllib.parse import quote, quote_plus

HIDDEN = "[secret]"
SHORTEST = 4  # characters of a known secret that is looked for everywhere; a shorter one is in every other word
SHORTEST_CODED = 6  # of one in base64 or hex
SHORTEST_LINE = 16  # of one line of a secret that has several: of a file, the others are words of its language
FURTHEST = 2000  # characters up to the quote that ends a value
KEY_LINES = 100  # of a private key whose beginning is not there; one of 4096 bits has 51

_WORDS = (
    r"pass(?:word|wd|phrase|code)|pwd|secret|token|credentials?"
    r"|(?:private|api|access|auth|encryption|signing|shared)[_-]?key|key-data"
)
_KEY = re.compile(rf"(?:.*[^a-zA-Z])?(?:{_WORDS})s?|.*(?:Password|Secret|Token|Key)|authorization", re.IGNORECASE)
# Whoever may annotate a pod chooses what is looked through: each pattern takes time as long as the text is, not more.
_INTRODUCED = re.compile(
    rf"""(?:(?P<header>authorization|cookie)|(?:{_WORDS})s?)(?P<quoted>\\*["'])?"""
    r"""(?:[^\S\n]*(?::=|[:=]>?)[^\S\n]*|(?P<spaced>[^\S\n]+)(?=\\*["']))"""
    rf"""|(?<![\w-])--[\w-]{{0,40}}(?:{_WORDS})[^\S\n]+"""
    r"""|\bneighbor[^\S\n]+\S+[^\S\n]+password[^\S\n]+|\bmessage-digest-key[^\S\n]+\d+[^\S\n]+md5[^\S\n]+"""
    r"""|\bpassword[^\S\n]+(?=(?:hex:)?[0-9a-f]{2}(?:[:\s]?[0-9a-f]{2}){3,99}\b)""",  # bytes, as BIRD has them
    re.IGNORECASE,
)
_SCHEME = re.compile(r"(?:bearer|basic|digest|negotiate|token)[^\S\n]+", re.IGNORECASE)
_OPENED = re.compile(r"""(\\*)(["'])""")
# The rest of a quoted value: with what is escaped in it, and with what follows at once ('a''b', 'a'\''b', 'a'"'"'b').
_WHOLE = {
    m: re.compile(rf"(?:[^{m}\\]|\\.)*{m}(?:(?:\\{m}|{o}{m}{o})?{m}(?:[^{m}\\]|\\.)*{m})*", re.DOTALL)
    for m, o in ("\"'", "'\"")
}
_SLASHED = {m: re.compile(rf"(\\*){m}") for m in "\"'"}
_FIRST_END = {m: re.compile(rf"([^{m}]*){m}\s*(?:[;{{]|$)") for m in "\"'"}
_NUMBER = re.compile(r"-?[\d.]+(?=\s*[,}\]])")
_BLOCK = re.compile(r"[|>]?[+-]?\d?[^\S\n]*$", re.MULTILINE)
_FIRST = re.compile(r"([ -]*)[\w.-]*")  # the key of a line, and how far in it is
_UNQUOTED = re.compile(r"\S+")
_FORMS = re.compile(
    r"-----BEGIN [A-Z ]{0,40}PRIVATE KEY[A-Z ]{0,20}-----.*?(?:-----END [A-Z ]{0,40}PRIVATE KEY[A-Z ]{0,20}-----|\Z)"
    r"|\bLS0tLS1CRUdJTi[\w+/=-]{20,}"  # the same, in base64
    r"|\beyJ[\w-]{5,500}\.[\w-]{5,}\.[\w-]*"
    r"|\b[a-z0-9]{6}\.[a-z0-9]{16}\b"  # of kubeadm
    r"|(?:(?<=\bbearer )|(?<=\bBearer ))[\w.~+/=-]{8,}",
    re.DOTALL,
)
_END_OF_KEY = re.compile(r"-----END [A-Z ]{0,40}PRIVATE KEY[A-Z ]{0,20}-----")
_URL = re.compile(r"://(\S+)")
# A file, a Secret's name, or which of its keys: says where a password is, and not what.
_PLACES = frozenset({"key", "publickey"})
_REFERENCE = frozenset({"name", "namespace", "key", "kind", "optional"})

Span = tuple[int, int]


class Redactor:
    def __init__(self, known: Iterable[str] = ()) -> None:
        self._known = sorted({form for value in known for form in _spelled(value.strip())}, key=len, reverse=True)

    def text(self, given: str) -> str:
        return _without(given, [*self._where_known(given), *_formed(given), *_introduced(given)])

    def value(self, given: Any) -> Any:
        """The same for what JSON can hold: a key that names a secret hides all that it has."""
        if isinstance(given, str):
            return self.text(given)
        if isinstance(given, dict):
            return {self._key(key): self._under(key, value) for key, value in given.items()}
        if isinstance(given, list):
            return [self.value(each) for each in given]
        return given if isinstance(given, bool) or given is None else self._number(given)

    def _key(self, key: Any) -> Any:
        return _without(key, self._where_known(key)) if isinstance(key, str) else key

    def _under(self, key: Any, value: Any) -> Any:
        """What a key has.  Whether there is a secret, or where, may be said."""
        named = isinstance(key, str) and _KEY.fullmatch(key) and key.lower() not in _PLACES
        if not named or isinstance(value, bool) or value is None or value in ("", [], {}):
            return self.value(value)
        if isinstance(value, dict) and value.keys() <= _REFERENCE:
            return self.value(value)
        return [HIDDEN] * len(value) if isinstance(value, list) else HIDDEN

    def _number(self, given: Any) -> Any:
        """A password of digits alone is a number to whoever reads YAML."""
        return HIDDEN if str(given) in self._known else given

    def _where_known(self, text: str) -> Iterator[Span]:
        for form in self._known:
            at = text.find(form)
            while at >= 0:
                yield at, at + len(form)
                at = text.find(form, at + 1)


def _without(text: str, spans: Iterable[Span]) -> str:
    """What overlaps goes as one."""
    told: list[str] = []
    after = 0
    for start, end in sorted(spans):
        if start >= after:
            told.append(text[after:start] + HIDDEN if start > after or not told else "")
        after = max(after, end)
    return "".join(told) + text[after:]


def _spelled(secret: str) -> Iterator[str]:
    """As it may be written: as it is, quoted by this or that language, in a URL, in base64 and in hex."""
    if len(secret) < SHORTEST:
        return
    data = secret.encode("utf-8", "surrogateescape")
    quoted = [json.dumps(secret)[1:-1], json.dumps(secret, ensure_ascii=False)[1:-1], repr(secret)[1:-1]]
    go = quoted[0].translate({ord(c): f"\\u{ord(c):04x}" for c in "<>&"})
    yield from (
        secret,
        data.decode(errors="replace"),
        *quoted,
        go,
        json.dumps(quoted[0])[1:-1],
        secret.replace("'", "\\'"),
    )
    yield from (secret.replace("'", "''"), secret.replace("'", "'\\''"), secret.replace("'", "'\"'\"'"))
    yield secret.replace('"', '\\"')
    yield from (quote(data, safe=""), quote(data), quote_plus(data))
    coded = [data.hex(), data.hex().upper(), data.hex(":")]
    for lead in range(3):  # wherever in a longer text it begins: only what is its own, whatever stands beside it
        whole = base64.b64encode(bytes(lead) + data).decode().rstrip("=")
        own = whole[(lead * 8 + 5) // 6 : (lead + len(data)) * 8 // 6]
        coded += [own, own.replace("+", "-").replace("/", "_")]
    yield from (form for form in coded if len(form) >= SHORTEST_CODED)
    lines = secret.splitlines()
    if len(lines) > 1:
        for line in lines:
            if len(line.strip()) >= SHORTEST_LINE:
                yield from _spelled(line.strip())


def _formed(text: str) -> Iterator[Span]:
    after = 0
    for match in _FORMS.finditer(text):
        yield match.span()
    for match in _END_OF_KEY.finditer(text):  # of one whose beginning was cut off
        start = match.start()
        for _ in range(KEY_LINES):
            start = max(after, text.rfind("\n", after, start))
            if start == after:
                break
        if text.rfind("-----BEGIN ", after, match.start()) < 0:
            yield start, match.end()
        after = match.end()
    for match in _URL.finditer(text):
        if (at := match[1].rfind("@")) > 0:
            yield match.start(1), match.start(1) + at


def _introduced(text: str) -> Iterator[Span]:
    end_of_line, gone = -1, -1  # nothing is looked for in the rest of a line that goes as a whole
    for match in _INTRODUCED.finditer(text):
        start = match.end()
        if start > end_of_line:
            end_of_line = text.find("\n", start)
            end_of_line = len(text) if end_of_line < 0 else end_of_line
        if start < gone or text.startswith(HIDDEN, start):
            continue
        if _BLOCK.match(text, start, end_of_line):
            key = _FIRST.match(text, *_before(text, match.start()))
            beneath = _block(text, len(key[1]) if key else 0, end_of_line)
            after = _UNQUOTED.match(text, end_of_line + 1)
            if beneath > end_of_line or after:
                yield end_of_line + 1, beneath if beneath > end_of_line or not after else after.end()
            continue
        if opened := _OPENED.match(text, start):
            yield _quoted(text, opened, end_of_line, bird=bool(match["spaced"]))
            continue
        scheme = _SCHEME.match(text, start)
        start = scheme.end() if scheme else start
        if match["header"] or text[start : start + 1] in ("[", "{"):
            gone = end_of_line
            yield start, gone
        elif match[0].endswith(": ") and (key := _FIRST.fullmatch(text, *_before(text, match.start()))):
            gone = _block(text, len(key[1]), end_of_line)
            yield start, gone
        elif match["quoted"] and (number := _NUMBER.match(text, start, end_of_line)):
            yield number.span()
        elif word := _UNQUOTED.match(text, start, end_of_line):
            yield word.span()


def _quoted(text: str, opened: re.Match[str], end_of_line: int, *, bird: bool) -> Span:
    """Up to the quote that ends it as JSON and most languages read it.  In BIRD's nothing is escaped: where the first
    quote is followed by what follows a value there, it ends there.  Without an end, to the end of the line."""
    depth, mark, start = len(opened[1]), opened[2], opened.end()
    if bird and (first := _FIRST_END[mark].match(text, start, end_of_line)):
        return start, first.end(1)
    for limit in (end_of_line, len(text)):
        limit = min(limit, start + FURTHEST)
        if not depth:
            if whole := _WHOLE[mark].match(text, start, limit):
                in_doubt = text[whole.end() : whole.end() + 1].strip(" \t\r\n,;:)]}&<>.")
                return start, max(end_of_line, whole.end()) if in_doubt else whole.end() - 1
            continue
        for found in _SLASHED[mark].finditer(text, start, limit):
            slashes = len(found[1])
            if slashes < depth:
                return start, found.start()  # what it stands in has ended
            if slashes % (2 * depth + 2) == depth:
                return start, found.end() - 1 - depth
    return start, end_of_line


def _before(text: str, at: int) -> Span:
    """What stands before it in its line, if that is not far."""
    return text.rfind("\n", max(0, at - 200), at) + 1 or max(0, at - 200), at


def _block(text: str, depth: int, end_of_line: int) -> int:
    """Where what belongs to a key of YAML ends: lines that are further in than it, and items beneath it."""
    after = end_of_line + 1
    while after < len(text):
        end = text.find("\n", after)
        end = len(text) if end < 0 else end
        row = text[after:end]
        inner = len(row) - len(row.lstrip(" "))
        if row.strip() and not (inner > depth or (inner == depth and row.lstrip().startswith("- "))):
            break
        after = end + 1
    return min(after - 1, len(text))
