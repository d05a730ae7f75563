"""What `flockctl view` holds does not grow with what it has seen."""

import subprocess
import sys

from looping import PATIENCE

# Statuses that come and go, and between each two of them something that stays for an hour.
SEEN = """
import asyncio, os
from pathlib import Path
from flock.view.showing import show

class Busy:
    origin, name, live = "played", "", True

    async def run(self, picture):
        held = lambda: int(Path("/proc/self/statm").read_text().split()[1]) * 4096
        before = held()
        seen = [(bytes(48 << 10), bytearray(600)) for _ in range(500)]
        stays = [kept for _, kept in seen]
        del seen
        print(held() - before, flush=True)
        os._exit(0)

asyncio.run(show(Busy(), ready=lambda address: None))
"""


def test_statuses_that_come_and_go_leave_no_holes_between_what_stays() -> None:
    command = [sys.executable, "-c", SEEN]
    seen = subprocess.run(command, stdout=subprocess.PIPE, text=True, timeout=3 * PATIENCE, check=False)
    assert int(seen.stdout) < 4 << 20, "of 24 MiB that are not needed any more"
