"""An anonymous bundle: names that no object has are the same in all its files, and the view reads it."""

import asyncio
import json
import re
from pathlib import Path

from flock.cli.bundling import About, anonymous, pack, write
from flock.view.bundle import BundleSource
from flock.view.picture import Picture

ABOUT = About(version="0", at=1.0, origin="node", anonymous=False, nodes=("cobalt17",))
STATUS = {
    "node": "cobalt17",
    "ready": True,
    "podList": [{"namespace": "payroll", "pod": "loki-0", "state": "up", "interface": "flock12ab34cd"}],
    "sessions": [{"peer": "tor-east", "state": "Established", "up": True}],
}
SELECTOR = {"matchExpressions": [{"key": "crew", "operator": "In", "values": ["night-shift"]}]}
FILES = {
    "cobalt17/status.json": json.dumps(STATUS).encode(),
    "cobalt17/happenings.jsonl": b'{"kind": "Removed", "number": 3, "time": 1.0, "pod": "payroll/gone-1"}\n',
    "cobalt17/log.txt": b"removed pod=payroll/gone-1\nrefused pod=warehouse/stock-7 dev lo eth0\n",
    "cobalt17/bird.conf": b"protocol bgp 'bgp_tor-west' {\n  neighbor 192.0.2.1 as 64600;\n}\n",
    "cobalt17/bird.txt": b"bgp_tor-west BGP        ---        up     2026-11-18  Established\n",
    "cobalt17/nft.txt": b'elements = { "flock1" comment "warehouse/stock-7" }\n iifname "lo" accept\n',
    "cobalt17/objects/networkpolicys.json": json.dumps([{"spec": {"podSelector": SELECTOR}}]).encode(),
}


def test_what_only_a_text_names_is_called_the_same_everywhere_and_the_view_reads_it(tmp_path: Path) -> None:
    about, files = anonymous(ABOUT, FILES, key=b"k" * 32)
    texts = {name.partition("/")[2]: content.decode() for name, content in files.items()}
    told = "".join([*files, *texts.values()])
    words = ("cobalt17", "payroll", "loki", "gone-1", "warehouse", "stock", "tor-", "crew", "night", "192.0.2.")
    assert not [word for word in words if word in told]
    (gone,) = re.findall(r"removed pod=(\S+)", texts["log.txt"])
    assert json.loads(texts["happenings.jsonl"])["pod"] == gone
    (stock,) = re.findall(r"refused pod=(\S+)", texts["log.txt"])
    assert f'comment "{stock}"' in texts["nft.txt"] and 'iifname "lo" accept' in texts["nft.txt"]
    (peer,) = re.findall(r"protocol bgp 'bgp_([\w-]+)'", texts["bird.conf"])
    assert texts["bird.txt"].startswith(f"bgp_{peer} BGP") and texts["log.txt"].endswith("dev lo eth0\n")

    write(tmp_path / "b.tar.gz", pack(about, files))
    picture = Picture(origin="bundle", name="b", live=False)
    asyncio.run(BundleSource(tmp_path / "b.tar.gz").run(picture))
    assert picture.nodes == about.nodes == ("node-1",)
    assert json.loads(texts["status.json"])["sessions"][0]["state"] == "Established"
