"""JSON of bounded depth: what is nested deeper than anybody reads is cut out before a decoder recurses into it.

The API server stores what a tenant nests 10,000 levels deep in `metadata.managedFields` and serves it to everybody;
decoders recurse, also into what they only skip, and give up after a thousand, or on Python 3.12 and later after several
thousand, which is more than those can walk who read what was decoded.  Nothing that is read is so deep.
"""

import re

MAX_DEPTH = 100  # CRD schemas, the deepest objects there are, stay below 50
# In the place of what was cut out.  Text, because null might mean "absent": whoever does read it refuses it.
STAND_IN = b'"(nested too deeply to be read)"'

_TEXT = rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"'
_PLAIN = rb"[^\"{}\[\]]*+"
# An object or list without another inside it is stepped over in one go, as is everything between brackets.
# (Not possessive where there are alternatives: Python before 3.11.5 gets that wrong.)
_FLAT = rb"[{\[]" + _PLAIN + rb"(?:" + _TEXT + _PLAIN + rb")*+[}\]]"
_NEXT_BRACKET = re.compile(_PLAIN + rb"(?:(?:" + _TEXT + rb"|" + _FLAT + rb")" + _PLAIN + rb")*([{}\[\]])", re.DOTALL)


def shallow(data: bytes) -> bytes:
    """The same JSON, with STAND_IN for what is nested more than MAX_DEPTH (or one more) levels deep.

    Takes time linear in its size, about 40 ms for a megabyte, and never fails: what is no JSON is no JSON afterwards.
    """
    if data.count(b"{") + data.count(b"[") <= MAX_DEPTH:
        return data
    kept: list[bytes] = []
    depth = start = cut = end = 0
    while bracket := _NEXT_BRACKET.match(data, end):
        end = bracket.end()
        if bracket[1] in b"{[":
            depth += 1
            if depth == MAX_DEPTH + 1:
                cut = bracket.start(1)
        else:
            if depth == MAX_DEPTH + 1:
                kept += (data[start:cut], STAND_IN)
                start = end
            depth -= 1
    return b"".join((*kept, data[start:]))
