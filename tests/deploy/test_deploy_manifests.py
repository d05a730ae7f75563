"""The plain manifests: no more rights than are used, no privileged container, one image, paths that fit together."""

import asyncio
import re
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

import flock
from flock.agent.flags import parse as parse_agent
from flock.cli.installer import parse as parse_installer
from flock.core.kinds import ALL, CLUSTER_PODS, ENDPOINT_SLICES, SERVICES, Extent
from flock.edge.bird import room
from flock.edge.cache import Cache
from flock.edge.kube.client import ApiError, KubeClient
from flock.edge.kube.feeder import KubeFeeder
from flock.edge.kube.writer import KubeWriter
from flock.edge.supervising import Supervisor

DEPLOY = Path(__file__).parent.parent.parent / "deploy"
NAMESPACE = "flock-system"


def documents(*names: str) -> list[dict[str, Any]]:
    return [document for name in names for document in yaml.safe_load_all((DEPLOY / name).read_text())]


INSTALLATION = yaml.safe_load((DEPLOY / "kustomization.yaml").read_text())["resources"]
OBJECTS = documents(*INSTALLATION)
DAEMON_SETS = {o["metadata"]["name"]: o for o in (*OBJECTS, *documents("uninstall.yaml")) if o["kind"] == "DaemonSet"}


def pod(name: str) -> dict[str, Any]:
    spec: dict[str, Any] = DAEMON_SETS[name]["spec"]["template"]["spec"]
    return spec


def containers(name: str) -> dict[str, dict[str, Any]]:
    return {c["name"]: c for c in (*pod(name)["initContainers"], *pod(name)["containers"])}


def host_paths(name: str) -> dict[str, str]:
    return {v["name"]: v["hostPath"]["path"] for v in pod(name)["volumes"] if "hostPath" in v}


def mounts(container: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {mount["mountPath"]: mount for mount in container["volumeMounts"]}


# --- rights -------------------------------------------------------------------------------------------------


class Recorder(KubeClient):
    """Answers as an empty cluster would, and notes what it was asked, in RBAC's words."""

    def __init__(self) -> None:
        self.used: set[tuple[str, str, str, str]] = set()  # namespace if it is ours, group, resource, verb

    def note(self, path: str, verb: str) -> None:
        found = re.fullmatch(
            r"/(?:api|apis/(?P<group>[^/]+))/[^/]+(?:/namespaces/(?P<namespace>[^/]+))?/(?P<resource>[^/?]+)"
            r"(?:/(?P<name>[^/?]+)(?:/(?P<sub>[^/?]+))?)?(?:\?.*)?",
            path,
        )
        assert found, path
        resource = found["resource"] + (f"/{found['sub']}" if found["sub"] else "")
        verb = "get" if verb == "list" and found["name"] else verb
        own = NAMESPACE if found["namespace"] == NAMESPACE else ""
        self.used.add((own, found["group"] or "", resource, verb))

    async def get(self, path: str) -> bytes:
        self.note(path, "list")
        return b'{"metadata": {"resourceVersion": "1"}, "items": []}'

    async def send(self, method: str, path: str, body: Any, *, content_type: str = "application/json") -> bytes:
        self.note(path, {"POST": "create", "PATCH": "patch"}[method])
        return b"{}"

    @asynccontextmanager
    async def stream(self, path: str, *, read_timeout: float) -> AsyncIterator[AsyncIterator[bytes]]:
        self.note(path, "watch")
        await asyncio.sleep(read_timeout)
        raise ApiError("nothing came")
        yield


async def everything_the_agent_asks(client: Recorder, state_dir: Path, *, services: bool = False) -> None:
    supervisor = Supervisor()
    cache = Cache(node="node1")
    cache.need(CLUSTER_PODS, [Extent("default"), Extent(labels="app=web")])
    if services:
        cache.need(SERVICES, [ALL])
        cache.need(ENDPOINT_SLICES, [Extent("default", "kubernetes.io/service-name=web")])
    feeder = KubeFeeder(cache, client, supervisor, namespace=NAMESPACE, state_dir=state_dir)
    writer = KubeWriter(client, node="node1")
    await feeder.start()
    await feeder.secret("bgp", "tor1")
    await feeder.pod("default", "web", uid="")
    await writer.pod_event(namespace="default", name="web", uid="u", reason="r", message="m")
    await writer.config_event(reason="r", message="m")
    await writer.status({})
    await writer.make_place(node_uid="u")
    for _ in range(50):  # turns of the loop: every list is followed by a watch
        await asyncio.sleep(0)
    await supervisor.close()


def test_the_agent_may_do_what_it_does_and_nothing_else(tmp_path: Path) -> None:
    client = Recorder()
    asyncio.run(everything_the_agent_asks(client, tmp_path))
    assert granted(OBJECTS) == client.used


def test_what_services_need_beyond_that_is_granted_apart(tmp_path: Path) -> None:
    without, client = Recorder(), Recorder()
    asyncio.run(everything_the_agent_asks(without, tmp_path))
    asyncio.run(everything_the_agent_asks(client, tmp_path, services=True))
    apart = list(yaml.safe_load_all((DEPLOY / "services.yaml").read_text()))
    assert granted(apart) == client.used - without.used


def granted(objects: list[dict[str, Any]]) -> set[tuple[str, str, str, str]]:
    return {
        (role["metadata"].get("namespace", ""), group, resource, verb)
        for role in objects
        if role["kind"] in ("Role", "ClusterRole")
        for rule in role["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }


def test_secrets_are_readable_by_name_alone() -> None:
    """One account for all nodes: whoever takes over one reads what any may read."""
    rules = [rule for role in OBJECTS if role["kind"] in ("Role", "ClusterRole") for rule in role["rules"]]
    assert [rule.get("resourceNames") for rule in rules if "secrets" in rule["resources"]] == [["flock-bgp"]]


def test_what_agents_write_is_within_the_admission_policy() -> None:
    """Everything an agent may write at all, of objects that say whose they are."""
    (policy,) = (d["spec"] for d in documents("admission.yaml") if d["kind"] == "ValidatingAdmissionPolicy")
    judged = {
        (group, resource)
        for rule in policy["matchConstraints"]["resourceRules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
    }
    (role,) = (o for o in OBJECTS if o["kind"] == "ClusterRole")
    written = {
        (group, resource)
        for rule in role["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        if not {"get", "list", "watch"}.issuperset(rule["verbs"])
    }
    assert written <= judged
    (match,) = policy["matchConditions"]
    assert f"system:serviceaccount:{NAMESPACE}:flock-agent" in match["expression"]
    assert policy["failurePolicy"] == "Fail"


def test_roles_are_bound_to_the_agent_alone() -> None:
    for binding in (o for o in OBJECTS if o["kind"].endswith("Binding")):
        assert binding["subjects"] == [{"kind": "ServiceAccount", "name": "flock-agent", "namespace": NAMESPACE}]
        assert binding["roleRef"]["name"] == "flock-agent"


@pytest.mark.parametrize("name", DAEMON_SETS)
def test_no_container_is_privileged(name: str) -> None:
    for container in containers(name).values():
        context = container["securityContext"]
        assert not context.get("privileged")
        assert context["readOnlyRootFilesystem"] is True and context["allowPrivilegeEscalation"] is False
        assert context["capabilities"]["drop"] == ["ALL"]
    assert not pod(name).get("hostPID") and not pod(name).get("hostIPC")


def test_capabilities_are_those_that_are_needed() -> None:
    added = {
        (name, container["name"]): container["securityContext"]["capabilities"].get("add", [])
        for name in DAEMON_SETS
        for container in containers(name).values()
    }
    assert {key: caps for key, caps in added.items() if caps} == {
        ("flock-agent", "agent"): ["NET_ADMIN", "SYS_ADMIN"],
        ("flock-bird", "bird"): ["NET_ADMIN", "NET_RAW", "NET_BIND_SERVICE"],
        ("flock-uninstall", "uninstall"): ["NET_ADMIN"],
    }


# --- pods ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["flock-agent", "flock-bird"])
def test_they_run_on_labelled_nodes_whatever_their_state(name: str) -> None:
    spec = pod(name)
    assert spec["nodeSelector"] == {"flock.fritzlab.net/agent": ""}
    assert spec["tolerations"] == [{"operator": "Exists"}]
    assert spec["priorityClassName"] == "system-node-critical"
    assert spec["hostNetwork"] is True
    assert all(container["resources"]["requests"] for container in containers(name).values())


def test_a_node_to_be_cleared_loses_its_agent_and_keeps_its_bird() -> None:
    """Whoever withdraws its prefixes has to be there still."""
    leaving = "flock.fritzlab.net/uninstall"
    assert pod("flock-uninstall")["nodeSelector"] == {leaving: ""}
    required = pod("flock-agent")["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    assert required["nodeSelectorTerms"] == [{"matchExpressions": [{"key": leaving, "operator": "DoesNotExist"}]}]
    assert "affinity" not in pod("flock-bird")


@pytest.mark.parametrize("name", DAEMON_SETS)
def test_memory_is_bounded_and_cpu_is_not(name: str) -> None:
    """What is over its memory ends and comes back; what waits for CPU holds up everybody's pods."""
    for container in containers(name).values():
        assert set(container["resources"]["limits"]) == {"memory"}
        assert set(container["resources"]["requests"]) == {"cpu", "memory"}


def test_all_use_one_image_of_this_version() -> None:
    images = {container["image"] for name in DAEMON_SETS for container in containers(name).values()}
    assert images == {f"localhost/flock:{flock.__version__}"}


def test_an_agent_upgrade_does_not_restart_bird() -> None:
    assert DAEMON_SETS["flock-bird"]["spec"]["updateStrategy"] == {"type": "OnDelete"}
    assert DAEMON_SETS["flock-agent"]["spec"]["updateStrategy"]["type"] == "RollingUpdate"


def test_the_agents_settings_lead_to_what_is_mounted() -> None:
    agent = containers("flock-agent")["agent"]
    env = {entry["name"]: entry.get("value", "node1") for entry in agent["env"]}
    settings = parse_agent([], env)
    have = mounts(agent)
    for path in (settings.state_dir, settings.run_dir, settings.bird_dir, settings.sysctl_dir):
        assert str(path) in have and not have[str(path)].get("readOnly")
    assert have[str(settings.units_dir)]["readOnly"]
    volumes = host_paths("flock-agent")
    # The executable runs on the host, BIRD in another pod: both are told paths as the agent sees them.
    for path, mount in have.items():
        expected = "/proc/sys/net" if mount["name"] == "sysctl" else path
        assert volumes[mount["name"]] == expected
    assert have["/run/netns"]["mountPropagation"] == "HostToContainer"
    for probe, page in (("livenessProbe", "/healthz"), ("readinessProbe", "/readyz")):
        http = agent[probe]["httpGet"]
        assert f"{http['host']}:{http['port']}" == settings.http and http["path"] == page


@pytest.mark.parametrize(("name", "container"), [("flock-agent", "installer"), ("flock-uninstall", "uninstall")])
def test_the_installers_directories_are_the_hosts(name: str, container: str) -> None:
    settings = parse_installer([], {})
    wanted = {str(settings.bin_dir), *(str(path.parent) for path, _ in settings.texts)}
    if name == "flock-uninstall":
        wanted |= {str(path) for path in (settings.conf_dir, settings.run_dir, settings.bird_dir)}
    assert set(mounts(containers(name)[container])) == wanted
    volumes = host_paths(name)
    assert all(volumes[m["name"]] == path for path, m in mounts(containers(name)[container]).items())


def test_the_installer_finds_the_executable_where_the_image_has_it() -> None:
    assert f"/context/flock {parse_installer([], {}).executable}" in (DEPLOY / "Dockerfile").read_text()


def test_bird_and_agent_share_socket_and_file() -> None:
    settings = parse_agent(["--node=node1"], {})
    bird = containers("flock-bird")["bird"]
    control = str(settings.run_dir / "bird.ctl")
    conf = settings.bird_dir / "bird.conf"
    started = [line for line in bird["command"][-1].splitlines() if "exec bird" in line]
    assert len(started) == 2 and all(line.endswith(f" -c {conf} -s {control}") for line in started)
    assert bird["lifecycle"]["preStop"]["exec"]["command"][-1].endswith(f"birdc -s {control} graceful restart")
    assert {str(settings.run_dir), str(settings.bird_dir)} == set(mounts(bird))


def test_bird_sees_its_own_room_and_not_the_agents_socket() -> None:
    settings = parse_agent(["--node=node1"], {})
    path = host_paths("flock-bird")[mounts(containers("flock-bird")["bird"])[str(settings.run_dir)]["name"]]
    assert Path(path) == settings.run_dir / room.ROOM


def test_bird_ends_for_good_only_on_a_node_that_goes_down(tmp_path: Path) -> None:
    """The script that runs before its end, with a birdc that says what it is asked."""
    script: str = containers("flock-bird")["bird"]["lifecycle"]["preStop"]["exec"]["command"][-1]
    (tmp_path / "birdc").write_text('#!/bin/sh\necho "$@"\n')
    (tmp_path / "birdc").chmod(0o755)

    def asked() -> str:
        command = ["sh", "-c", script.replace("/run/flock", str(tmp_path))]
        done = subprocess.run(command, env={"PATH": f"{tmp_path}:/bin"}, capture_output=True, text=True, check=True)
        return done.stdout

    assert asked() == f"-s {tmp_path}/bird.ctl graceful restart\n"
    (tmp_path / room.GOING_DOWN).touch()
    assert asked() == ""


# --- bootstrap ----------------------------------------------------------------------------------------------


def bootstrap_script(directory: Path, source: Path) -> str:
    script: str = containers("flock-bird")["bootstrap"]["command"][-1]
    return script.replace("/etc/flock/bird", str(directory)).replace("/bootstrap/", f"{source}/")


@pytest.fixture
def bootstrap(tmp_path: Path) -> Path:
    (config,) = (o["data"]["bird.conf"] for o in OBJECTS if o["kind"] == "ConfigMap")
    (tmp_path / "source").mkdir()
    (tmp_path / "source" / "bird.conf").write_text(config)
    (tmp_path / "bird").mkdir()
    script = bootstrap_script(tmp_path / "bird", tmp_path / "source")
    (tmp_path / "script").write_text(script)
    return tmp_path


def test_bird_takes_the_bootstrap_file(bootstrap: Path) -> None:
    subprocess.run(["sh", "-e", bootstrap / "script"], check=True)
    assert [path.name for path in (bootstrap / "bird").iterdir()] == ["bird.conf"]
    assert (bootstrap / "bird/bird.conf").stat().st_mode & 0o777 == 0o600
    subprocess.run(["/usr/sbin/bird", "-p", "-c", bootstrap / "bird/bird.conf"], check=True)


def test_a_file_that_is_there_stays(bootstrap: Path) -> None:
    (bootstrap / "bird/bird.conf").write_text("# the agent's\n")
    subprocess.run(["sh", "-e", bootstrap / "script"], check=True)
    assert (bootstrap / "bird/bird.conf").read_text() == "# the agent's\n"


def test_an_earlier_attempt_that_was_cut_short_does_no_harm(bootstrap: Path) -> None:
    (bootstrap / "bird/.bird.conf.bootstrap").write_text("half")
    subprocess.run(["sh", "-e", bootstrap / "script"], check=True)
    assert "protocol device" in (bootstrap / "bird/bird.conf").read_text()
