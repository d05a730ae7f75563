"""A test that fails says what to look at: the agent's words, the node's links, routes and rules."""

import pytest
from looking import addresses_of

from harness import Node
from showing import sections


def test_a_failed_test_shows_agent_links_routes_and_rules(node: Node, request: pytest.FixtureRequest) -> None:
    address = addresses_of(node.pod("a"))[0]
    shown = dict(sections(request.node))
    assert "ready" in shown["The agent's log"]
    assert "ready: True" in shown[f"{node.netns}: what it says of itself"]
    assert address in shown[f"{node.netns}: our routes"]
    assert "table inet flock" in shown[f"{node.netns}: nft list ruleset"]


def test_a_look_that_fails_hides_nothing(fresh: Node, request: pytest.FixtureRequest) -> None:
    shown = dict(sections(request.node))
    assert "could not be asked" in shown[f"{fresh.netns}: what it says of itself"]
    assert "lo" in shown[f"{fresh.netns}: ip addr"]
