"""Of an object a bundle has what the network goes by."""

from flock.core.telling import told_of

SECRET = "s3cr3t-value"


def test_of_a_pod_neither_environment_nor_command_nor_foreign_annotations() -> None:
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": "a",
            "namespace": "b",
            "labels": {"app": "x"},
            "annotations": {"flock.fritzlab.net/anycast": "2001:db8::1", "example.com/token": SECRET},
            "managedFields": [SECRET],
        },
        "spec": {
            "nodeName": "n1",
            "containers": [
                {"name": "c", "env": [{"name": "P", "value": SECRET}], "args": [SECRET], "ports": [{"name": "http"}]}
            ],
            "initContainers": [{"command": [SECRET]}],
        },
        "status": {"podIPs": [{"ip": "2001:db8::2"}], "containerStatuses": [SECRET]},
    }
    told = told_of(pod)
    assert SECRET not in str(told)
    assert told is not None
    assert told["metadata"]["annotations"] == {"flock.fritzlab.net/anycast": "2001:db8::1"}
    assert told["spec"] == {"nodeName": "n1", "containers": [{"name": "c", "ports": [{"name": "http"}]}]}
    assert told["status"] == {"podIPs": [{"ip": "2001:db8::2"}]}


def test_a_policy_and_a_configuration_are_told_whole() -> None:
    for kind in ("NetworkPolicy", "NodeConfig", "ClusterNetworkPolicy"):
        told = told_of({"kind": kind, "metadata": {"name": "x"}, "spec": {"a": [1]}})
        assert told is not None and told["spec"] == {"a": [1]}


def test_a_secret_or_what_is_not_ours_is_not_told_of() -> None:
    assert told_of({"kind": "Secret", "data": {"a": SECRET}}) is None
    assert told_of({"kind": "ConfigMap", "data": {"a": SECRET}}) is None
    assert told_of({}) is None


def test_a_node_is_told_of_without_the_ids_of_its_machine() -> None:
    info = {"machineID": SECRET, "systemUUID": SECRET, "bootID": SECRET, "kernelVersion": "6.1"}
    told = told_of({"kind": "Node", "metadata": {"name": "n1"}, "status": {"nodeInfo": info}})
    assert told is not None and told["status"] == {"nodeInfo": {"kernelVersion": "6.1"}}
