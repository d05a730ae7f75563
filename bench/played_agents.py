"""The agents of a played cluster: one process, a socket in a directory for each node, /status.json and /happenings.

    python bench/played_agents.py DIRECTORY NODES PODS RATE

RATE happenings a second over all nodes.  Until it is ended.
"""

import asyncio
import contextlib
import sys
import time
from functools import partial
from pathlib import Path

import msgspec

from played import PlayedCluster

BEAT = 0.05  # seconds between two rounds of happenings
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: %s\r\nConnection: close\r\n\r\n"


class Agents:
    def __init__(self, cluster: PlayedCluster) -> None:
        self._cluster = cluster
        self._readers: dict[str, set[asyncio.StreamWriter]] = {name: set() for name in cluster.nodes}
        self._number = 0

    async def serve(self, node: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            head = await reader.readuntil(b"\r\n\r\n")
            if b" /happenings " in head:
                writer.write(HEAD % b"text/event-stream")
                self._readers[node].add(writer)
                await reader.read()
            else:
                writer.write(HEAD % b"application/json")
                writer.write(msgspec.json.encode(self._cluster.status(node, time.time())))
                await writer.drain()
        self._readers[node].discard(writer)
        writer.close()

    async def play(self, rate: float) -> None:
        due, before = 0.0, time.monotonic()
        while True:
            await asyncio.sleep(BEAT)
            now = time.monotonic()
            due, before = due + (now - before) * rate, now
            for _ in range(int(due)):
                self._tell(*self._cluster.happening(time.time()))
            due -= int(due)

    def _tell(self, node: str, row: dict[str, object]) -> None:
        self._number += 1
        data = msgspec.json.encode(row)
        for writer in self._readers[node]:
            writer.write(b"id: %d\nevent: %s\ndata: %s\n\n" % (self._number, str(row["kind"]).encode(), data))


async def main(directory: str, nodes: str, pods: str, rate: str) -> None:
    cluster = PlayedCluster(nodes=int(nodes), pods=int(pods), began=time.time() - 3600)
    agents = Agents(cluster)
    for name in cluster.nodes:
        await asyncio.start_unix_server(partial(agents.serve, name), Path(directory) / f"{name}.sock")
    print("ready", flush=True)
    await agents.play(float(rate))


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
