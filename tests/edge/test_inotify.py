"""The kernel's notices about a directory: what is said where it has no more of them to give."""

import subprocess
import sys

PROGRAM = """
import resource, sys
from flock.edge.inotify import Inotify
resource.setrlimit(resource.RLIMIT_NOFILE, (3, 3))  # as good as a user with all the instances it may have
try:
    Inotify()
except OSError as error:
    print(error.strerror)
"""


def test_the_limit_that_is_meant_is_named() -> None:
    """Who reads `Too many open files` looks for files."""
    said = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True).stdout
    assert said == "Too many open files (or sysctl fs.inotify.max_user_instances)\n"
