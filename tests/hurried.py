"""`python hurried.py MODULE.NAME=SECONDS … -- FLAGS …`: the agent with other waiting times than everybody's.

For tests of what it does every so often, or after a while: what counts there is the order of things.
"""

import importlib
import sys


def hurry(place: str, seconds: float) -> None:
    module, _, name = place.rpartition(".")
    where = importlib.import_module(module)
    assert isinstance(getattr(where, name), float), f"{place} is no waiting time"
    setattr(where, name, seconds)


if __name__ == "__main__":
    end = sys.argv.index("--")
    for setting in sys.argv[1:end]:
        place, _, given = setting.partition("=")
        hurry(place, float(given))
    sys.argv[:] = ["flock-agent", *sys.argv[end + 1 :]]
    # Last: others have taken over the waiting times of what they import.
    from flock.agent.main import main

    main()
