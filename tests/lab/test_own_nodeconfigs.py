"""An operator's own NodeConfigs, with production's addresses, against each kind of router."""

from pathlib import Path
from typing import Any

import pytest
import yaml
from lab_making import MakeLab

from flock.cli.main import main
from flock.core.errors import FieldError
from flock.lab.fabric import Lab
from flock.lab.hosts import wait_until
from thoroughness import slowly

SETTLE = 30.0


def node_config(name: str, **spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "flock.fritzlab.net/v1alpha1",
        "kind": "NodeConfig",
        "metadata": {"name": name},
        "spec": spec,
    }


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    made = tmp_path / "own"
    made.mkdir()
    return made


@pytest.mark.parametrize("router", ["bird", *slowly("frr", "gobgp")])
def test_password_ttl_security_ipv4_and_link_local_sessions_find_their_routers(
    make_lab: MakeLab, directory: Path, tmp_path: Path, router: str
) -> None:
    secret = tmp_path / "secret"
    secret.write_text("correcthorse\n")
    peers = [
        {"address": "10.0.0.1", "asn": 65000, "passwordFile": str(secret), "ttlSecurity": True, "connectRetry": "1s"},
        {"address": "fe80::a%eth0", "asn": 65001, "families": ["ipv6", "ipv4"], "connectRetry": "1s"},
    ]
    config = node_config(
        "worker-with-a-long-name-17", cidr6=["fd00:1::/64"], cidr4=["10.1.0.0/24"], bgp={"asn": 65010, "peers": peers}
    )
    (directory / "nodes.yaml").write_text(yaml.safe_dump(config))
    lab = make_lab(nodeconfigs=directory, router=router)
    assert wait_until(lambda: "10.1.0.0/24" in lab.router("r1").routes(), timeout=SETTLE)
    assert wait_until(lambda: {"10.1.0.0/24", "fd00:1::/64"} <= set(lab.router("r2").routes()), timeout=SETTLE)


@pytest.mark.slow
def test_ospf_with_bfd_and_authentication_finds_its_routers(make_lab: MakeLab, directory: Path, tmp_path: Path) -> None:
    """Both daemons at once: OSPF takes its time."""
    secret = tmp_path / "secret"
    secret.write_text("staple")
    timers = {"helloInterval": "1s", "deadInterval": "4s", "type": "ptp"}
    link = {"name": "eth0", "bfd": {"interval": "100ms"}, **timers}
    guarded = {**link, "authentication": {"algorithm": "md5", "passwordFile": str(secret)}}
    six = {"families": ["ipv6"], "areas": [{"id": "0.0.0.0", "interfaces": [link]}]}
    four = {"families": ["ipv4"], "areas": [{"id": "0.0.0.0", "interfaces": [guarded]}]}
    configs = [
        node_config("n1", cidr6=["2001:db8:1::/64"], ospf=six),
        node_config("n2", cidr4=["100.64.2.0/24"], ospf=four),
    ]
    (directory / "nodes.yaml").write_text(yaml.safe_dump_all(configs))
    shape = {"topology": "leaf-spine", "nodes": 2, "routers": 1, "settled": False}
    labs = [make_lab(nodeconfigs=directory, router=router, **shape) for router in ("bird", "frr")]
    wanted = {"2001:db8:1::/64", "100.64.2.0/24"}

    def found(lab: Lab) -> bool:
        return wanted <= set(lab.router("r1").routes())

    assert wait_until(lambda: all(map(found, labs)), timeout=SETTLE, pause=0.1)


def test_a_mistake_is_answered_with_file_and_field(directory: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (directory / "nodes.yaml").write_text(yaml.safe_dump(node_config("n1", bgp={"asn": "many"})))
    with pytest.raises(SystemExit) as ended:
        main(["lab", "up", "--plain", "--nodeconfigs", str(directory)])
    assert ended.value.code == 1
    assert f"{directory}/nodes.yaml: spec.bgp.asn" in capsys.readouterr().err


def test_a_directory_that_is_not_there_is_refused(make_lab: MakeLab, tmp_path: Path) -> None:
    with pytest.raises(FieldError, match="not a directory"):
        make_lab(nodeconfigs=tmp_path / "none")
