"""Where the API server is and who we are: from inside a cluster, or from a kubeconfig.

A token never goes over a connection without TLS: whoever hears it can do what the agent may."""

import base64
import contextlib
import os
import ssl
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import msgspec

from flock.core.errors import FieldError

SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")


class Access(msgspec.Struct, frozen=True, kw_only=True):
    """`token_file` is read again for every request: mounted tokens rotate."""

    host: str
    port: int
    tls: ssl.SSLContext | None
    prefix: str = ""
    token: str = ""
    token_file: Path | None = None

    def authorization(self) -> str:
        token = self.token
        if self.token_file is not None:
            token = self.token_file.read_text().strip()
        return f"Bearer {token}" if token else ""


def in_cluster(*, apiserver: str = "", account: Path = SERVICE_ACCOUNT) -> Access:
    """The pod's service account; `apiserver` overrides the address, for a node whose Services do not work yet."""
    if not apiserver:
        host = os.environ.get("KUBERNETES_SERVICE_HOST", "")
        port = os.environ.get("KUBERNETES_SERVICE_PORT_HTTPS") or os.environ.get("KUBERNETES_SERVICE_PORT", "443")
        if not host:
            raise FieldError(
                "--apiserver",
                "not running in a cluster (KUBERNETES_SERVICE_HOST is not set)",
                details="give --manifests, --kubeconfig or --apiserver",
            )
        apiserver = f"https://{f'[{host}]' if ':' in host else host}:{port}"
    authority = account / "ca.crt"
    if not authority.exists():
        raise FieldError("--apiserver", f"no service account at {account}", details="or give --kubeconfig")
    return _access(
        apiserver, flag="--apiserver", tls=lambda: _context(authority=authority), token_file=account / "token"
    )


def from_kubeconfig(path: Path, *, apiserver: str = "") -> Access:
    """The current context.  Client certificate, token or token file; `insecure-skip-tls-verify` is honoured."""
    import yaml  # in API mode nothing else needs it

    try:
        config = yaml.safe_load(path.read_text())
        context = _named(config, "contexts", config["current-context"])["context"]
        cluster = _named(config, "clusters", context["cluster"])["cluster"]
        user = _named(config, "users", context.get("user", "")).get("user") or {}
    except OSError as error:
        raise FieldError("--kubeconfig", f"cannot read {path}: {error.strerror}") from None
    except (yaml.YAMLError, KeyError, TypeError, AttributeError) as error:
        raise FieldError("--kubeconfig", f"{path} is not a usable kubeconfig: {error!r}") from None
    token_file = user.get("tokenFile")
    return _access(
        apiserver or cluster.get("server", ""),
        flag="--apiserver" if apiserver else "--kubeconfig",
        tls=lambda: _context(
            authority=_file(cluster, "certificate-authority", path),
            certificate=_file(user, "client-certificate", path),
            key=_file(user, "client-key", path),
            verify=not cluster.get("insecure-skip-tls-verify"),
        ),
        token=user.get("token", ""),
        token_file=path.parent / token_file if token_file else None,
    )


def _access(
    server: str,
    *,
    flag: str,
    tls: Callable[[], ssl.SSLContext],
    token: str = "",
    token_file: Path | None = None,
) -> Access:
    """`flag` is what named the server, for whoever has to change it."""
    url = urlsplit(server)
    if url.scheme not in ("https", "http") or not url.hostname:
        raise FieldError(flag, f"{server!r} is not an http(s) address")
    secure = url.scheme == "https"
    if not secure and (token or (token_file and token_file.exists())):
        raise FieldError(flag, f"{server} would get the token in the clear; use https, or no token")
    try:
        context = tls() if secure else None
    except (OSError, ValueError) as error:  # of the ssl module, of a file, of base64
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise FieldError(flag, f"the certificates or the key for {server} cannot be used: {reason}") from None
    return Access(
        host=url.hostname,
        port=url.port or (443 if secure else 80),
        prefix=url.path.rstrip("/"),
        tls=context,
        token=token,
        token_file=token_file if secure else None,
    )


def _named(config: dict[str, Any], kind: str, name: str) -> dict[str, Any]:
    for entry in config.get(kind) or ():
        if entry.get("name") == name:
            found: dict[str, Any] = entry
            return found
    if kind == "users":
        return {}
    raise KeyError(f"{kind}: no {name!r}")


def _file(section: dict[str, Any], key: str, kubeconfig: Path) -> Path | bytes | None:
    data = section.get(f"{key}-data")
    if data:
        return base64.b64decode(data)
    name = section.get(key)
    return kubeconfig.parent / name if name else None


def _context(
    *,
    authority: Path | bytes | None,
    certificate: Path | bytes | None = None,
    key: Path | bytes | None = None,
    verify: bool = True,
) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    if not verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    elif isinstance(authority, bytes):
        context.load_verify_locations(cadata=authority.decode())
    elif authority is not None:
        context.load_verify_locations(cafile=authority)
    else:
        context.load_default_certs()
    if certificate is not None and key is not None:
        _load_client_certificate(context, certificate, key)
    return context


def _load_client_certificate(context: ssl.SSLContext, certificate: Path | bytes, key: Path | bytes) -> None:
    """A key that needs a password is refused: nobody is there to be asked."""
    with _as_file(certificate) as certificate_file, _as_file(key) as key_file:
        context.load_cert_chain(certificate_file, key_file, password="")


@contextlib.contextmanager
def _as_file(part: Path | bytes) -> Iterator[Path]:
    """The ssl module takes files only.  One in memory goes with us, whatever ends us; one on a disk might stay."""
    if isinstance(part, Path):
        yield part
        return
    with os.fdopen(os.memfd_create("flock", os.MFD_CLOEXEC), "wb") as file:
        file.write(part)
        file.flush()
        yield Path(f"/proc/self/fd/{file.fileno()}")
