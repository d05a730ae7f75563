"""TLS is there for an API server, and takes no memory of a node that has none."""

from pathlib import Path

from clustered import clustered

from harness import Node


def has_tls(node: Node) -> bool:
    assert node.agent is not None
    return "libcrypto" in Path(f"/proc/{node.agent.pid}/maps").read_text()


def test_an_agent_that_reads_manifests_has_no_tls(node: Node) -> None:
    node.pod("web")
    assert not has_tls(node)


def test_an_agent_with_an_api_server_has_it(fresh: Node) -> None:
    with clustered(fresh) as cluster:
        cluster.configure()
        cluster.start()
        assert has_tls(fresh)
