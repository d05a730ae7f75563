"""`make demo`: flock on a BGP fabric on this machine, told in chapters.

The demo is a test as well: every chapter checks what it shows, and the exit code is 0 if everything held and nothing
was left behind, whatever happened between.
"""

import argparse
import contextlib
import os
import signal
import subprocess
import sys
import time

from chapters import CHAPTERS, a_fabric, the_end
from stage import BIN, Failed, Stage, bold, indented, say

from flock.core.errors import FlockError
from flock.edge.rpc_client import AgentError


def tell(stage: Stage, *, hold: bool, view: bool) -> None:
    say(bold("flock on a BGP fabric, in network namespaces and a directory that are gone afterwards."))
    say(f"  $ export PATH={BIN}:$PATH")
    for number, chapter in enumerate(CHAPTERS, 1):
        say()
        say(bold(f"{number}. {(chapter.__doc__ or '').strip()}"))
        if (hold or view) and chapter is the_end:
            with contextlib.suppress(EOFError):
                input("  Look around; Enter goes on. ")
        chapter(stage)
        if view and chapter is a_fabric:
            stage.view()


def timeline(stage: Stage) -> None:
    say()
    say(bold("What happened, and for how long anybody noticed"))
    width = max(len(moment.what) for moment in stage.moments)
    for moment in stage.moments:
        say(f"  {moment.at:6.1f} s  {moment.what:{width}}  {moment.measured}")


def failed(stage: Stage, error: Exception) -> None:
    say(f"  ✗ {error}")
    if details := getattr(error, "details", ""):
        indented(details)
    say("  the agents' last lines:")
    indented(stage.logs())


def main() -> int:
    parser = argparse.ArgumentParser(description="flock on a BGP fabric on this machine, told in chapters.")
    parser.add_argument("--hold", action="store_true", help="wait for Enter before the last chapter, to look around")
    parser.add_argument("--view", action="store_true", help="offer the page while it runs, and wait as --hold does")
    arguments = parser.parse_args()
    if os.geteuid() != 0:
        print("demo: needs root, because it makes network namespaces", file=sys.stderr)
        return 2
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    stage = Stage()
    code = 1
    try:
        tell(stage, hold=arguments.hold, view=arguments.view)
        timeline(stage)
        code = 0
    except KeyboardInterrupt:
        say("\ninterrupted; clearing up")
        code = 130
    except (Failed, FlockError, AgentError, subprocess.SubprocessError, OSError) as error:
        failed(stage, error)
    finally:
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.SIG_IGN)  # clearing up is not to be cut short
        stage.clear()
    left = stage.leftovers()
    for item in left:
        say(f"  ✗ left behind: {item}")
    if code == 0 and not left:
        say()
        say(bold(f"Everything held, in {time.monotonic() - stage.started:.1f} s; nothing is left behind."))
    return code or int(bool(left))


if __name__ == "__main__":
    sys.exit(main())
