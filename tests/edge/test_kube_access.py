"""Whom the agent talks to, and that nobody else hears its token."""

import base64
import contextlib
import json
import ssl
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import pytest

from flock.core.errors import FieldError
from flock.edge.kube.access import from_kubeconfig, in_cluster


@pytest.fixture(scope="session")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("authority")
    command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"]
    command += ["-keyout", "key", "-out", "ca.crt", "-subj", "/CN=test", "-days", "1"]
    subprocess.run(command, cwd=directory, check=True, capture_output=True)
    return directory / "ca.crt"


@pytest.fixture
def account(tmp_path: Path, authority: Path) -> Path:
    (tmp_path / "ca.crt").write_bytes(authority.read_bytes())
    (tmp_path / "token").write_text("secret\n")
    return tmp_path


def kubeconfig(path: Path, server: str, cluster: dict[str, Any] | None = None, **user: Any) -> Path:
    content = {
        "current-context": "x",
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
        "clusters": [{"name": "c", "cluster": {"server": server, **(cluster or {})}}],
        "users": [{"name": "u", "user": user}],
    }
    path.write_text(json.dumps(content))
    return path


def test_a_service_account_speaks_tls_and_shows_its_token(account: Path) -> None:
    access = in_cluster(apiserver="https://192.0.2.1:6443", account=account)
    assert access.tls is not None and access.authorization() == "Bearer secret"


def test_a_service_accounts_token_is_never_sent_in_the_clear(account: Path) -> None:
    with pytest.raises(FieldError, match=r"--apiserver: .*in the clear"):
        in_cluster(apiserver="http://192.0.2.1:8080", account=account)


@pytest.mark.parametrize("user", [{"token": "secret"}, {"tokenFile": "token"}])
def test_a_kubeconfigs_token_is_never_sent_in_the_clear(account: Path, user: dict[str, str]) -> None:
    with pytest.raises(FieldError, match=r"--kubeconfig: .*in the clear"):
        from_kubeconfig(kubeconfig(account / "config", "http://192.0.2.1:8080", **user))
    secure = kubeconfig(account / "config", "https://192.0.2.1:6443", {"insecure-skip-tls-verify": True}, **user)
    with pytest.raises(FieldError, match=r"--apiserver: .*in the clear"):
        from_kubeconfig(secure, apiserver="http://192.0.2.1:8080")


def test_a_server_that_gets_no_token_may_be_spoken_to_in_the_clear(tmp_path: Path) -> None:
    access = from_kubeconfig(kubeconfig(tmp_path / "config", "http://192.0.2.1:8080/prefix"))
    assert (access.host, access.port, access.prefix) == ("192.0.2.1", 8080, "/prefix")
    assert access.tls is None and access.authorization() == ""


def test_a_service_account_without_a_token_may_speak_in_the_clear_and_stays_without(account: Path) -> None:
    (account / "token").unlink()
    access = in_cluster(apiserver="http://192.0.2.1:8080", account=account)
    (account / "token").write_text("secret\n")
    assert access.tls is None and access.authorization() == ""


def test_a_scheme_in_capitals_is_no_way_around_tls(account: Path, authority: Path) -> None:
    data = base64.b64encode(authority.read_bytes()).decode()
    config = kubeconfig(account / "config", "HTTPS://192.0.2.1", {"certificate-authority-data": data}, token="secret")
    access = from_kubeconfig(config)
    assert access.tls is not None and access.port == 443


@pytest.mark.parametrize("server", ["ftp://192.0.2.1", "192.0.2.1:6443", "https://", ""])
def test_an_address_that_is_none_is_refused(tmp_path: Path, server: str) -> None:
    with pytest.raises(FieldError, match=r"--kubeconfig: "):
        from_kubeconfig(kubeconfig(tmp_path / "config", server))


# --- client certificates ---


def inline(**files: Path) -> dict[str, str]:
    return {
        f"{name.replace('_', '-')}-data": base64.b64encode(path.read_bytes()).decode() for name, path in files.items()
    }


def shown_to_a_server(client: ssl.SSLContext, authority: Path) -> Any:
    """The certificate that a server which asks for one gets to see."""
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(authority, authority.with_name("key"))
    server.load_verify_locations(authority)
    server.verify_mode = ssl.CERT_REQUIRED
    there, back = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = [client.wrap_bio(back, there, server_hostname="test"), server.wrap_bio(there, back, server_side=True)]
    for _ in range(4):
        for end in ends:
            with contextlib.suppress(ssl.SSLWantReadError):
                end.do_handshake()
    return ends[1].getpeercert()


@pytest.mark.parametrize("way", ["inline", "files", "both"])
def test_a_client_certificate_is_shown_and_its_key_never_on_a_disk(
    tmp_path: Path, authority: Path, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = authority.with_name("key")
    files = {"client-certificate": str(authority), "client-key": str(key)}
    data = inline(client_certificate=authority, client_key=key)
    user = {"inline": data, "files": files, "both": files | inline(client_key=key)}[way]
    path = kubeconfig(tmp_path / "config", "https://192.0.2.1:6443", {"insecure-skip-tls-verify": True}, **user)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "nowhere"))
    access = from_kubeconfig(path)
    assert access.tls is not None
    assert shown_to_a_server(access.tls, authority)["subject"] == ((("commonName", "test"),),)


@pytest.mark.parametrize("wrong", ["certificate", "key", "base64", "encrypted", "authority", "missing"])
def test_what_is_no_certificate_or_key_is_said_and_not_shown(tmp_path: Path, authority: Path, wrong: str) -> None:
    key = authority.with_name("key")
    user = inline(client_certificate=authority, client_key=key)
    cluster: dict[str, Any] = {"insecure-skip-tls-verify": True}
    locked = tmp_path / "locked"
    if wrong == "certificate":
        user |= inline(client_certificate=key)
    elif wrong == "key":
        user["client-key-data"] = base64.b64encode(b"my secret").decode()
    elif wrong == "base64":
        user["client-key-data"] = "my secret"
    elif wrong == "encrypted":
        command = ["openssl", "ec", "-in", str(key), "-aes128", "-passout", "pass:word", "-out", str(locked)]
        subprocess.run(command, check=True, capture_output=True)
        user |= inline(client_key=locked)
    elif wrong == "authority":
        cluster = inline(certificate_authority=key)
    else:
        user = {"client-certificate": "nowhere", "client-key": "nowhere"}
    path = kubeconfig(tmp_path / "config", "https://192.0.2.1:6443", cluster, **user)
    with pytest.raises(
        FieldError, match=r"^--kubeconfig: the certificates or the key for https://192.0.2.1:6443 cann"
    ) as no:
        from_kubeconfig(path)
    assert "secret" not in no.value.msg
