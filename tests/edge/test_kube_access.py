"""Whom the agent talks to, and that nobody else hears its token."""

import base64
import json
import subprocess
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
