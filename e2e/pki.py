"""The cluster's certificate authority: everything a Kubernetes cluster identifies itself with, by `openssl`.

Who a certificate stands for is its subject: the common name is the user, each organisation a group.
"""

import base64
import json
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

VALID_DAYS = "30"  # no cluster of these tests lives that long
_KEY = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes")


class Certificate(NamedTuple):
    certificate: Path
    key: Path


class Authority:
    """A fresh authority; its files are in `directory`."""

    def __init__(self, directory: Path) -> None:
        directory.mkdir()
        self._directory = directory
        # Not the machine's openssl.cnf: that one would add extensions of its own.
        self._settings = directory / "openssl.cnf"
        self._settings.write_text("[req]\ndistinguished_name = none\n[none]\n")
        self.ca = self._request("ca", "/CN=flock-e2e", ("basicConstraints=critical,CA:TRUE", "keyUsage=keyCertSign"))

    def issue(self, name: str, *, groups: Sequence[str] = (), hosts: Sequence[str] = ()) -> Certificate:
        """A certificate for the user `name`, or for a server reached as `hosts` (names or addresses)."""
        subject = "".join(f"/O={group}" for group in groups) + f"/CN={name}"
        extensions = ["basicConstraints=critical,CA:FALSE", "extendedKeyUsage=clientAuth,serverAuth"]
        if hosts:
            extensions.append("subjectAltName=" + ",".join(map(_alternative_name, hosts)))
        signer = ("-CA", str(self.ca.certificate), "-CAkey", str(self.ca.key))
        return self._request(name.replace(":", "-"), subject, extensions, *signer)

    def kubeconfig(self, name: str, *, server: str, groups: Sequence[str] = ()) -> Path:
        """A kubeconfig with everything in it, for the user `name`."""
        user = self.issue(name, groups=groups)
        path = user.certificate.with_suffix(".kubeconfig")
        secrets = {"client-certificate-data": _base64(user.certificate), "client-key-data": _base64(user.key)}
        write_kubeconfig(path, server=server, ca=self.ca.certificate, user=secrets)
        return path

    def _request(self, name: str, subject: str, extensions: Sequence[str], *signer: str) -> Certificate:
        made = Certificate(self._directory / f"{name}.crt", self._directory / f"{name}.key")
        files = ("-keyout", str(made.key), "-out", str(made.certificate))
        wanted = (option for extension in extensions for option in ("-addext", extension))
        request = ("openssl", "req", "-x509", "-config", str(self._settings), *_KEY, "-days", VALID_DAYS)
        subprocess.run([*request, "-subj", subject, *files, *wanted, *signer], check=True, capture_output=True)
        return made


def write_kubeconfig(path: Path, *, server: str, ca: Path, user: dict[str, str]) -> None:
    """`user` holds the fields of a kubeconfig user: certificate and key, or `token`, or `tokenFile`."""
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "e2e", "cluster": {"server": server, "certificate-authority-data": _base64(ca)}}],
        "users": [{"name": "user", "user": user}],
        "contexts": [{"name": "e2e", "context": {"cluster": "e2e", "user": "user"}}],
        "current-context": "e2e",
    }
    path.touch(mode=0o600)
    path.write_text(json.dumps(config, indent=1))


def _alternative_name(host: str) -> str:
    return f"IP:{host}" if ":" in host or host.replace(".", "").isdigit() else f"DNS:{host}"


def _base64(path: Path) -> str:
    return base64.b64encode(path.read_bytes()).decode()
