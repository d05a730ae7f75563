"""A pod that knows a session's discriminator cannot end it: BFD of its node does not hear it."""

import sys
from datetime import datetime, timedelta
from pathlib import Path
from signal import SIGKILL

from fabric_parts import MakeLab, eventually, node_birdc, node_configs, patient, write_configs

from flock.lab.fabric import Lab
from flock.lab.nodes import AGENT

# The discriminator a router answers with is the node's; whoever has seen it, or tries them all, knows it.
_OVERHEAR = """
import socket, struct
with socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM, socket.htons(0x86DD)) as seen:
    seen.settimeout(10)
    while True:
        packet, (_, _, direction, *_) = seen.recvfrom(200)
        if direction == 0 and packet[6] == 17 and struct.unpack_from(">H", packet, 42)[0] == 3784:
            break
print(socket.inet_ntop(socket.AF_INET6, packet[24:40]), struct.unpack_from(">I", packet, 48 + 8)[0])
"""
# As if from the router: the session is administratively down.
_FORGE = """
import socket, struct, sys
with socket.socket(socket.AF_INET6, socket.SOCK_DGRAM) as forger:
    forger.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_UNICAST_HOPS, 255)
    packet = struct.pack(">BBBBIIIII", 1 << 5, 0, 3, 24, 77, int(sys.argv[2]), 1000000, 1000000, 0)
    forger.sendto(packet, (sys.argv[1], 3784))
"""


def sessions(lab: Lab) -> list[tuple[str, str, datetime]]:
    """Each with its state and the time since when it has it."""
    lines = [line.split() for line in node_birdc(lab, "n1", "show bfd sessions").splitlines()]
    known = [line for line in lines if len(line) == 7 and line[2] in ("Up", "Down", "Init", "AdminDown")]
    return [(peer, state, datetime.fromisoformat(f"{day} {time}")) for peer, _, state, day, time, *_ in known]


def alike(these: list[tuple[str, str, datetime]], those: list[tuple[str, str, datetime]]) -> bool:
    """BIRD counts from now on back, and is a millisecond off at times."""
    return len(these) == len(those) and all(
        a[:2] == b[:2] and abs(a[2] - b[2]) < timedelta(seconds=0.1) for a, b in zip(these, those, strict=True)
    )


def test_a_forged_datagram_from_a_pod_does_not_end_a_bfd_session(make_lab: MakeLab, tmp_path: Path) -> None:
    directory = write_configs(tmp_path / "configs", map(patient, node_configs(bfd=True)))
    lab = make_lab(nodes=1, routers=1, router="bird", topology="leaf-spine", nodeconfigs=directory)
    lab.pods.add("forger", node="n1")
    before = eventually(lambda: sessions(lab), lambda seen: bool(seen) and all(s[1] == "Up" for s in seen))
    node, discriminator = lab.host("n1").run([sys.executable, "-c", _OVERHEAR]).split()
    pod = lab.pods.host(lab.pods.get("forger"))

    def forge() -> list[tuple[str, str, datetime]]:
        for _ in range(5):
            pod.run([sys.executable, "-c", _FORGE, node, discriminator])
        return sessions(lab)

    assert alike(forge(), before), "the session has been up all the time"
    lab.host("n1").stop(AGENT, by=SIGKILL)
    lab.host("n1").run(["nft", "delete", "table", "inet", "flock"])
    eventually(forge, lambda seen: not alike(seen, before))  # without the wall it is one datagram that ends it
