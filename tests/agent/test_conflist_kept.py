"""The runtime's configuration, kept: written, retried, restored, and following the plugins that are chained."""

import base64
import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from harness import FLOCK, Node, eventually

OLD, NEW = ("0.4.0", "1.0.0"), ("0.4.0", "1.0.0", "1.1.0")


class Host:
    """The directories a runtime looks into."""

    def __init__(self, directory: Path) -> None:
        self.conf, self.bin = directory / "net.d", directory / "bin"
        self.bin.mkdir()
        shutil.copy(FLOCK, self.bin / "flock")
        self.file = self.conf / "01-flock.conflist"
        self.flags = ("--cni-conf-dir", str(self.conf), "--cni-bin-dir", str(self.bin))

    def plugin(self, name: str, versions: tuple[str, ...], *, status: str = "exit 0") -> None:
        """As a package puts it there: written beside, then renamed."""
        answer = json.dumps({"cniVersion": "1.0.0", "supportedVersions": versions})
        script = f"#!/bin/sh\n[ $CNI_COMMAND = VERSION ] && exec echo '{answer}'\n{status}\n"
        new = self.bin / f".{name}.new"
        new.write_text(script)
        new.chmod(0o755)
        new.rename(self.bin / name)

    def offers(self) -> tuple[list[str], list[str]]:
        """Versions and plugins; nothing while there is no file."""
        if not self.file.exists():
            return [], []
        conflist: dict[str, Any] = json.loads(self.file.read_text())
        assert (conflist["cniVersion"], conflist["name"]) == ("1.0.0", "flock")
        return conflist["cniVersions"], [plugin["type"] for plugin in conflist["plugins"]]


@pytest.fixture
def host(tmp_path: Path, fresh: Node) -> Host:
    fresh.hurry = {"flock.agent.conflist.RETRY": 0.5, "flock.agent.conflist.SETTLE": 0.1}
    return Host(tmp_path)


def degraded(node: Node) -> str:
    return "; ".join(node.ask("status")["degraded"])


def test_versions_follow_the_plugins_that_are_chained(fresh: Node, host: Host) -> None:
    host.conf.mkdir()
    host.plugin("portmap", OLD)
    fresh.start(*host.flags)
    eventually(lambda: host.offers() == ([*OLD], ["flock", "portmap"]))
    host.plugin("portmap", NEW)
    eventually(lambda: host.offers() == ([*NEW], ["flock", "portmap"]))
    host.plugin("bandwidth", OLD)
    eventually(lambda: host.offers() == ([*OLD], ["flock", "portmap", "bandwidth"]))
    (host.bin / "bandwidth").unlink()
    eventually(lambda: host.offers() == ([*NEW], ["flock", "portmap"]))


def test_a_file_that_cannot_be_written_is_tried_again_and_the_complaint_ends(fresh: Node, host: Host) -> None:
    fresh.start(*host.flags)
    eventually(lambda: "the conflist could not be written" in degraded(fresh))
    assert fresh.is_ready(), "who calls nevertheless is served"
    host.conf.mkdir()
    eventually(host.file.exists)
    eventually(lambda: "conflist" not in degraded(fresh))


def test_a_file_that_somebody_removed_or_changed_is_restored(fresh: Node, host: Host) -> None:
    host.conf.mkdir()
    fresh.start(*host.flags)
    text = eventually(lambda: host.file.exists() and host.file.read_text())
    host.file.unlink()
    eventually(lambda: host.file.exists() and host.file.read_text() == text)
    host.file.write_text("{}")
    eventually(lambda: host.file.read_text() == text)
    eventually(lambda: shutil.rmtree(host.conf, ignore_errors=True) or not host.conf.exists(), what="restored no more")
    eventually(lambda: "conflist" in degraded(fresh))
    host.conf.mkdir()
    eventually(lambda: host.file.exists() and host.file.read_text() == text)


def test_a_file_that_goes_with_the_executable_stays_gone(fresh: Node, host: Host) -> None:
    """So does `flock-installer --uninstall`, the file first."""
    host.conf.mkdir()
    fresh.start(*host.flags)
    eventually(host.file.exists)
    host.file.unlink()
    (host.bin / "flock").unlink()
    with pytest.raises(AssertionError, match="not within"):
        eventually(host.file.exists, within=1)
    shutil.copy(FLOCK, host.bin / "flock")
    eventually(host.file.exists, what="installed again")


def test_a_chained_plugin_that_fails_status_is_named(fresh: Node, host: Host) -> None:
    host.conf.mkdir()
    host.plugin("portmap", NEW, status="""echo '{"code": 50, "msg": "no nft here"}'; exit 1""")
    fresh.start(*host.flags)
    eventually(lambda: "portmap fails STATUS: no nft here (code 50)" in degraded(fresh))
    host.plugin("portmap", NEW)
    eventually(lambda: "portmap" not in degraded(fresh))


def test_a_chained_plugin_that_no_runtime_asks_for_status_is_not_asked(fresh: Node, host: Host) -> None:
    host.conf.mkdir()
    host.plugin("portmap", OLD, status="exit 1")
    fresh.start(*host.flags)
    eventually(host.file.exists)
    assert "portmap" not in degraded(fresh)


# --- where plugins are ----------------------------------------------------------------------------------------------


def elsewhere(host: Host, directory: Path, name: str) -> None:
    """As Debian has it: plugins in a directory of the distribution, flock in another one."""
    directory.mkdir(exist_ok=True)
    host.plugin(name, NEW)
    (host.bin / name).rename(directory / name)


def attach(node: Node, name: str, path: str, **conf: Any) -> None:
    """An ADD of a runtime that looks for plugins there."""
    node.namespace(name)
    config = {"cniVersion": "1.0.0", "name": "flock", "type": "flock", **conf}
    request = {"container_id": name, "netns": node.path(name), "ifname": "eth0", "args": "", "path": path}
    data = base64.b64encode(json.dumps(config).encode()).decode()
    assert "error" not in node.rpc({"op": "ADD", **request, "stdin_data": data})


def test_a_plugin_is_chained_from_wherever_every_runtime_looks(fresh: Node, host: Host, tmp_path: Path) -> None:
    host.conf.mkdir()
    elsewhere(host, tmp_path / "usr-lib-cni", "portmap")
    both = f"{host.bin}:{tmp_path / 'usr-lib-cni'}"
    fresh.start(*host.flags)
    eventually(lambda: host.offers() == ([*NEW], ["flock"]))
    attach(fresh, "a", both)
    eventually(lambda: host.offers() == ([*NEW], ["flock", "portmap"]), what="the runtime said where it looks")
    fresh.kill()
    fresh.start(*host.flags)
    attach(fresh, "b", both)
    assert host.offers() == ([*NEW], ["flock", "portmap"]), "over a restart"
    (tmp_path / "usr-lib-cni" / "portmap").unlink()
    eventually(lambda: host.offers() == ([*NEW], ["flock"]), what="its removal is noticed there too")
    elsewhere(host, tmp_path / "usr-lib-cni", "portmap")
    eventually(lambda: host.offers() == ([*NEW], ["flock", "portmap"]))
    attach(fresh, "c", str(host.bin))
    eventually(lambda: host.offers() == ([*NEW], ["flock"]), what="a runtime that would not find it")


def test_ports_that_nobody_maps_are_said(fresh: Node, host: Host) -> None:
    host.conf.mkdir()
    fresh.start(*host.flags)
    eventually(host.file.exists)
    [flock] = json.loads(host.file.read_text())["plugins"]
    assert flock["capabilities"]["portMappings"], "so that the runtime tells of them"
    ports = [{"hostPort": 8080, "containerPort": 80, "protocol": "tcp"}]
    attach(fresh, "a", str(host.bin), runtimeConfig={"portMappings": ports})
    assert "port mappings are ignored, for no portmap is chained pod=default/a" in fresh.log_text()
