"""The Helm chart is the plain manifests with some words taken from values.

Helm itself is not among Debian's packages: Go's template engine, which Helm uses, stands in where Go is installed (the
real-cluster tests install it)."""

import copy
import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from structural import complaints

DEPLOY = Path(__file__).parent.parent.parent / "deploy"
CHART = DEPLOY / "helm" / "flock"
RENDERER = Path(__file__).with_name("render_chart.go")
GO = shutil.which("go", path="/usr/local/go/bin:/usr/lib/go/bin:/usr/lib/go-1.19/bin:/usr/bin")
SCHEMA = json.loads((CHART / "values.schema.json").read_text())
VALUES = yaml.safe_load((CHART / "values.yaml").read_text())
META = yaml.safe_load((CHART / "Chart.yaml").read_text())

needs_go = pytest.mark.skipif(GO is None, reason="Go renders the templates and is not installed")


def render(tmp_path: Path, **changed: Any) -> list[dict[str, Any]]:
    values = copy.deepcopy(VALUES)
    for path, value in changed.items():
        holder = values
        *sections, key = path.split("__")
        for section in sections:
            holder = holder[section]
        holder[key] = value
    assert list(complaints(SCHEMA, values)) == []
    given = {"Values": values, "Release": {"Namespace": "flock-system"}, "Chart": {"AppVersion": META["appVersion"]}}
    env = {"GO111MODULE": "off", "GOCACHE": str(tmp_path / "cache"), "HOME": str(tmp_path), "PATH": "/usr/bin:/bin"}
    command = [GO or "go", "run", RENDERER, CHART]
    run = subprocess.run(command, input=json.dumps(given), env=env, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    return [document for document in yaml.safe_load_all(run.stdout) if document]


def by_name(documents: list[dict[str, Any]]) -> dict[tuple[str, str], dict[str, Any]]:
    return {(document["kind"], document["metadata"]["name"]): document for document in documents}


def pod(documents: list[dict[str, Any]], name: str) -> Any:
    return by_name(documents)["DaemonSet", name]["spec"]["template"]["spec"]


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("go")


@needs_go
def test_with_its_own_values_it_is_the_plain_manifests(cache: Path) -> None:
    plain: list[dict[str, Any]] = []
    for name in ("rbac.yaml", "bird.yaml", "agent.yaml"):
        plain += yaml.safe_load_all((DEPLOY / name).read_text())
    assert by_name(render(cache)) == by_name(plain)


@needs_go
def test_values_arrive_where_they_belong(cache: Path) -> None:
    documents = render(
        cache,
        image__repository="registry.example/flock",
        image__tag="2.0",
        bird__image="registry.example/bird:1",
        imagePullSecrets=[{"name": "pull"}],
        nodeSelector={"rack": "1"},
        cni__binDir="/usr/libexec/cni",
        agent__apiserver="https://[2001:db8::1]:6443",
        agent__listen="[::]",
        agent__port=9999,
        agent__maxUnavailable="10%",
    )
    agent, bird = pod(documents, "flock-agent"), pod(documents, "flock-bird")
    env = {entry["name"]: entry.get("value") for entry in agent["containers"][0]["env"]}
    assert {c["image"] for c in (*agent["initContainers"], *agent["containers"])} == {"registry.example/flock:2.0"}
    assert {c["image"] for c in (*bird["initContainers"], *bird["containers"])} == {"registry.example/bird:1"}
    assert agent["imagePullSecrets"] == bird["imagePullSecrets"] == [{"name": "pull"}]
    assert agent["nodeSelector"] == bird["nodeSelector"] == {"rack": "1"}
    assert env["FLOCK_HTTP"] == "[::]:9999" and env["FLOCK_APISERVER"] == "https://[2001:db8::1]:6443"
    assert agent["containers"][0]["readinessProbe"]["httpGet"]["port"] == 9999
    assert {"name": "cni-bin", "hostPath": {"path": "/usr/libexec/cni", "type": "DirectoryOrCreate"}} in agent[
        "volumes"
    ]
    update = by_name(documents)["DaemonSet", "flock-agent"]["spec"]["updateStrategy"]
    assert update["rollingUpdate"] == {"maxUnavailable": "10%"}


@needs_go
def test_the_admission_policy_is_an_option(cache: Path) -> None:
    assert not any(kind.startswith("Validating") for kind, _ in by_name(render(cache)))
    plain = by_name(list(yaml.safe_load_all((DEPLOY / "admission.yaml").read_text())))
    rendered = by_name(render(cache, admissionPolicy=True))
    assert {key: rendered[key] for key in plain} == plain


@needs_go
def test_metrics_for_a_scraper_elsewhere_are_at_the_nodes_address_and_found(cache: Path) -> None:
    everything = {f"metrics__{name}": True for name in ("enabled", "annotations", "podMonitor", "rules")}
    documents = by_name(render(cache, metrics__port=9999, **everything))
    template = documents["DaemonSet", "flock-agent"]["spec"]["template"]
    agent = template["spec"]["containers"][0]
    env = {entry["name"]: entry.get("value") for entry in agent["env"]}
    assert env["FLOCK_METRICS"] == "$(HOST_IP):9999" and env["FLOCK_HTTP"] == "127.0.0.1:9465"
    assert list(env).index("HOST_IP") < list(env).index("FLOCK_METRICS"), "only what stands before is put in"
    assert template["metadata"]["annotations"]["prometheus.io/port"] == "9999"
    (endpoint,) = documents["PodMonitor", "flock-agent"]["spec"]["podMetricsEndpoints"]
    assert agent["ports"] == [{"name": endpoint["port"], "containerPort": 9999, "hostPort": 9999}]
    rules = yaml.safe_load((DEPLOY / "monitoring" / "alerts.yaml").read_text())
    assert documents["PrometheusRule", "flock"]["spec"] == rules


def test_its_alerts_are_the_plain_ones() -> None:
    plain = DEPLOY / "monitoring" / "alerts.yaml"
    assert (CHART / "files" / "alerts.yaml").read_text() == plain.read_text(), f"copy {plain} there"


@needs_go
def test_without_drop_ins_nothing_of_etc_is_mounted_for_the_installer(cache: Path) -> None:
    agent = pod(render(cache, installer__dropIns=False), "flock-agent")
    installer = agent["initContainers"][0]
    assert [mount["name"] for mount in installer["volumeMounts"]] == ["cni-bin"]
    assert {volume["name"] for volume in agent["volumes"]}.isdisjoint({"networkd", "networkmanager", "rt-protos"})
    assert len(installer["args"]) == 4 and all(arg.endswith("=") for arg in installer["args"])


def test_its_values_fit_the_schema() -> None:
    assert list(complaints(SCHEMA, VALUES)) == []


@pytest.mark.parametrize(
    "wrong",
    [
        {"images": {}},
        {"agent": {"listen": "127.0.0.1", "port": 1, "secrets": []}},  # to RBAC no names are all names
        {"image": {"repository": ""}},
        {"image": {"repository": "x", "tag": 2}},
        {"cni": {"binDir": "opt", "confDir": "/etc"}},
        {"agent": {"listen": "127.0.0.1", "port": 0}},
        {"agent": {"listen": "127.0.0.1", "port": 1, "logLevel": "loud"}},
        {"agent": {"listen": "127.0.0.1", "port": 1, "maxUnavailable": "0%"}},
        {"agent": {"listen": "127.0.0.1", "port": 1, "apiserver": "10.0.0.1:6443"}},
        {"metrics": {"enabled": False, "podMonitor": True}},  # scrapers would be led to where nobody listens
        {"metrics": {"enabled": False, "annotations": True}},
        {"metrics": {"podMonitor": True}},
    ],
)
def test_wrong_values_do_not(wrong: dict[str, Any]) -> None:
    assert list(complaints(SCHEMA, wrong)) != []


@pytest.mark.parametrize(
    "metrics",
    [{"enabled": True, "podMonitor": True, "annotations": True}, {"enabled": False, "rules": True}, {"port": 9999}],
)
def test_alerts_alone_and_scrapers_with_something_to_scrape_do(metrics: dict[str, Any]) -> None:
    assert list(complaints(SCHEMA, {"metrics": metrics})) == []


def test_chart_and_package_are_of_one_version() -> None:
    import flock

    assert META["appVersion"] == META["version"] == flock.__version__
