"""What a failed test shows of the daemons and kernels it had: fixtures say whom to ask, `conftest` asks.

Nodes of `harness` are known without being told of.  A look that fails must not hide the failure: it says so instead.
"""

from collections.abc import Callable, Iterator

import pytest

from flock.lab.fabric import Lab
from harness import ALIVE, Node

SAID = pytest.StashKey[list[tuple[str, Callable[[], str]]]]()
LINES = 60  # of each look
OURS = (133, 134)  # protocol numbers


def on_failure(request: pytest.FixtureRequest, title: str, said: Callable[[], str]) -> None:
    request.node.stash.setdefault(SAID, []).append((title, said))


def sections(item: pytest.Item) -> Iterator[tuple[str, str]]:
    for title, said in item.stash.get(SAID, []):
        yield title, _tried(said)
    for node in ALIVE:
        for title, look in looks_at(node).items():
            yield f"{node.netns}: {title}", _tried(look)


def _tried(look: Callable[[], str]) -> str:
    try:
        return "\n".join(look().splitlines()[-LINES:])
    except Exception as error:
        return f"could not be asked: {error!r}"


def looks_at(node: Node) -> dict[str, Callable[[], str]]:
    return {
        "what it says of itself": lambda: "\n".join(f"{key}: {value}" for key, value in node.ask("status").items()),
        "ip addr": lambda: node.execute("ip", "-br", "addr").stdout,
        "our routes": lambda: "".join(
            node.ip(f, "route", "show", "proto", p) for f in ("-6", "-4") for p in (133, 134)
        ),
        "nft list ruleset": lambda: node.execute("nft", "-t", "list", "ruleset").stdout,
    }


def on_failure_of_lab(request: pytest.FixtureRequest, lab: Lab) -> None:
    """What the agents and BIRDs of a lab said last, and their sessions."""
    for node in lab.plan.role("node"):
        for role in ("agent", "bird"):
            on_failure(request, f"{role} of {node.name}", lambda n=node.name, r=role: _last(lab, n, r))
        on_failure(request, f"sessions of {node.name}", lambda n=node.name: _sessions(lab, n))


def _last(lab: Lab, node: str, role: str) -> str:
    said = lab.host(node).log(role, lines=2000).splitlines()
    return "\n".join([line for line in said if " rpc call " not in line][-25:])


def _sessions(lab: Lab, node: str) -> str:
    control = lab.node(node).run_dir / "bird.ctl"
    return lab.host(node).run(["birdc", "-s", str(control), "show", "protocols"])
