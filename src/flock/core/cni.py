"""The CNI protocol as values: what a runtime hands over, what it gets back.

The executable passes environment and standard input through unread; they are understood here.
"""

import re
from collections.abc import Mapping
from ipaddress import ip_address, ip_interface
from typing import Any

import msgspec

from flock.core.errors import Code, FieldError, FlockError
from flock.core.fixed import Fixed, parse_fixed
from flock.core.model import Allocation
from flock.core.naming import GATEWAY4, GATEWAY6, HOST_MAC, format_mac

VERSIONS = ("0.4.0", "1.0.0", "1.1.0")
LATEST = VERSIONS[-1]
IDENTIFIER = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*")  # the specification's form of container ids and networks' names


class Request(msgspec.Struct, frozen=True):
    """One frame from the executable.  `stdin_data` travels as base64."""

    op: str
    container_id: str = ""
    netns: str = ""
    ifname: str = ""
    args: str = ""
    path: str = ""
    stdin_data: bytes = b""


# Wider than Kubernetes' names, for podman's containers; narrow enough to stand unescaped in a link alias, an nft
# comment or a log line.
POD_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,252}")


class CniArgs(msgspec.Struct, frozen=True, kw_only=True):
    """CNI_ARGS: what the runtime says about the pod behind a container; an empty string where it says nothing."""

    namespace: str = ""
    name: str = ""
    uid: str = ""
    infra_container_id: str = ""
    ip: str = ""
    mac: str = ""

    def of_network(self, namespace: str, *, container_id: str) -> "CniArgs":
        """Whose a container is that is no pod: where the runtime names no namespace it is that of the network, and
        where it names nobody at all the container's id is its name.  An empty `namespace`: nobody's, as it was."""
        namespace = self.namespace or namespace
        name = self.name or (container_id if namespace else "")
        return msgspec.structs.replace(self, namespace=namespace, name=name)


KEYS = {
    "K8S_POD_NAMESPACE": "namespace",
    "K8S_POD_NAME": "name",
    "K8S_POD_UID": "uid",
    "K8S_POD_INFRA_CONTAINER_ID": "infra_container_id",
}
FIXED_KEYS = {"IP": "ip", "MAC": "mac"}  # read by `core.fixed`


def parse_cni_args(text: str) -> CniArgs:
    """`IgnoreUnknown=1;K8S_POD_NAMESPACE=web;K8S_POD_NAME=front-0;K8S_POD_UID=…;K8S_POD_INFRA_CONTAINER_ID=…`.  Keys we
    do not know are ignored, as IgnoreUnknown asks.  Whether an absent name is an error depends on the source of pods
    (an API server needs it, a manifest directory does not), so that is the caller's decision.

    Raises FieldError for a pair without `=` and for a name that cannot be one; of a repeated key the last counts."""
    found: dict[str, str] = {}
    for pair in text.split(";"):
        if not pair.strip():
            continue
        key, equals, value = (part.strip() for part in pair.partition("="))
        if not equals or not key:
            raise _args_error(f"{pair.strip()!r} is not key=value", details="pairs are separated by semicolons")
        if key in FIXED_KEYS:
            found[FIXED_KEYS[key]] = value
        if key not in KEYS:
            continue
        if value and not POD_NAME.fullmatch(value):
            raise _args_error(f"{key} has a value that is no name: {value[:80]!r}")
        found[KEYS[key]] = value
    return CniArgs(**found)


def _args_error(problem: str, *, details: str = "") -> FieldError:
    return FieldError("CNI_ARGS", problem, details=details, code=Code.INVALID_ENVIRONMENT)


class RuntimeConfig(msgspec.Struct, frozen=True):
    pod_annotations: dict[str, str] | None = msgspec.field(default=None, name="io.kubernetes.cri.pod-annotations")
    port_mappings: tuple[Any, ...] | None = msgspec.field(default=None, name="portMappings")
    ips: tuple[str, ...] | None = None
    mac: str | None = None


class Attachment(msgspec.Struct, frozen=True, rename={"container_id": "containerID", "ifname": "ifname"}):
    container_id: str
    ifname: str = ""


class PrevInterface(msgspec.Struct, frozen=True):
    name: str = ""
    mac: str = ""
    sandbox: str = ""


class PrevIP(msgspec.Struct, frozen=True):
    address: str = ""
    gateway: str = ""
    interface: int | None = None


class PrevRoute(msgspec.Struct, frozen=True):
    dst: str = ""
    gw: str = ""


class PrevResult(msgspec.Struct, frozen=True):
    interfaces: tuple[PrevInterface, ...] | None = None
    ips: tuple[PrevIP, ...] | None = None
    routes: tuple[PrevRoute, ...] | None = None


class NetConf(
    msgspec.Struct,
    frozen=True,
    rename={"cni_version": "cniVersion", "runtime_config": "runtimeConfig", "prev_result": "prevResult"},
):
    """flock's plugin object as a runtime hands it over.  Keys we do not read are other people's business."""

    cni_version: str = ""
    name: str = ""
    namespace: str = "default"  # of containers whose runtime names none; empty: nobody's
    dns: dict[str, Any] | None = None
    runtime_config: RuntimeConfig | None = None
    prev_result: PrevResult | None = None
    valid_attachments: tuple[Attachment, ...] | None = msgspec.field(default=None, name="cni.dev/valid-attachments")

    @property
    def pod_annotations(self) -> Mapping[str, str] | None:
        return self.runtime_config.pod_annotations if self.runtime_config else None

    @property
    def port_mappings(self) -> bool:
        """Asked of us, who make none: by a conflist in which nobody else does."""
        return bool(self.runtime_config and self.runtime_config.port_mappings)

    def fixed(self, args: CniArgs) -> Fixed:
        runtime = self.runtime_config or RuntimeConfig()
        return parse_fixed(ips=runtime.ips or (), mac=runtime.mac or "", args_ip=args.ip, args_mac=args.mac)


_conf_decoder = msgspec.json.Decoder(NetConf)


def parse_net_conf(data: bytes) -> NetConf:
    try:
        conf = _conf_decoder.decode(data)
    except msgspec.ValidationError as error:
        text = str(error)
        problem, _, path = text.partition(" - at `$.")
        raise FieldError(path.rstrip("`") or "network configuration", problem) from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise FlockError(f"network configuration on stdin: not JSON: {error}", code=Code.DECODING_FAILURE) from None
    if not IDENTIFIER.fullmatch(conf.name):
        raise FieldError("name", f"no name for a network: {conf.name[:80]!r}" if conf.name else "is missing")
    if conf.namespace and not POD_NAME.fullmatch(conf.namespace):
        raise FieldError("namespace", f"no name for a namespace: {conf.namespace[:80]!r}")
    if conf.cni_version not in VERSIONS:
        raise FlockError(
            f"cniVersion {conf.cni_version!r} is not supported",
            details=f"supported: {', '.join(VERSIONS)}",
            code=Code.INCOMPATIBLE_VERSION,
        )
    return conf


def version_of(data: bytes) -> str:
    """The version to answer in, also when the rest of the configuration is unusable."""
    try:
        version = msgspec.json.decode(data)["cniVersion"]
    except Exception:
        return LATEST
    return version if version in VERSIONS else LATEST


def render_result(allocation: Allocation, *, version: str, netns: str, dns: Mapping[str, Any] | None) -> dict[str, Any]:
    """The ADD result: host side, pod side, primaries first, gateways and routes."""
    host = {"name": allocation.host_interface, "mac": format_mac(HOST_MAC)}
    pod = {"name": allocation.ifname, "mac": allocation.mac, "sandbox": netns}
    if version == "1.1.0" and allocation.mtu:
        host["mtu"] = pod["mtu"] = allocation.mtu  # type: ignore[assignment]
    if not allocation.mac:  # a pod the original set up: its hardware addresses are its own
        del host["mac"], pod["mac"]
    ips = []
    for address in dict.fromkeys(a for a in (allocation.ip6, allocation.ip4, *allocation.addresses) if a):
        entry = {"address": with_length(address), "interface": 1}
        if address in (allocation.ip6, allocation.ip4):
            entry["gateway"] = gateway(address)
        if version == "0.4.0":
            entry["version"] = "6" if ":" in address else "4"
        ips.append(entry)
    routes = []
    if allocation.ip6:
        routes.append({"dst": "::/0", "gw": GATEWAY6})
    if allocation.ip4:
        routes.append({"dst": "0.0.0.0/0", "gw": GATEWAY4})
    return {
        "cniVersion": version,
        "interfaces": [host, pod],
        "ips": ips,
        "routes": routes,
        "dns": dict(dns or {}),
    }


def with_length(address: str) -> str:
    return f"{address}/{128 if ':' in address else 32}"


def gateway(address: str) -> str:
    return GATEWAY6 if ":" in address else GATEWAY4


def render_error(error: FlockError, *, version: str) -> dict[str, Any]:
    return {"cniVersion": version, "code": int(error.code), "msg": error.msg, "details": error.details}


def prev_result_differences(known: Allocation, prev: PrevResult | None, request: Request) -> list[str]:
    """What the runtime remembers and we do not.  What prevResult leaves out is no difference."""
    if prev is None:
        return []
    found = []
    interfaces = prev.interfaces or ()
    names = {request.ifname: known.mac, known.host_interface: format_mac(HOST_MAC) if known.mac else ""}
    for interface in interfaces:
        mac = names.get(interface.name)
        if interface.name == request.ifname and interface.sandbox and interface.sandbox != request.netns:
            found.append(f"prevResult interface {interface.name}: sandbox {interface.sandbox}, not {request.netns}")
        if mac and interface.mac and interface.mac.lower() != mac:
            found.append(f"prevResult interface {interface.name}: MAC {interface.mac}, expected {mac}")
    defaults = {"::/0": known.ip6 and GATEWAY6, "0.0.0.0/0": known.ip4 and GATEWAY4}
    for route in prev.routes or ():
        expected = defaults.get(route.dst)
        if expected and route.gw and not _same_address(route.gw, expected):
            found.append(f"prevResult route {route.dst} via {route.gw}: expected via {expected}")
    held = set(known.held)
    for entry in prev.ips or ():
        index = entry.interface
        if index is not None and 0 <= index < len(interfaces) and interfaces[index].name != request.ifname:
            continue  # another plugin of the chain
        try:
            address = str(ip_interface(entry.address).ip)
        except ValueError:
            found.append(f"prevResult address {entry.address!r}: not an address")
            continue
        if address not in held:
            found.append(f"prevResult address {address}: not allocated to this container")
        elif entry.gateway and not _same_address(entry.gateway, gateway(address)):
            found.append(f"prevResult gateway {entry.gateway} of {address}: expected {gateway(address)}")
    return found


def _same_address(one: str, other: str) -> bool:
    try:
        return ip_address(one) == ip_address(other)
    except ValueError:
        return False
