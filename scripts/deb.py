"""A Debian package of flock for this Debian: agent, flockctl, installer, executable, units, manual pages, completion.

    .venv/bin/python scripts/deb.py [DIRECTORY]

Python's parts go into a directory of their own and are those of the Python this system has, so that each Debian has its
package.  The same tree gives the same bytes: times are the last commit's, and nothing says where it was built.
"""

import argparse
import gzip
import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import flock
from flock.agent import flags
from flock.cli import installer, main

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "deploy/deb"
LIBRARY = "usr/lib/flock/python"
PLUGINS = "usr/lib/cni"  # Debian's; containerd and podman look there
PROGRAMS = {"flock-agent": "flock.agent.main", "flockctl": "flock.cli.begin", "flock-installer": "flock.cli.installer"}
WRAPPER = """\
#!/usr/bin/python3 -sP
import sys

sys.path.insert(0, "/{library}")
from {module} import main

main()
"""
DROP_INS = {
    "usr/lib/systemd/network/00-flock.network": installer.NETWORKD,
    "usr/lib/systemd/networkd.conf.d/flock.conf": installer.NETWORKD_ROUTES,
    "usr/lib/NetworkManager/conf.d/flock.conf": installer.NETWORK_MANAGER,
    "etc/iproute2/rt_protos.d/flock.conf": installer.RT_PROTOS,
}


def build(target: Path) -> Path:
    """The package's file.  Raises CalledProcessError with what a program said."""
    stage = ROOT / "build/deb"
    shutil.rmtree(stage, ignore_errors=True)
    _fill(stage)
    epoch = _run("git", "-C", str(ROOT), "log", "-1", "--format=%ct").strip() if (ROOT / ".git").exists() else "0"
    for path in (stage, *stage.rglob("*")):
        os.utime(path, (int(epoch), int(epoch)), follow_symlinks=False)
    target.mkdir(parents=True, exist_ok=True)
    package = target / f"flock_{_version(debian())}_{_architecture()}.deb"
    command = ["dpkg-deb", "--root-owner-group", "-Zxz", "--build", str(stage), str(package)]
    subprocess.run(command, check=True, capture_output=True, env={**os.environ, "SOURCE_DATE_EPOCH": epoch})
    shutil.rmtree(stage)
    return package


def _fill(stage: Path) -> None:
    _python(stage / LIBRARY)
    for name, module in PROGRAMS.items():
        _write(stage / "usr/bin" / name, WRAPPER.format(library=LIBRARY, module=module), mode=0o755)
    _write_bytes(stage / PLUGINS / "flock", (ROOT / "build/flock").read_bytes(), mode=0o755)
    for name in installer.UNITS:
        _write(
            stage / "usr/lib/systemd/system" / name,
            installer.unit(name, plugins=Path("/", PLUGINS), programs=Path("/usr/bin")),
        )
    for name, text in DROP_INS.items():
        _write(stage / name, text)
    _write(stage / "etc/default/flock", (SOURCE / "default").read_text())
    _write(stage / "etc/flock/manifests/nodeconfig.yaml.sample", (SOURCE / "nodeconfig.yaml.sample").read_text())
    for page in sorted((ROOT / "docs").glob("*.md")):
        _write(stage / "usr/share/doc/flock" / page.name, page.read_text())
    _write(stage / "usr/share/doc/flock/copyright", (ROOT / "LICENSE").read_text())
    for name, text in _manuals():
        compressed = gzip.compress(text.encode(), mtime=0)
        _write_bytes(stage / f"usr/share/man/man8/{name}.8.gz", compressed)
    _write(stage / "usr/share/bash-completion/completions/flockctl", _completion())
    _control(stage, debian=debian())


def _python(directory: Path) -> None:
    pip = [sys.executable, "-m", "pip", "install", "-q", "--disable-pip-version-check", "--no-compile"]
    for what in (["--require-hashes", "-r", "requirements/run.txt"], ["--no-deps", "--no-build-isolation", "."]):
        command = [*pip, "--target", str(directory), *what]
        subprocess.run(command, check=True, capture_output=True, text=True, cwd=ROOT)
    shutil.rmtree(directory / "bin", ignore_errors=True)
    for path in (*directory.glob("*.dist-info/RECORD"), *directory.glob("*.dist-info/direct_url.json")):
        path.unlink()


def _control(stage: Path, *, debian: str) -> None:
    major, minor = sys.version_info[:2]
    fields = {
        "version": _version(debian),
        "architecture": _architecture(),
        "python": f"python3 (>= {major}.{minor}), python3 (<< {major}.{minor + 1})",
        "runtime": "podman | containerd" if debian == "12" else "containerd",  # podman 5 has no CNI
        "size": sum(path.stat().st_size for path in stage.rglob("*") if path.is_file()) // 1024,
    }
    _write(stage / "DEBIAN/control", (SOURCE / "control").read_text().format(**fields))
    _write(stage / "DEBIAN/conffiles", "/etc/default/flock\n/etc/iproute2/rt_protos.d/flock.conf\n")
    for script in ("postinst", "prerm", "postrm"):
        _write(stage / "DEBIAN" / script, (SOURCE / script).read_text(), mode=0o755)


def _manuals() -> Iterator[tuple[str, str]]:
    yield "flockctl", _manual("flockctl", "look at and mend the network of this node's pods", main._parser())
    for name, what, parse in (
        ("flock-agent", "the node agent of flock", flags.parse),
        ("flock-installer", "puts flock's executable and drop-ins in place", installer.parse),
    ):
        yield name, _manual(name, what, _parser_of(parse))


def _parser_of(parse: object) -> argparse.ArgumentParser:
    """Of a function that parses arguments: asked for help, it shows its parser."""
    found: list[argparse.ArgumentParser] = []

    class Seen(Exception):
        pass

    def caught(self: argparse.ArgumentParser, file: object = None) -> None:
        found.append(self)
        raise Seen

    shown, argparse.ArgumentParser.print_help = argparse.ArgumentParser.print_help, caught  # type: ignore[method-assign]
    try:
        parse(["--help"], {})  # type: ignore[operator]
    except Seen:
        pass
    finally:
        argparse.ArgumentParser.print_help = shown  # type: ignore[method-assign]
    return found[0]


def _manual(name: str, what: str, parser: argparse.ArgumentParser) -> str:
    os.environ["COLUMNS"] = "78"
    said = "\n".join(_roff(line) for line in parser.format_help().splitlines())
    see = "/usr/share/doc/flock: host.md to begin with, flockctl.md, flock-agent.md, nodeconfig.md, troubleshooting.md"
    return (
        f'.TH {name.upper()} 8 "" "flock {flock.__version__}"\n.SH NAME\n{name} \\- {_roff(what)}\n'
        f".SH DESCRIPTION\n.nf\n{said}\n.fi\n.SH SEE ALSO\n{_roff(see)}\n"
    )


def _roff(line: str) -> str:
    escaped = line.replace("\\", "\\e").replace("-", "\\-")
    return f"\\&{escaped}" if escaped.startswith((".", "'")) else escaped


def _completion() -> str:
    """Commands, and the words after those that have some."""
    commands = _choices(main._parser())
    cases = "".join(f'    "{name}") words="{" ".join(inner)}" ;;\n' for name, inner in commands.items() if inner)
    return (
        (SOURCE / "completion").read_text().replace("@commands@", " ".join(commands)).replace("@cases@", cases.rstrip())
    )


def _choices(parser: argparse.ArgumentParser) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for name, sub in action.choices.items():
                options = [
                    option for inner in sub._actions for option in inner.option_strings if option.startswith("--")
                ]
                found[name] = [*_choices(sub), *options]
    return found


def debian(said: str | None = None) -> str:
    """The number of the Debian this is, by what /etc/debian_version says."""
    number = (said or Path("/etc/debian_version").read_text()).split(".")[0].strip()
    return number if number.isdigit() else "sid"


def _version(debian: str) -> str:
    return f"{flock.__version__}-1~deb{debian}"


def _architecture() -> str:
    return _run("dpkg", "--print-architecture").strip() if shutil.which("dpkg") else platform.machine()


def _run(*command: str) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def _write(path: Path, text: str, *, mode: int = 0o644) -> None:
    _write_bytes(path, text.encode(), mode=mode)


def _write_bytes(path: Path, content: bytes, *, mode: int = 0o644) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    path.chmod(mode)


if __name__ == "__main__":
    print(build(Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "dist"))
