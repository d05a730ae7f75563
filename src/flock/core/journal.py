"""The journal's records as bytes: rounds of changes that the state file does not have yet.

A record begins at a block of its own and is checksummed as a whole, with the id of the file it continues and its
number.  Numbers grow by one, and nothing is taken out of a journal: which records still say something follows from the
last number that the file has.  So a record that was torn is none, one that the file has already is harmless, and one
that is missing between others is noticed, wherever each of them stands.

Behind a record's JSON, outside the checksum, is its number again, and one byte for each of its changes.  It is 0, and
becomes 1 when a change that was written ahead is finished.  A byte is never torn, and setting it needs no flush: a
machine that dies takes along what was unfinished.  The number, in the same block, says that the bytes are this
record's: of one that was cut short by a death an older one's may stand there.
"""

import struct
import zlib
from collections.abc import Iterator, Sequence

import msgspec

from flock.core.errors import StoreFailure
from flock.core.statefile import Change, Continued

BLOCK = 4096  # what disks and page caches write as one: no record shares it with an answered one
MAGIC = b"\x1eFJ1"  # JSON has no control characters: nothing that stands inside a record looks like one
FINISHED = b"\x01"
_HEADER = struct.Struct(">4sIIQ16s")  # magic, checksum of all that follows it, bytes of JSON, number, id
_NUMBER = struct.Struct(">Q")
_CHECKED = 8  # where the checksummed part begins

_decoder = msgspec.json.Decoder(list[Change])


def encode(changes: Sequence[Change], *, owner: str, number: int) -> bytes:
    """Whole blocks.  UnicodeEncodeError for what JSON cannot say."""
    body = msgspec.json.encode(changes)
    trailer = _NUMBER.pack(number) + bytes(len(changes))
    over = (_HEADER.size + len(body)) % BLOCK + len(trailer) - BLOCK
    if 0 < over < len(trailer) <= BLOCK:
        body = body.ljust(len(body) + len(trailer) - over)  # it would stand in two blocks: in the next
    checked = _HEADER.pack(MAGIC, 0, len(body), number, owner.encode())[_CHECKED:] + body
    record = MAGIC + zlib.crc32(checked).to_bytes(4) + checked + trailer
    return record.ljust(-(-len(record) // BLOCK) * BLOCK, b"\0")


def replay(raw: bytes, *, after: Continued, where: str) -> Iterator[list[Change]]:
    """What came after the file was written, in order.  A record that was being written when the machine died is the
    last one, and nobody was answered: it is left out.  StoreFailure if one is missing that others follow."""
    records = {number: rest for number, *rest in _records(memoryview(raw), after.id) if number > after.through}
    for expected, number in enumerate(sorted(records), after.through + 1):
        if number != expected:
            raise StoreFailure(
                f"{where} is damaged or is not the state file's: it has change {number} and not change {expected}",
                details="repair it, or move it away to go on without what it says; the agent looks again by itself",
            )
        body, finished = records[number]
        try:
            changes = _decoder.decode(body)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise StoreFailure(f"cannot parse change {number} in {where}: {error}") from None
        yield [
            msgspec.structs.replace(change, unfinished=False) if finished[n : n + 1] == FINISHED else change
            for n, change in enumerate(changes)
        ]


def finishing_at(record: bytes) -> int:
    """Where in it the byte of its first change is; those of the others follow."""
    length: int = _HEADER.unpack_from(record)[2]
    return _HEADER.size + length + _NUMBER.size


def _records(raw: memoryview, owner: str) -> Iterator[tuple[int, memoryview, memoryview]]:
    """Number, JSON and the bytes of its changes, which are none if they are another's."""
    at = 0
    while at + _HEADER.size <= len(raw):
        magic, checksum, length, number, whose = _HEADER.unpack_from(raw, at)
        end = at + _HEADER.size + length
        whole = magic == MAGIC and whose == owner.encode() and zlib.crc32(raw[at + _CHECKED : end]) == checksum
        if whole and end <= len(raw):
            behind = end + _NUMBER.size
            own = raw[end:behind] == _NUMBER.pack(number)
            yield number, raw[at + _HEADER.size : end], raw[behind:] if own else raw[:0]
        at += -(-(end - at) // BLOCK) * BLOCK if whole else BLOCK
