"""Every annotation under our prefix: on which objects it is looked for, and which modules understand it.

Names appear nowhere else: whoever reads one takes it from here, objects are trimmed to what is listed here, and the
executable's (`cni/loopback.h`) is compared with it by a test.
"""

from collections.abc import Mapping
from typing import NamedTuple

from flock.core.errors import AnnotationError
from flock.core.model import PREFIX

IPV6 = f"{PREFIX}/ipv6"
IPV4 = f"{PREFIX}/ipv4"
CIDR6 = f"{PREFIX}/cidr6"
CIDR4 = f"{PREFIX}/cidr4"
IP_ALGO = f"{PREFIX}/ip-algo"
ANYCAST = f"{PREFIX}/anycast"
ADDRESSES = f"{PREFIX}/addresses"
STRICT = f"{PREFIX}/strict"
AUDIT = f"{PREFIX}/audit"
CHECK = f"{PREFIX}/check"  # no object of an operator's: on namespaces of `flockctl check cluster`, and their label


class Annotation(NamedTuple):
    of: tuple[str, ...]  # kinds of objects
    understood_by: tuple[str, ...]  # modules; the first is the one that refuses what is wrong


ANNOTATIONS = {
    IPV6: Annotation(("Pod",), ("core/podrequest.py",)),
    IPV4: Annotation(("Pod",), ("core/podrequest.py",)),
    CIDR6: Annotation(("Pod",), ("core/podrequest.py",)),
    CIDR4: Annotation(("Pod",), ("core/podrequest.py",)),
    IP_ALGO: Annotation(("Pod", "NodeConfig"), ("core/embed.py",)),
    ANYCAST: Annotation(("Pod",), ("core/podrequest.py", "core/policy/vouching.py")),
    ADDRESSES: Annotation(("Pod",), ("core/podrequest.py", "core/policy/vouching.py")),
    STRICT: Annotation(("NetworkPolicy", "ClusterNetworkPolicy"), ("core/policy/reading.py",)),
    AUDIT: Annotation(("NetworkPolicy", "ClusterNetworkPolicy"), ("core/policy/reading.py",)),
}
OF_PODS = frozenset(name for name, annotation in ANNOTATIONS.items() if "Pod" in annotation.of)

# Every entry is a kernel address, a route and an announcement, all made inside ADD: a bound keeps a slip of a
# template from turning into minutes of kernel work.  Real pods use a handful.
MAX_ENTRIES = 64
# A list of so many in their longest spelling takes half of it.
LONGEST = 8192

# The spellings Go's strconv.ParseBool takes, which is what Kubernetes users know from other annotations.
BOOLEANS = {
    **dict.fromkeys(("1", "t", "T", "true", "TRUE", "True"), True),
    **dict.fromkeys(("0", "f", "F", "false", "FALSE", "False"), False),
}


def own_annotations(annotations: Mapping[str, str]) -> dict[str, str]:
    """What is kept of an object's annotations: those that are read; of a value that is too long, enough to see that."""
    return {key: value[: LONGEST + 1] for key, value in annotations.items() if key in ANNOTATIONS}


def list_items(key: str, text: str) -> list[str]:
    """The entries of a comma-separated annotation, without blanks around or between them.  AnnotationError for a text
    that is longer than any list that is taken."""
    if len(text) > LONGEST:
        raise AnnotationError(key, f"longer than {LONGEST} characters")
    return [item for item in (part.strip() for part in text.split(",")) if item]
