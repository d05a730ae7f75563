"""NodeConfigs for comparing the API server's verdict with the agent's: good ones, and ways to spoil them."""

import copy
from collections.abc import Iterator
from typing import Any

FULL: dict[str, Any] = {
    "cidr6": ["2001:db8:1::/64"],
    "cidr4": ["192.0.2.0/26"],
    "defaults": {"ipv6": True, "ipv4": False},
    "mtu": 1500,
    "routerID": "198.51.100.11",
    "bgp": {
        "asn": 64601,
        "gracefulRestart": {"enabled": True, "time": "120s"},
        "peers": [
            {
                "name": "tor1",
                "address": "2001:db8:ffff::1",
                "asn": 64600,
                "localAddress": "2001:db8:ffff::11",
                "families": ["ipv6", "ipv4"],
                "multihop": 2,
                "holdTime": "9s",
                "keepaliveTime": 3,
                "passwordFile": "/etc/flock/secrets/tor1",
                "bfd": {"enabled": True, "interval": "100ms", "multiplier": 3},
                "communities": ["64601:100", "64601:1:2"],
                "allowLocalAS": 1,
                "connectRetry": "5s",
                "import": "default",
                "maxPrefixes": 10_000,
            },
            {"address": "fe80::1%eth0", "asn": 64600, "localAddress": "fe80::2", "ttlSecurity": True},
            {
                "address": "198.51.100.1",
                "asn": 4200000000,
                "passwordSecretRef": {"name": "bgp", "key": "tor2"},
                "import": ["10.0.0.0/8", "2001:db8::/32"],
            },
        ],
    },
    "ospf": {
        "areas": [
            {
                "id": "0.0.0.0",
                "interfaces": [
                    {
                        "name": "eth0",
                        "cost": 10,
                        "type": "ptp",
                        "passive": False,
                        "helloInterval": "10s",
                        "deadInterval": 40,
                        "authentication": {"algorithm": "hmac-sha1", "keyID": 2, "passwordFile": "/etc/key"},
                        "bfd": {"interval": "1s"},
                    }
                ],
            },
            {
                "id": 1,
                "interfaces": [
                    {
                        "name": "eth1",
                        "authentication": {"passwordSecretRef": {"name": "ospf", "key": "eth1"}},
                        "bfd": {"enabled": False, "multiplier": 5},
                    }
                ],
            },
        ],
        "families": ["ipv6"],
        "import": "all",
    },
    "anycast": {
        "withdrawOnCordon": True,
        "communities": ["64601:200"],
        "allowed": [
            {"prefixes": ["2001:db8:53::/64"], "namespaceSelector": {"matchLabels": {"anycast": "yes"}}},
            {
                "prefixes": ["0.0.0.0/0"],
                "namespaceSelector": {
                    "matchExpressions": [
                        {"key": "example.org/tier", "operator": "In", "values": ["edge", "core"]},
                        {"key": "tier", "operator": "DoesNotExist"},
                    ]
                },
            },
        ],
    },
    "services": {
        "allowed": [
            {
                "prefixes": ["203.0.113.0/25", "2001:db8:5e::/64"],
                "namespaceSelector": {
                    "matchLabels": {"lb": "yes"},
                    "matchExpressions": [{"key": "tier", "operator": "NotIn", "values": ["lab"]}],
                },
                "serviceSelector": {
                    "matchLabels": {"public": "yes"},
                    "matchExpressions": [{"key": "tier", "operator": "In", "values": ["front"]}],
                },
            }
        ],
        "communities": ["64601:300"],
        "class": "example.com/lb",
        "exclude": False,
    },
    "addresses": {
        "allowed": [
            {
                "prefixes": ["198.51.100.0/24"],
                "namespaceSelector": {
                    "matchLabels": {"fixed": "yes"},
                    "matchExpressions": [{"key": "tier", "operator": "NotIn", "values": ["lab"]}],
                },
            }
        ]
    },
    "limits": {"claimsPerNamespace": 256, "poolPercentPerNamespace": 25, "connectionsPerPod": 65536},
}

# Whatever a field might be given by mistake, by another tool, or in an odd but correct spelling.
SCALARS: tuple[Any, ...] = (
    *(True, False, -1, 0, 1, 2, 3, 255, 256, 575, 576, 1280, 23456, 65535, 65536, 4294967294, 4294967295, 4294967296),
    *("", " ", "true", "yes", "1", "0", "007", "-1", "1.5", "all", "none", "default", "ipv6", "ipv4", "IPv4", "ptp"),
    *("9s", "09s", "2", "2s", "3000ms", "2999ms", "3500ms", "100ms", "10ms", "9ms", "60s", "61s", "1m", "90m", "1h"),
    *("18h", "19h", "65535s", "65536s", "1d", "9 s", "000000003", "0000000003", "4095", "69m", "3600", "0h", "0ms"),
    *("192.0.2.1", "192.0.2.01", "192.0.2", "0.0.0.0", "255.255.255.255", "127.0.0.1", "169.254.0.1", "224.0.0.5"),
    *("256.0.0.1", "10.0.0.1.", "::", "::1", "2001:db8::1", "2001:DB8::1", "2001:db8::1%eth0", "fe80::1", "FE80::1%e0"),
    *("fe80::1%", "fe80::1%a/b", "fe80::1%eth0", "febf::1%eth0", "fec0::1", "ff02::1", "::ffff:192.0.2.1"),
    *("1:2:3:4:5:6:7:8", "1:2:3:4:5:6:7:8:9", "1:2:3:4:5:6:7::", "::2:3:4:5:6:7:8", "1:2:3:4::5:6:7:8", "1::2::3"),
    *("64:ff9b::192.0.2.1", "1:2:3:4:5:6:192.0.2.1", "1:2:3:4:5:6:7:192.0.2.1", "12345::", "::g", ":1", "1:"),
    *("192.0.2.0/24", "192.0.2.0/024", "192.0.2.0/0024", "192.0.2.0/30", "192.0.2.0/31", "192.0.2.0/33", "10.0.0.0/8"),
    *("192.0.2.1/24", "192.0.2.0/255.255.255.0", "0.0.0.0/0", "::/0", "127.0.0.0/8", "224.0.0.0/4", "169.254.1.0/24"),
    *("2001:db8::/64", "2001:db8::/126", "2001:db8::/127", "2001:db8::/129", "fe80::/64", "ff00::/8", "::1/128"),
    *(
        "64601:100",
        "64601:1:2",
        "65536:1",
        "1:65535",
        "1:2:4294967295",
        "1:2:4294967296",
        "1:2:3:4",
        "1:",
        "0000000001:2",
    ),
    *(
        "eth0",
        "eth0.100@x",
        "a23456789012345",
        "a234567890123456",
        "-eth0",
        "et}h",
        "tor1",
        "tor1-",
        "t" * 48,
        "t" * 49,
    ),
    *("/etc/key", "etc/key", "/etc/../key", "/etc/..key", "/etc//key", "/", "/a b", "/" + "a" * 5000, "a\n", "9s\n"),
    *("In", "Exists", "in", "example.org/x", "example.org/", "/x", "a" * 64, "a.b", "A", "md5", "hmac-sha256", "sha1"),
)
CONTAINERS: tuple[Any, ...] = (
    *([], {}, ["ipv4"], ["ipv6", "ipv4"], ["ipv4", "ipv4"], ["all"], [""], [1], [{}], ["::/0"], ["10.0.0.0/8", 7]),
    *({"enabled": True}, {"time": 4096}, {"name": "x", "key": "y"}, {"name": "X", "key": "y"}, {"key": "y"}),
    *({"matchLabels": {"a": "b"}}, {"matchLabels": {"a": 1}}, {"matchLabels": {"a": "b c"}}, [{"prefixes": []}], [{}]),
    *([{"name": "eth0"}, {"name": "eth0"}], [{"key": "a", "operator": "In"}], [{"key": "a", "operator": "Exists"}]),
    *([{"key": "a", "operator": "Exists", "values": ["b"]}], [{"id": 0}], [{"id": "0"}, {"id": "0.0.0.0"}]),
    *({"passwordFile": "/a", "passwordSecretRef": {"name": "x", "key": "y"}}, {"passwordFile": "/a"}, {"keyID": 1}),
    *([{"address": "192.0.2.1", "asn": 1}], [{"address": "192.0.2.1"}], [{"asn": 1}]),
)


def paths(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The path of everything inside."""
    inside = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in inside:
        yield (*path, key)
        yield from paths(item, (*path, key))


def at(spec: dict[str, Any], path: tuple[Any, ...]) -> Any:
    found: Any = spec
    for key in path:
        found = found[key]
    return found


def put(spec: Any, path: tuple[Any, ...], value: Any) -> Any:
    """The specification with another value at a place; what is not on the way there is shared with the old one."""
    key, *rest = path
    changed = copy.copy(spec)
    changed[key] = put(spec[key], tuple(rest), value) if rest else value
    return changed


def without(spec: Any, path: tuple[Any, ...]) -> Any:
    *way, last = path
    holder = copy.copy(at(spec, tuple(way)))
    del holder[last]
    return put(spec, tuple(way), holder) if way else holder


def node_config(spec: dict[str, Any]) -> dict[str, Any]:
    return {
        "apiVersion": "flock.fritzlab.net/v1alpha1",
        "kind": "NodeConfig",
        "metadata": {"name": "node1"},
        "spec": spec,
    }
