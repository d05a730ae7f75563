"""A client that asks all the time and writes down how each request went.

    requesting.py ADDRESS PORT             an HTTP request after the other, each by a connection of its own
    requesting.py --hold PORT ADDRESS...   one connection to each echo server, a line on each every PAUSE seconds

Ends when its standard input does, and then prints one JSON document: requests as [begin, end, problem], or for held
connections what became of each.
"""

import asyncio
import json
import sys
import time

PAUSE = 0.02
PATIENCE = 5.0  # seconds for one answer


async def ended() -> None:
    loop = asyncio.get_running_loop()
    gone = asyncio.Event()
    loop.add_reader(sys.stdin.fileno(), gone.set)  # nothing is ever written to it: readable means closed
    await gone.wait()
    loop.remove_reader(sys.stdin.fileno())


async def request(address: str, port: int) -> None:
    async with asyncio.timeout(PATIENCE):
        reader, writer = await asyncio.open_connection(address, port)
        try:
            writer.write(b"GET / HTTP/1.0\r\n\r\n")
            answer = await reader.read()
        finally:
            writer.transport.abort()
    if b" 200 OK\r\n" not in answer:
        raise OSError(f"the answer was {answer[:40]!r}")


async def ask(address: str, port: int, requests: list[tuple[float, float, str]]) -> None:
    while True:
        begin, problem = time.time(), ""
        try:
            await request(address, port)
        except (OSError, TimeoutError) as error:
            problem = repr(error)
        requests.append((begin, time.time(), problem))
        await asyncio.sleep(PAUSE)


async def hold(address: str, port: int, fates: dict[str, str]) -> None:
    """Lines go and come back in order on one connection until it breaks, if ever."""
    number = 0
    try:
        reader, writer = await asyncio.open_connection(address, port)
        while True:
            number += 1
            writer.write(f"{number}\n".encode())
            async with asyncio.timeout(PATIENCE):
                line = await reader.readline()
            if line != f"{number}\n".encode():
                raise OSError(f"sent line {number}, got {line!r}")
            fates[address] = ""
            await asyncio.sleep(PAUSE * 10)
    except (OSError, TimeoutError) as error:
        fates[address] = f"after {number} lines: {error!r}"


async def main(arguments: list[str]) -> None:
    requests: list[tuple[float, float, str]] = []
    fates: dict[str, str] = {}
    if arguments[0] == "--hold":
        port, addresses = int(arguments[1]), arguments[2:]
        tasks = [asyncio.create_task(hold(address, port, fates)) for address in addresses]
    else:
        tasks = [asyncio.create_task(ask(arguments[0], int(arguments[1]), requests))]
    await ended()
    for task in tasks:
        task.cancel()
    print(json.dumps(fates if arguments[0] == "--hold" else requests))


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1:]))
