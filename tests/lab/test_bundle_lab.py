"""`flockctl bundle`: all there is to know, nothing that is secret, and with other names nobody's."""

import asyncio
import base64
import json
import os
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from lab_making import new_name, remove

from flock.lab.fabric import Lab
from flock.lab.home import write_object
from flock.view.bundle import BundleSource
from flock.view.picture import Picture

FLOCKCTL = str(Path(sys.executable).with_name("flockctl"))
NODE, PEER, NAMESPACE, POD = "cobalt17", "tor-east", "payroll", "ledger-0"
PASSWORD, IN_SECRET, IN_ENV, IN_LOG, IN_NOTE = (
    "Bgp-Pw_81x",
    "Secret-Val_77q",
    "Env-Tok_55z",
    "Log-Pw_33k",
    "Note-Tok_22m",
)
SECRETS = (PASSWORD, IN_SECRET, IN_ENV, IN_LOG, IN_NOTE)
CIDR6, ANYCAST = "2001:db8:77::/64", "2001:db8:53::53"


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """One node with a password towards its router, and secrets wherever somebody may leave one."""
    directory = tmp_path_factory.mktemp("production")
    (directory / "tor").write_text(f"{PASSWORD}\n")
    peer = {"name": PEER, "address": "2001:db8:ffff::1", "asn": 64600, "passwordFile": str(directory / "tor")}
    spec = {
        "cidr6": [CIDR6],
        "cidr4": ["192.0.2.0/26"],
        "bgp": {"asn": 64601, "peers": [peer]},
        "anycast": {"allowed": [{"prefixes": ["2001:db8:53::/64"]}]},
    }
    config = {
        "apiVersion": "flock.fritzlab.net/v1alpha1",
        "kind": "NodeConfig",
        "metadata": {"name": NODE},
        "spec": spec,
    }
    configs = directory / "configs"
    configs.mkdir()
    (configs / "node.json").write_text(json.dumps(config))
    name = new_name()
    try:
        made = Lab.up(name=name, nodeconfigs=configs)
        made.wait()
        hidden = {"example.com/token": IN_NOTE, "note": f"password={IN_NOTE}", "flock.fritzlab.net/anycast": ANYCAST}
        made.pods.add(POD, node=NODE, namespace=NAMESPACE, annotations=hidden, labels={"team": "finance"}, ready=True)
        made.pods.add("loki-0", node=NODE, namespace=NAMESPACE)
        data = {"password": base64.b64encode(IN_SECRET.encode()).decode()}
        metadata = {"name": "bgp", "namespace": "flock-system"}
        secret = {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": metadata,
            "data": data,
            "stringData": {"x": IN_SECRET},
        }
        write_object(made.home.manifests, "zz-secret", secret)
        with (made.home.of(NODE) / "agent.log").open("a") as log:
            log.write(
                "removed pod=warehouse/stocktaking-7 of a node that is gone\n"
                f'x Authorization: Bearer {IN_LOG}\npassword="{IN_LOG}" to={NODE}\n{PASSWORD} {IN_ENV} {IN_SECRET}\n'
            )
        yield made
    finally:
        remove(name)


def bundled(lab: Lab, path: Path, *options: str) -> dict[str, str]:
    command = [FLOCKCTL, "bundle", "--lab", lab.name, "-o", str(path), *options]
    environment = os.environ | {"BGP_TOKEN": IN_ENV}
    done = subprocess.run(command, capture_output=True, text=True, timeout=100, env=environment)
    assert done.returncode == 0, done.stderr
    assert path.stat().st_mode & 0o777 == 0o600
    return contents(path)


def contents(path: Path) -> dict[str, str]:
    with tarfile.open(path) as archive:
        return {m.name: archive.extractfile(m).read().decode() for m in archive if m.isreg()}  # type: ignore[union-attr]


def test_a_bundle_has_everything_but_secrets(lab: Lab, tmp_path: Path) -> None:
    files = bundled(lab, tmp_path / "b.tar.gz")
    own = {name.removeprefix(f"{NODE}/") for name in files if name.startswith(f"{NODE}/")}
    assert own >= {"status.json", "happenings.jsonl", "bird.conf", "bird.txt", "links.txt", "routes.txt", "nft.txt"}
    assert own >= {"log.txt", "versions.txt", "check.json", "objects/pods.json", "objects/nodeconfigs.json"}
    assert "notes.txt" not in own
    assert not {name for name, text in files.items() for secret in SECRETS if secret in name + text}
    assert not [name for name, text in files.items() if base64.b64encode(IN_SECRET.encode()).decode() in text]
    about = json.loads(files["bundle.json"])
    assert (about["origin"], about["anonymous"], about["nodes"]) == ("lab", False, [NODE])
    status = json.loads(files[f"{NODE}/status.json"])
    assert POD in {pod["pod"] for pod in status["podList"]} and status["config"]["spec"]["cidr6"] == [CIDR6]
    numbers = [json.loads(line)["number"] for line in files[f"{NODE}/happenings.jsonl"].splitlines()]
    assert numbers == sorted(numbers) and numbers
    assert {json.loads(files[f"routers/{name}.json"])["name"] for name in ("r1", "client")} == {"r1", "client"}
    assert 'password "[secret]"' in files[f"{NODE}/bird.conf"] and ANYCAST in files[f"{NODE}/routes.txt"]


def test_an_anonymous_bundle_has_no_name_and_no_address_of_ours_and_the_view_reads_it(lab: Lab, tmp_path: Path) -> None:
    path = tmp_path / "b.tar.gz"
    files = bundled(lab, path, "--anonymous")
    gone = (NODE, PEER, NAMESPACE, POD, "finance", lab.name, "2001:db8", "192.0.2.", *SECRETS)
    gone += ("loki-0", "warehouse", "stocktaking")
    assert not {(name, word) for name, text in files.items() for word in gone if word in name + text}
    about = json.loads(files["bundle.json"])
    (node,) = about["nodes"]
    assert about["anonymous"] and f"{node}/status.json" in files
    status = json.loads(files[f"{node}/status.json"])
    assert status["node"] == node
    (announced,) = status["announced"]
    assert announced in files[f"{node}/routes.txt"] and announced in files[f"{node}/objects/pods.json"]
    assert status["podList"][0]["pod"] in files[f"{node}/happenings.jsonl"]
    assert status["sessions"][0]["state"] == "Established"
    picture = Picture(origin="bundle", name=path.name, live=False)
    asyncio.run(BundleSource(path).run(picture))
    assert picture.nodes == (node,)


def test_what_cannot_be_had_is_a_note(lab: Lab, tmp_path: Path) -> None:
    node = lab.node(NODE)
    node.host.stop("bird")
    try:
        files = bundled(lab, tmp_path / "b.tar.gz", NODE)
    finally:
        node.start_bird()
    assert files[f"{NODE}/notes.txt"].startswith("bird.txt: BirdError: BIRD does not answer")
    assert f"{NODE}/status.json" in files and f"{NODE}/bird.txt" not in files


def test_without_an_agent_there_is_still_a_bundle(tmp_path: Path) -> None:
    path = tmp_path / "b.tar.gz"
    places = [
        "--manifests",
        str(tmp_path / "none"),
        "--bird-dir",
        str(tmp_path),
        "--http",
        "127.0.0.1:1",
        "--log",
        str(tmp_path / "none"),
    ]
    command = [FLOCKCTL, "--run-dir", str(tmp_path), "bundle", "-o", str(path), *places]
    subprocess.run(command, check=True, timeout=100, capture_output=True)
    ((notes, text),) = ((name, text) for name, text in contents(path).items() if name.endswith("/notes.txt"))
    assert {line.partition(":")[0] for line in text.splitlines()} >= {
        "status.json",
        "happenings.jsonl",
        "bird.txt",
        "log.txt",
    }
    assert notes.replace("notes.txt", "versions.txt") in contents(path)
