"""What a release contains of others (CycloneDX): Python packages as they are locked, the C libraries in the
executables, and the image's Debian packages."""

import io
import json
import re
import subprocess
import tarfile
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from version import version

ROOT = Path(__file__).parent.parent
LINKED = ("musl-dev", "libc6-dev-arm64-cross")  # into the executable for amd64, and for arm64
STATUS = "var/lib/dpkg/status"


def write(target: Path, *, epoch: int, image: Path | None) -> None:
    """Without an image its Debian packages are left out."""
    found = [*_locked(), *_linked(), *(_installed(image) if image else [])]
    about = {"type": "application", "name": "flock", "version": version(), "purl": f"pkg:generic/flock@{version()}"}
    made = datetime.fromtimestamp(epoch, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    told = {
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": {"timestamp": made, "component": {**about, "licenses": [{"license": {"id": "Apache-2.0"}}]}},
        "components": sorted(found, key=lambda one: one["purl"]),
    }
    target.write_text(json.dumps(told, indent=1) + "\n")


def _locked() -> list[dict[str, Any]]:
    """One component for each package, its wheels as the distributions it may come as."""
    components = []
    for entry in (ROOT / "requirements/run.txt").read_text().replace("\\\n", "").splitlines():
        if not entry.startswith("#"):
            name, number = entry.split()[0].split("==")
            hashes = [{"alg": "SHA-256", "content": digest} for digest in re.findall(r"sha256:(\w+)", entry)]
            components.append({**_component("pypi", name.lower(), number), "hashes": hashes})
    return components


def _linked() -> list[dict[str, Any]]:
    asked = ["dpkg-query", "-W", "-f=${Package} ${Version}\\n", *LINKED]
    told = subprocess.run(asked, check=True, capture_output=True, text=True).stdout
    return [_component("deb/debian", *line.split()) for line in told.splitlines()]


def _installed(image: Path) -> list[dict[str, Any]]:
    """By the package database of the last layer that has one."""
    status = b""
    with tarfile.open(image) as archive:
        for layer in json.load(_member(archive, "manifest.json"))[0]["Layers"]:
            with tarfile.open(fileobj=_member(archive, layer)) as files:
                if any(name.removeprefix("./") == STATUS for name in files.getnames()):
                    name = next(name for name in files.getnames() if name.removeprefix("./") == STATUS)
                    status = _member(files, name).read()
    packages = re.findall(r"^Package: (\S+)$.*?^Version: (\S+)$", status.decode(), re.MULTILINE | re.DOTALL)
    return [_component("deb/debian", name, number) for name, number in packages]


def _member(archive: tarfile.TarFile, name: str) -> io.BufferedReader:
    found = archive.extractfile(name)
    if found is None:
        raise RuntimeError(f"{name} is no file of the image's archive")
    return found  # type: ignore[return-value]


def _component(kind: str, name: str, number: str) -> dict[str, Any]:
    return {"type": "library", "name": name, "version": number, "purl": f"pkg:{kind}/{name}@{number}"}
