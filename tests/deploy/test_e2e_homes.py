"""What a killed run of the cluster's tests left behind is removed by the next one, whose processes start at once."""

import os
import subprocess
import sys
from pathlib import Path

E2E = Path(__file__).parents[2] / "e2e"
ENTER = "from homes import new_home\nwith new_home() as home: print(home)"
WORKERS = 4


def test_workers_that_start_at_once_do_not_stumble_over_each_other_removing_leftovers(tmp_path: Path) -> None:
    ended = subprocess.Popen(["true"])
    ended.wait()
    left = tmp_path / f"flock-e2e-{ended.pid}"
    for router in ("r1", "r2", "client"):
        (left / "network" / router).mkdir(parents=True)
        for n in range(1000):
            (left / "network" / router / f"{n}.log").touch()
    environment = os.environ | {"TMPDIR": str(tmp_path), "PYTHONPATH": str(E2E)}
    arguments = [sys.executable, "-c", ENTER]
    workers = [subprocess.Popen(arguments, env=environment, stdout=-1, stderr=-1, text=True) for _ in range(WORKERS)]
    said = [worker.communicate(timeout=60) for worker in workers]
    assert [error for _, error in said if error] == []
    assert len({home for home, _ in said}) == WORKERS
    assert not list(tmp_path.glob("flock-e2e-*")), "neither the leftovers nor a home"
