"""Errors an operator or a runtime gets to see, each with its CNI code.

Codes below 100 are the CNI specification's; flock's own start at 100 and are listed in docs/errors.md.
`msg` says what was asked and what stood in the way, in one line; `details` says what to do about it.  Both are bounded
here, where all errors are made, because they quote input as long as its author likes and end up in events, logs and
terminals.
"""

import errno
from enum import IntEnum

LONGEST = 4096  # several problems of one object, each in full
LONGEST_FIELD, LONGEST_PROBLEM = 200, 400  # one of them: a path, and as much as a person reads of a line
# Of descriptors or memory: says nothing about what was asked for, and passes.
SHORTAGES = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENOBUFS})


def shown(text: str, most: int) -> str:
    """The text with its middle left out where it is longer: what was asked stands first, what stood in the way last."""
    if len(text) <= most:
        return text
    cut = f" … {len(text)} characters … "
    head = (most - len(cut)) * 2 // 3
    return f"{text[:head]}{cut}{text[head + len(cut) - most :]}"


def in_one_line(text: str) -> str:
    """Line breaks and other characters that a terminal obeys, as escapes."""
    return text if text.isprintable() else "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)


class Code(IntEnum):
    INCOMPATIBLE_VERSION = 1
    UNSUPPORTED_FIELD = 2
    UNKNOWN_CONTAINER = 3
    INVALID_ENVIRONMENT = 4
    IO_FAILURE = 5
    DECODING_FAILURE = 6
    INVALID_CONFIG = 7
    TRY_AGAIN = 11
    NOT_AVAILABLE = 50
    LIMITED = 51
    # flock's own
    INTERNAL = 100
    BAD_ANNOTATION = 101
    NOT_GRANTED = 102
    ADDRESS_IN_USE = 103
    POOL_EXHAUSTED = 104
    SECOND_INTERFACE = 105
    INTERFACE_TAKEN = 106
    NODE_NETNS = 107
    KERNEL_REFUSED = 108
    DIFFERENCES = 109
    ANOTHER_NAMESPACES = 110
    TOO_MANY_CLAIMS = 111


class FlockError(Exception):
    """Base of every error that becomes a CNI error: a code, one line, and what to do."""

    code: Code = Code.INTERNAL

    def __init__(self, msg: str, *, details: str = "", code: Code | None = None) -> None:
        self.msg = shown(msg, LONGEST)
        self.details = shown(details, LONGEST)
        super().__init__(self.msg)
        if code is not None:
            self.code = code


class FieldError(FlockError):
    """One field of some input is wrong.  `field` is its path, e.g. `spec.bgp.peers[0].address`."""

    code = Code.INVALID_CONFIG

    def __init__(self, field: str, problem: str, *, details: str = "", code: Code | None = None) -> None:
        self.field = in_one_line(shown(field, LONGEST_FIELD))
        self.problem = in_one_line(shown(problem, LONGEST_PROBLEM))
        super().__init__(f"{self.field}: {self.problem}", details=details, code=code)


class AnnotationError(FieldError):
    """A pod annotation is wrong; its owner can fix it."""

    code = Code.BAD_ANNOTATION


class NotGranted(FieldError):
    """The pod asks for an address its namespace may not have (invariant 9)."""

    code = Code.NOT_GRANTED


class AddressInUse(FlockError):
    code = Code.ADDRESS_IN_USE


class AnotherNamespaces(FlockError):
    """The address is another namespace's: shared by its pods, or theirs until lately."""

    code = Code.ANOTHER_NAMESPACES


class TooManyClaims(FlockError):
    """The namespace would have more addresses by name than one namespace may."""

    code = Code.TOO_MANY_CLAIMS


class PoolExhausted(FlockError):
    code = Code.POOL_EXHAUSTED


class KernelRefused(FlockError):
    """The kernel answered a request with an error; `errno` is its number, 0 where there is none."""

    code = Code.KERNEL_REFUSED

    def __init__(self, msg: str, *, errno: int = 0, details: str = "") -> None:
        super().__init__(msg, details=details)
        self.errno = errno


class TryAgain(FlockError):
    """Nothing is wrong with the request; the agent cannot serve it yet."""

    code = Code.TRY_AGAIN


class StoreFailure(FlockError):
    """The allocation file could not be read or written; nothing was changed."""

    code = Code.IO_FAILURE


def refusal(problem: str, error: OSError) -> TryAgain | KernelRefused:
    """What a system call failed with: a shortage passes, the rest is the kernel's answer."""
    number = error.errno or 0
    text = f"{problem}: {error.strerror}"
    return TryAgain(text) if number in SHORTAGES else KernelRefused(text, errno=number)
