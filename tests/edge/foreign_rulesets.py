"""Packet filters of others: as people write them with nft, and as ufw, firewalld, Docker, libvirt and kube-proxy do.

Pods have 192.0.2.0/24 and 2001:db8:1::/64 and links `flock…`, the uplink is `up0`, and beyond it are 198.51.100.2 and
2001:db8:99::2.  What becomes of packets is not written here: they are sent.
"""

FORWARD = "type filter hook forward priority filter;"


def through(*rules: str, policy: str = "accept", more: str = "", family: str = "inet") -> str:
    body = "\n".join(rules)
    return f"table {family} mine {{\n{more}\nchain through {{ {FORWARD} policy {policy};\n{body}\n}}\n}}"


def at(hook: str, priority: str, *rules: str, policy: str = "accept") -> str:
    body = "\n".join(rules)
    hooked = f"type filter hook {hook} priority {priority}; policy {policy};"
    return f"table inet mine {{\nchain early {{ {hooked}\n{body}\n}}\n}}\n"


NFT = {
    "accepts all": through(),
    "drops all": through(policy="drop"),
    "drops one family by its table": through(policy="drop", family="ip6"),
    "lets connections go on": through("ct state established,related accept", policy="drop"),
    "drops what is invalid": through("ct state invalid drop"),
    "drops what is new": through("ct state new drop"),
    "drops what is not known": through("ct state != { established, related } drop"),
    "states by a map": through(
        "ct state vmap { established : accept, related : accept, invalid : drop }", policy="drop"
    ),
    "states by a map, new ones on": through(
        "ct state vmap { new : jump more, established : accept }", more="chain more { drop; }"
    ),
    "by flags of a state": through("ct state & (new | untracked) != 0 drop"),
    "lets pods send": through('iifname "flock*" accept', policy="drop"),
    "lets pods be sent": through('oifname "flock*" accept', policy="drop"),
    "lets pods do both": through('iifname "flock*" accept', 'oifname "flock*" accept', policy="drop"),
    "drops all but from pods": through('iifname != "flock*" drop'),
    "drops all but to the uplink": through('oifname != "up0" reject with icmpx admin-prohibited'),
    "accepts a pair of interfaces": through('iifname "flock*" oifname "up0" accept', policy="drop"),
    "accepts both pairs": through(
        'iifname "flock*" oifname "up0" accept', 'iifname "up0" oifname "flock*" accept', policy="drop"
    ),
    "accepts pairs by a set": through(
        'iifname . oifname { "up0" . "flock00000001", "flock00000001" . "up0" } accept', policy="accept"
    ),
    "a pair of addresses": through(
        "ip saddr 192.0.2.0/24 ip daddr 198.51.100.0/24 accept",
        "ip daddr 192.0.2.0/24 ip saddr 198.51.100.0/24 accept",
        "ip saddr 192.0.2.0/24 ip daddr 192.0.2.0/24 accept",
        "meta nfproto ipv4 drop",
    ),
    "pods to all but pods": through(
        "ip saddr 192.0.2.0/24 ip daddr != 192.0.2.0/24 accept",
        "ip6 saddr 2001:db8:1::/64 ip6 daddr != 2001:db8:1::/64 accept",
        policy="drop",
    ),
    "loopback": through('iifname "lo" accept', policy="drop"),
    "loopback by index": through("iif lo accept", policy="drop"),
    "the uplink by index": through("iif up0 drop"),
    "a family, of the packet": through("meta protocol ip drop"),
    "a family, of the filter": through("meta nfproto ipv6 drop"),
    "all but a family": through("meta nfproto != ipv6 reject"),
    "families by a map": through("meta nfproto vmap { ipv4 : drop, ipv6 : accept }"),
    "protocols": through("meta l4proto { icmp, ipv6-icmp, udp } accept", policy="drop"),
    "all but TCP": through("meta l4proto != tcp drop"),
    "TCP's first packet": through("tcp flags syn / fin,syn,rst,ack drop"),
    "TCP that does not begin": through("tcp flags & (fin|syn|rst|ack) != syn ct state new drop"),
    "reset": through("meta l4proto tcp reject with tcp reset"),
    "reject by family": through("meta nfproto ipv4 reject with icmp host-unreachable"),
    "a port": through("tcp dport 22 accept", policy="drop"),
    "a port dropped": through("tcp dport { 22, 25, 1000-2000 } drop"),
    "ports by a map": through("tcp dport vmap { 22 : accept, 25 : drop }"),
    "another's prefix": through("ip saddr 10.0.0.0/8 drop", "ip6 saddr fd00::/8 drop"),
    "all but a prefix": through("ip saddr != 192.0.2.0/24 drop"),
    "all but the other family's prefix": through("ip6 saddr != 2001:db8:1::/64 drop"),
    "spoofing on the uplink": through(
        'iifname "up0" ip saddr 192.0.2.0/24 drop', 'iifname "up0" ip6 saddr 2001:db8:1::/64 drop'
    ),
    "spoofing by pods": through(
        'iifname "flock*" ip saddr != 192.0.2.0/24 drop', 'iifname "flock*" ip6 saddr != 2001:db8:1::/64 drop'
    ),
    "half of the pods": through("ip saddr { 192.0.2.0/25, 192.0.2.128/25 } drop"),
    "a wider prefix": through("ip saddr 192.0.0.0/16 drop"),
    "a named set": through(
        "ip saddr @banned drop",
        more="set banned { type ipv4_addr; flags interval; elements = { 10.0.0.0/8, 172.16.0.0/12 } }",
    ),
    "a named set of pods": through(
        "ip saddr @allowed accept",
        "ip daddr @allowed accept",
        "meta nfproto ipv4 drop",
        more="set allowed { type ipv4_addr; flags interval; elements = { 10.0.0.0/8, 192.0.2.0/24 } }",
    ),
    "not in a named set": through(
        "ip saddr != @allowed ip daddr != @allowed drop",
        more="set allowed { type ipv4_addr; flags interval; elements = { 192.0.2.0/24 } }",
    ),
    "an empty set": through("ip saddr @banned drop", more="set banned { type ipv4_addr; }"),
    "a set of interfaces": through(
        "iifname @inside accept",
        "oifname @inside accept",
        policy="drop",
        more='set inside { type ifname; elements = { "br0", "up0" } }',
    ),
    "a set up to its type's end": through("ip saddr { 1.0.0.0-255.255.255.255 } drop"),
    "a concatenation": through("ip saddr . tcp dport { 192.0.2.5 . 80, 10.0.0.1 . 22 } drop"),
    "a concatenation of intervals": through(
        "meta nfproto . meta l4proto @some drop",
        more="set some { typeof meta nfproto . meta l4proto; flags interval; elements = { ipv4 . 0-10 } }",
    ),
    "addresses and interfaces": through(
        "iifname . ip saddr @pairs accept",
        "meta nfproto ipv4 drop",
        more='set pairs { type ifname . ipv4_addr; flags interval; elements = { "up0" . 0.0.0.0-255.255.255.255 } }',
    ),
    "a map with a last resort": through(
        "iifname vmap @zones",
        policy="accept",
        more='map zones { type ifname : verdict; elements = { "up0" : accept, * : drop } }',
    ),
    "a map of intervals": through(
        "ip saddr vmap @nets",
        more="map nets { type ipv4_addr : verdict; flags interval; "
        "elements = { 192.0.2.0/24 : drop, 198.51.100.0/24 : accept } }",
    ),
    "a map that goes on": through(
        "meta l4proto vmap { tcp : continue, udp : accept } drop",
    ),
    "a limit that lets pass": through("limit rate 400/second burst 100 packets accept", policy="drop"),
    "a limit that drops the rest": through("limit rate over 400/second burst 100 packets drop"),
    "logs and counts": through('counter log prefix "x " level info', "counter packets 1 bytes 2 drop"),
    "a comment": through('iifname "up0" counter drop comment "nothing from there"'),
    "a mark": through("meta mark 0x42 accept", policy="drop"),
    "no mark": through("meta mark & 0xff00 != 0x4200 drop"),
    "connections' status": through("ct status dnat accept", policy="drop"),
    "the way back is missing": through("fib saddr . iif oif missing drop"),
    "the way back exists": through("fib saddr . iif oif exists accept", policy="drop"),
    "not to this host": through("fib daddr type local accept", policy="drop"),
    "only what is somebody's": through("fib daddr type != unicast drop"),
    "a meter": through(
        "ct state new add @seen { ip saddr limit rate over 400/second burst 100 packets } drop",
        more="set seen { type ipv4_addr; size 1000; flags dynamic; }",
    ),
    "too many connections": through("ct count over 1000 drop"),
    "jumps": through(
        "jump one", "drop", more="chain two { accept; }\nchain one { meta nfproto ipv4 goto two; return; }"
    ),
    "an anonymous chain": through('iifname "up0" jump { ct state established accept; drop; }'),
    "a socket's owner": through("meta skuid 0 accept", policy="drop"),
    "no header before TCP": through("exthdr frag exists drop", "ip frag-off & 0x1fff != 0 drop"),
    "packet's kind": through("meta pkttype != unicast drop"),
    "an hour": through('meta hour "00:00"-"00:00:01" accept', policy="drop"),
    "a hop limit": through("ip ttl < 2 drop", "ip6 hoplimit < 2 drop"),
    "a range of addresses": through("ip saddr 192.0.2.0-192.0.2.255 drop"),
    "not in a range": through("ip daddr != 10.0.0.0-10.255.255.255 drop"),
    "before routing": at(
        "prerouting", "raw", "fib saddr . iif oif missing drop", 'iifname "up0" ip saddr 192.0.2.0/24 drop'
    ),
    "before routing, all": at("prerouting", "mangle", 'iifname "up0" tcp flags syn drop'),
    "before routing, where to": at("prerouting", "mangle", 'fib daddr oifname "flock*" drop'),
    "after it": at("postrouting", "filter", 'oifname "up0" drop'),
    "a mark from before": at("prerouting", "mangle", 'iifname "flock*" meta mark set 0x7')
    + through("meta mark 0x7 accept", policy="drop"),
    "untracked": at("prerouting", "raw", 'iifname "flock*" notrack')
    + through("ct state untracked accept", policy="drop"),
    "not tracked, invalid": at("prerouting", "raw", "notrack") + through("ct state new accept", policy="drop"),
    "two tables": through() + "\ntable ip other { chain last { type filter hook forward priority 10; policy drop; }\n}",
    "one accepts, the next drops": through('iifname "flock*" accept')
    + "\ntable ip other { chain last { type filter hook forward priority 10; drop; }\n}",
    "nat": "table ip mine { chain out { type nat hook postrouting priority srcnat; "
    "ip saddr 192.0.2.0/24 masquerade; }\n}",
}

# Pods may speak with some: somebody thought of them, and nothing is told.
MEANT = {
    "openings": through('iifname "flock*" ip daddr 10.0.0.0/8 accept', 'iifname "flock*" drop'),
    "a wall": through('iifname "flock*" ip daddr != 10.0.0.0/8 ip daddr != 192.0.2.0/24 drop'),
    "pairs": through(
        "ip saddr . ip daddr @pairs accept",
        'iifname "flock*" meta nfproto ipv4 drop',
        more="set pairs { type ipv4_addr . ipv4_addr; flags interval; elements = { 192.0.2.0/24 . 10.0.0.0/8 } }",
    ),
}

# Made by others, in their own words.
FIREWALLD = """
table inet firewalld {
  chain filter_FORWARD { type filter hook forward priority filter + 10; policy accept;
    ct state { established, related } accept
    ct status dnat accept
    iifname "lo" accept
    ct state invalid drop
    ip6 daddr { ::/96, ::ffff:0.0.0.0/96, 2002::/24, 2002:a00::/24 } reject with icmpv6 addr-unreachable
    jump filter_FORWARD_ZONES
    reject with icmpx admin-prohibited
  }
  chain filter_FORWARD_ZONES { %s
    iifname "up0" goto filter_FWD_public
    goto filter_FWD_public
  }
  chain filter_FWD_public { jump filter_FWD_public_pre
    jump filter_FWD_public_allow
    meta l4proto { icmp, ipv6-icmp } accept
    reject with icmpx admin-prohibited
  }
  chain filter_FWD_public_pre { }
  chain filter_FWD_public_allow { oifname "%s" accept; }
  chain mangle_PREROUTING { type filter hook prerouting priority mangle + 10; policy accept;
    meta nfproto ipv6 icmpv6 type { nd-router-advert, nd-neighbor-solicit } accept
    meta nfproto ipv6 fib saddr . mark . iif oif missing drop
  }
}
"""
OTHERS = {
    "firewalld": FIREWALLD % ("", "eth7"),
    "firewalld that forwards to a zone": FIREWALLD % ("", "up0"),
    "firewalld with zones by source": FIREWALLD
    % ("ip saddr 192.0.2.0/24 accept; ip daddr 192.0.2.0/24 accept", "eth7"),
    "kube-proxy": """
table ip kube-proxy {
  map no-endpoint-services { type ipv4_addr . inet_proto . inet_service : verdict
    elements = { 10.96.0.20 . tcp . 80 : drop, 10.96.0.21 . tcp . 80 : goto reject-chain } }
  set cluster-ips { type ipv4_addr; elements = { 10.96.0.20, 10.96.0.21 } }
  chain reject-chain { reject; }
  chain service-endpoints-check { ip daddr . meta l4proto . th dport vmap @no-endpoint-services; }
  chain cluster-ips-check { ip daddr @cluster-ips reject; ip daddr { 10.96.0.0/12 } drop; }
  chain filter-forward { type filter hook forward priority -110; policy accept;
    ct state new jump service-endpoints-check
    ct state new jump cluster-ips-check
  }
}""",
}
