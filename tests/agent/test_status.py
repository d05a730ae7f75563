"""STATUS, asked every few seconds: what it answers while the agent restarts, and what it writes into the log."""

from looking import failure

from harness import NODE_CONFIG, Node, eventually


def lines(node: Node) -> list[str]:
    return [line for line in node.log.read_text().splitlines() if "op=STATUS" in line]


def test_a_status_that_says_the_same_again_is_no_line_of_the_log(fresh: Node) -> None:
    (fresh.manifests / "nodeconfig.json").unlink()
    fresh.start(wait=False)
    eventually(lambda: failure(fresh, "STATUS").msg.startswith("no NodeConfig"), what="the last reason of a start")
    before = eventually(lambda: len(lines(fresh)))
    for _ in range(5):
        assert failure(fresh, "STATUS").code == 50
    assert len(lines(fresh)) == before
    fresh.write("nodeconfig", NODE_CONFIG)
    eventually(fresh.is_ready)
    for _ in range(5):
        fresh.cni("STATUS")
    eventually(lambda: len(lines(fresh)) == before + 1)
    assert "code=0" in lines(fresh)[-1]
