"""The API server by itself: what the harness promises to tests that list and watch."""

from collections.abc import Iterator

import pytest
from control_plane import ControlPlane, api_server
from places import Failed


@pytest.fixture(scope="module")
def plane() -> Iterator[ControlPlane]:
    with api_server() as plane:
        yield plane


def config_map(name: str) -> dict[str, object]:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": "default"}}


def test_objects_survive_a_killed_api_server(plane: ControlPlane) -> None:
    plane.apply(config_map("kept"))
    plane.kill_api_server()
    assert not plane.ready()
    plane.start_api_server()
    assert plane.get("configmap", "kept")["metadata"]["name"] == "kept"


def test_a_compacted_version_is_gone(plane: ControlPlane) -> None:
    plane.apply(config_map("first"))
    version = plane.get("configmap", "first")["metadata"]["resourceVersion"]
    plane.apply(config_map("second"))
    plane.compact()
    path = f"/api/v1/configmaps?resourceVersion={version}&resourceVersionMatch=Exact"
    with pytest.raises(Failed, match=r"too old|Expired|compacted"):
        plane.kubectl("get", "--raw", path)


def test_a_service_account_may_do_what_its_role_says(plane: ControlPlane) -> None:
    account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "reader", "namespace": "default"}}
    plane.apply(account)
    token_file = plane.place.directory / "token"
    kubeconfig = plane.place.directory / "reader.kubeconfig"
    token_file.write_text(plane.token("reader"))
    plane.kubeconfig_with_token(kubeconfig, token_file=token_file)

    def read() -> str:
        return plane.place.run(plane.bin / "kubectl", f"--kubeconfig={kubeconfig}", "get", "nodes")

    with pytest.raises(Failed, match="forbidden"):
        read()
    plane.kubectl("create", "clusterrole", "reader", "--verb=list", "--resource=nodes")
    plane.kubectl("create", "clusterrolebinding", "reader", "--clusterrole=reader", "--serviceaccount=default:reader")
    read()
