"""The sandbox image, made by hand: one static program in an OCI image archive, so that no registry is needed.

An archive is a tar of blobs named by their SHA-256, with an index that points to a manifest, which points to a
configuration and to the layers; here there is one layer and it holds one file.
"""

import hashlib
import io
import json
import platform
import subprocess
import tarfile
from pathlib import Path
from typing import Any

IMAGE = "flock.test/pause:1"
ENTRYPOINT = "pause"

_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}


def compile_pause(directory: Path) -> Path:
    """The image's program, statically linked: the image has no libraries."""
    program = directory / ENTRYPOINT
    source = Path(__file__).with_name("pause.c")
    subprocess.run(["musl-gcc", "-static", "-Os", "-s", "-Wall", "-Werror", "-o", program, source], check=True)
    return program


def write_archive(program: Path, archive: Path) -> None:
    """Pack `program` as the image `IMAGE` into `archive`, in the form `ctr images import` takes."""
    layer = _tar({ENTRYPOINT: program.read_bytes()}, mode=0o755)
    config = {
        "architecture": _ARCHITECTURES[platform.machine()],
        "os": "linux",
        "config": {"Entrypoint": [f"/{ENTRYPOINT}"]},
        "rootfs": {"type": "layers", "diff_ids": [_digest(layer)]},
    }
    config_blob = _json(config)
    manifest = {
        "schemaVersion": 2,
        "mediaType": "application/vnd.oci.image.manifest.v1+json",
        "config": _descriptor("application/vnd.oci.image.config.v1+json", config_blob),
        "layers": [_descriptor("application/vnd.oci.image.layer.v1.tar", layer)],
    }
    manifest_blob = _json(manifest)
    entry = _descriptor(manifest["mediaType"], manifest_blob)
    entry["annotations"] = {"io.containerd.image.name": IMAGE}
    blobs = {f"blobs/sha256/{_digest(blob)[7:]}": blob for blob in (layer, config_blob, manifest_blob)}
    files = {
        "oci-layout": _json({"imageLayoutVersion": "1.0.0"}),
        "index.json": _json({"schemaVersion": 2, "manifests": [entry]}),
        **blobs,
    }
    archive.write_bytes(_tar(files, mode=0o644))


def _descriptor(media_type: Any, blob: bytes) -> dict[str, Any]:
    return {"mediaType": media_type, "digest": _digest(blob), "size": len(blob)}


def _digest(blob: bytes) -> str:
    return "sha256:" + hashlib.sha256(blob).hexdigest()


def _json(value: Any) -> bytes:
    return json.dumps(value).encode()


def _tar(files: dict[str, bytes], *, mode: int) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as tar:
        for name, content in files.items():
            info = tarfile.TarInfo(name)
            info.size, info.mode = len(content), mode
            tar.addfile(info, io.BytesIO(content))
    return out.getvalue()
