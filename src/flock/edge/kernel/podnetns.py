"""A pod's network namespace: entered, and told from any other that its path may lead to by now (`core/whose.py`)."""

import contextlib
import struct
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from flock.core.errors import FieldError, TryAgain, refusal
from flock.core.whose import Identity, Whose, whose
from flock.edge.boot import boot_id
from flock.edge.kernel.netns import Netns, NoNamespace, inside, open_netns
from flock.edge.netlink import route as r
from flock.edge.netlink import wire as w
from flock.edge.netlink.socket import Glimpse, Netlink

if TYPE_CHECKING:
    from flock.core.model import Allocation

T = TypeVar("T")


class Entered(NamedTuple):
    """A namespace with a socket in it, and which one that is."""

    home: Netns
    namespace: Netns
    socket: Netlink
    identity: Identity

    def close(self) -> None:
        self.socket.close()
        self.namespace.close()

    def glimpse(self, request: r.Request, decode: Callable[[bytes], T]) -> Glimpse[T]:
        """By a socket of its own, which is of no use afterwards if the list was cut short."""
        with inside(self.namespace, home=self.home):
            once = socket_in(self.namespace)
        with once:
            return once.glimpse(request, decode)


def enter(path: str, *, home: Netns) -> Entered:
    """By a socket: the calling thread is at `home` again.  FieldError as from `open_netns`; TryAgain."""
    with contextlib.ExitStack() as opened:
        namespace = open_netns(path)
        opened.callback(namespace.close)
        with inside(namespace, home=home):
            pod = opened.enter_context(socket_in(namespace))
        found = Entered(home, namespace, pod, identify(namespace, pod))
        opened.pop_all()
        return found


@contextlib.contextmanager
def entered(path: str, *, home: Netns) -> Iterator[Entered]:
    found = enter(path, home=home)
    try:
        yield found
    finally:
        found.close()


def socket_in(namespace: Netns) -> Netlink:
    """Of the namespace that the calling thread is in, for errors called `namespace`."""
    try:
        return Netlink()
    except OSError as error:
        raise refusal(f"cannot open a socket in {namespace.path}", error) from None


def identify(namespace: Netns, pod: Netlink) -> Identity:
    """`pod`: a socket in it, whose cookie costs a microsecond."""
    return Identity(namespace.id, pod.netns_cookie, boot_id())


def number_of(namespace: Netns, *, seen_by: Netlink) -> int:
    """By which links in the namespace of that socket tell where their other end is.  -1: none of them leads there."""
    asked = bytes(4) + w.attr(w.NETNSA_FD, w.u32(namespace.fd))
    body = seen_by.get(r.Request("tell a namespace's number", w.RTM_GETNSID, 0, asked))
    return int(struct.unpack("=i", w.attrs(body, 4)[w.NETNSA_NSID])[0])


def whose_is_at_its_path(home: Netns, allocation: "Allocation") -> Whose:
    """Does the recorded path still lead to the pod's namespace?  TryAgain if that cannot be told now: whoever takes
    that for an answer gives up the addresses of a pod that runs."""
    if not allocation.netns:
        return Whose.UNTOLD
    try:
        with entered(allocation.netns, home=home) as found:
            return whose(allocation, found.identity)
    except NoNamespace:
        return whose(allocation, None)
    except FieldError as error:
        raise TryAgain(f"cannot tell whether pod {allocation.pod} is still there: {error.problem}") from None
