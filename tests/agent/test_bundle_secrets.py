"""Whatever the passwords of a node are, none of them is in its bundle: real files, and the archive as it is."""

import base64
import io
import json
import os
import tarfile
import tempfile
import time
from pathlib import Path

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from flock.cli import bundling, nodeparts
from flock.cli.bundle import packed_by
from flock.cli.nodeparts import Where, gathered
from flock.core.birdconf.text import password
from thoroughness import examples

CONF = """protocol bgp tor1 {{
  neighbor 2001:db8::1 as 64600;
  password {0};
  bfd on;
}}
protocol ospf v2 {{ interface "eth1" {{
  authentication cryptographic;
  password {1} {{ id 1; algorithm hmac sha256; }};
}}; }}
"""
printable = st.text(st.characters(min_codepoint=32, max_codepoint=126, exclude_characters='"'), min_size=8, max_size=70)
anything = st.text(st.characters(exclude_categories=["Cs", "Cc", "Zl", "Zp"]), min_size=8, max_size=40)


def written(directory: Path, *, bgp: str, ospf: str, in_file: str, in_secret: str) -> Where:
    """A node's files, with its passwords wherever they are kept, and in a log that somebody was careless with."""
    conf = CONF.format(password(bgp, field="x", longest=80), password(ospf, field="x", longest=128))
    (directory / "bird.conf").write_text(conf)
    (directory / "tor1").write_text(f"{in_file}\n")
    manifests = directory / "manifests"
    manifests.mkdir()
    spec = {"bgp": {"asn": 1, "peers": [{"name": "tor1", "passwordFile": str(directory / "tor1")}]}}
    config = {"apiVersion": "flock.fritzlab.net/v1alpha1", "kind": "NodeConfig", "metadata": {"name": "n1"}}
    secret = {"kind": "Secret", "data": {"x": base64.b64encode(in_secret.encode()).decode()}}
    (manifests / "all.yaml").write_text(yaml.safe_dump_all([config | {"spec": spec}, secret]))
    every = (bgp, ospf, in_file, in_secret)
    said = [f"x {each} y\nz {json.dumps({'said': each})} {each!r}\n" for each in every]
    said += [f"auth {base64.b64encode(f'admin:{each}'.encode()).decode()}\n" for each in every]
    (directory / "agent.log").write_text("".join(said))
    return Where(
        run_dir=directory,
        bird_dir=directory,
        http="127.0.0.1:1",
        logs=(directory / "agent.log",),
        manifests=manifests,
    )


def archive(where: Where) -> dict[str, str]:
    node, parts = gathered(where)
    about = bundling.About(version="0", at=time.time(), origin="node", anonymous=False, nodes=(node,))
    with tarfile.open(fileobj=io.BytesIO(bundling.pack(about, parts))) as packed:
        return {m.name: packed.extractfile(m).read().decode() for m in packed}  # type: ignore[union-attr]


def texts(**secrets: str) -> str:
    with tempfile.TemporaryDirectory() as directory:
        return "".join(archive(written(Path(directory), **secrets)).values())


@pytest.fixture(autouse=True)
def nothing_of_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither its links nor its rules: they are the same for each password, and take their time."""
    for part in ("links_text", "routes_text", "_versions", "_run"):
        monkeypatch.setattr(nodeparts, part, lambda *_: "")


@settings(max_examples=examples(300), deadline=None)
@given(printable, printable, anything, anything)
def test_whatever_the_passwords_are_none_of_them_is_in_the_archive(
    bgp: str, ospf: str, in_file: str, in_secret: str
) -> None:
    bgp, ospf, in_file, in_secret = (f"q{each.strip()}Z" for each in (bgp, ospf, in_file, in_secret))
    told = texts(bgp=bgp, ospf=ospf, in_file=in_file, in_secret=in_secret)
    anyway = texts(bgp="1", ospf="2", in_file="3", in_secret="4")
    for secret in (bgp, ospf, in_file, in_secret):
        for form in (secret, json.dumps(secret)[1:-1], base64.b64encode(secret.encode()).decode()[:-4]):
            parts = {form[at : at + 9] for at in range(len(form) - 8)}
            assert not {part for part in parts if part in told and part not in anyway}
    for line in ("neighbor 2001:db8::1 as 64600;", "bfd on;", "algorithm hmac sha256"):
        assert line in told or any(secret in line for secret in (bgp, ospf, in_file, in_secret))


def test_after_a_password_that_ends_in_a_backslash_the_next_one_is_known_too(tmp_path: Path) -> None:
    where = written(tmp_path, bgp="ends-so\\", ospf="the-next-one", in_file="Third-one", in_secret="Fourth-one")
    told = "".join(archive(where).values())
    assert not [each for each in ("ends-so", "the-next", "Third-one", "Fourth-one") if each in told]
    assert told.count('password "[secret]"') == 2


def test_files_that_are_no_text_and_no_files_are_no_end_of_the_bundle(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    where = written(tmp_path, bgp="Password-1", ospf="Password-2", in_file="x", in_secret="Password-4")
    (tmp_path / "tor1").unlink()
    os.mkfifo(tmp_path / "tor1")
    with (tmp_path / "bird.conf").open("ab") as conf:
        conf.write(b"# \xff\xfe\n")
    monkeypatch.setitem(os.environb, b"BGP_TOKEN", b"To\xffken-five")
    with (tmp_path / "agent.log").open("ab") as log:
        log.write(b"x \xff\xfe Password-1 To\xffken-five\n")
    told = "".join(archive(where).values())
    assert "Password-" not in told and "password" in told and "ken-five" not in told


def test_half_a_line_at_the_beginning_of_a_log_is_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nodeparts, "LONGEST", 60)
    where = written(tmp_path, bgp="Password-1", ospf="Password-2", in_file="Password-3", in_secret="Password-4")
    (tmp_path / "agent.log").write_text(f"password: some-old-words that-nobody-knows\n{'x' * 10}\n")
    (log,) = (text for name, text in archive(where).items() if name.endswith("log.txt"))
    assert log == "--- agent.log\nxxxxxxxxxx\n"


def test_the_token_of_a_kubeconfig_and_a_proxys_password_are_known(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    user = {"token": "Opaque-Token", "client-key-data": "QUJDREVGR0hJSg=="}
    (tmp_path / "kubeconfig").write_text(yaml.safe_dump({"users": [{"name": "x", "user": user}, 7], "clusters": None}))
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "kubeconfig"))
    monkeypatch.setenv("https_proxy", "http://me:Proxy-Word@proxy:3128")
    where = written(tmp_path, bgp="Password-1", ospf="Password-2", in_file="Password-3", in_secret="Password-4")
    (tmp_path / "agent.log").write_text("a Opaque-Token b QUJDREVGR0hJSg== c Proxy-Word d\n")
    (log,) = (text for name, text in archive(where).items() if name.endswith("log.txt"))
    assert log == "--- agent.log\na [secret] b [secret] c [secret] d\n"


def test_what_a_node_says_instead_of_a_bundle_is_looked_through_too() -> None:
    files = packed_by({"n1": ["sh", "-c", "echo 'refused: Authorization: Bearer abc.def' >&2; exit 1"]})
    assert files == {"n1/notes.txt": b"nothing could be gathered: refused: Authorization: Bearer [secret]\n"}
