"""What a failed test shows of the daemons it had: fixtures say whom to ask, `conftest` asks."""

from collections.abc import Callable

import pytest

SAID = pytest.StashKey[list[tuple[str, Callable[[], str]]]]()


def on_failure(request: pytest.FixtureRequest, title: str, said: Callable[[], str]) -> None:
    request.node.stash.setdefault(SAID, []).append((title, said))
