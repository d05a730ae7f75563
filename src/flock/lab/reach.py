"""Can A reach B, and who answers there?  One ping per family, or questions at a steady pace."""

import subprocess
import sys
from collections.abc import Iterator
from ipaddress import ip_address

import msgspec

from flock.core.errors import FieldError
from flock.lab.errors import LabError
from flock.lab.fabric import Lab
from flock.lab.hosts import Host
from flock.lab.topology import SWITCH
from flock.lab.traffic import Exchange, read


class Answer(msgspec.Struct, frozen=True):
    address: str
    reached: bool
    milliseconds: float | None


def ping(lab: Lab, source: str, target: str) -> tuple[Answer, ...]:
    """Ping from an element or pod to another, or to an address."""
    host = lab.host(source)
    return tuple(_ping_one(host, address) for address in addresses(lab, target))


def ask(
    lab: Lab, source: str, target: str, *, every: float = 0.01, duration: float = 5.0, flows: int = 0
) -> Iterator[Exchange]:
    """Questions from an element or pod to an address or the first address of a name, as they are answered."""
    options = ["--every", str(every), "--for", str(duration), "--flows", str(flows)]
    command = [sys.executable, "-m", "flock.lab.traffic", "ask", addresses(lab, target)[0], *options]
    inside = lab.host(source).inside(command)
    # The terminal's Ctrl-C is ours alone: it may come while the other is still being loaded.
    with subprocess.Popen(inside, stdout=subprocess.PIPE, text=True, process_group=0) as asker:
        assert asker.stdout is not None
        try:
            yield from read(asker.stdout)
        finally:
            asker.terminate()  # whoever listens may have heard enough


def addresses(lab: Lab, target: str) -> tuple[str, ...]:
    """What a name stands for: the first address of each family of an element or pod; an address is itself."""
    try:
        return (str(ip_address(target)),)
    except ValueError:  # a name
        pass
    element = next((e for e in lab.plan.elements if e.name == target), None)
    held = element.addresses if element else () if target == SWITCH else lab.pods.get(target).addresses
    if not held:
        raise FieldError("B", f"{target} has no address")
    first = {":" in address: address for address in reversed(held)}
    return tuple(first[family] for family in (True, False) if family in first)


def _ping_one(host: Host, address: str) -> Answer:
    try:
        said = host.run(["ping", "-n", "-c", "1", "-W", "1", address], timeout=5)
    except LabError:
        return Answer(address, False, None)
    time = said.partition("time=")[2].partition(" ms")[0]
    return Answer(address, True, float(time) if time else None)
