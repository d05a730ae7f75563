"""The same with iptables: what is told to iptables-restore, ip6tables-restore or both."""

HEAD = "*filter\n:INPUT ACCEPT [0:0]\n:FORWARD {policy} [0:0]\n:OUTPUT ACCEPT [0:0]\n"


def table(*rules: str, policy: str = "ACCEPT", chains: str = "", name: str = "filter") -> str:
    made = "".join(f":{chain} - [0:0]\n" for chain in chains.split())
    head = HEAD.format(policy=policy) if name == "filter" else f"*{name}\n:PREROUTING ACCEPT [0:0]\n"
    return head + made + "".join(f"-A {rule}\n" for rule in rules) + "COMMIT\n"


GOES_ON = "FORWARD -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT"
BOTH = {
    "policy": table(policy="DROP"),
    "goes on": table(GOES_ON, policy="DROP"),
    "new, by state": table("FORWARD -m state --state NEW -j DROP"),
    "not what goes on": table("FORWARD -m conntrack ! --ctstate RELATED,ESTABLISHED -j REJECT"),
    "rejects": table("FORWARD -j REJECT"),
    "resets": table("FORWARD -p tcp -j REJECT --reject-with tcp-reset"),
    "comments": table('FORWARD -i up0 -m comment --comment "not from there" -j DROP'),
    "pods": table("FORWARD -i flock+ -j ACCEPT", "FORWARD -o flock+ -j ACCEPT", policy="DROP"),
    "not from pods": table("FORWARD ! -i flock+ -j REJECT"),
    "pairs": table("FORWARD -i flock+ -o up0 -j ACCEPT", "FORWARD -i up0 -o flock+ -j ACCEPT", policy="DROP"),
    "first packets": table("FORWARD -p tcp --syn -j DROP"),
    "no first packets": table("FORWARD -p tcp ! --syn -m conntrack --ctstate NEW -j DROP"),
    "ports": table(
        "FORWARD -p tcp -m multiport --dports 22,25 -j DROP", "FORWARD -p tcp --dport 99 -j ACCEPT", policy="DROP"
    ),
    "limits": table("FORWARD -m limit --limit 400/sec -j ACCEPT", policy="DROP"),
    "hash limits": table("FORWARD -m hashlimit --hashlimit-above 400/sec --hashlimit-name f -j DROP"),
    "types": table("FORWARD -m addrtype --dst-type LOCAL -j ACCEPT", policy="DROP"),
    "types, inverted": table("FORWARD -m addrtype ! --dst-type LOCAL -j DROP"),
    "marks": table("FORWARD -m mark --mark 0x4000/0x4000 -j ACCEPT", "FORWARD -m mark ! --mark 0x1 -j DROP"),
    "a mark from before": table("PREROUTING -i up0 -j MARK --set-xmark 0x10/0x10", name="mangle")
    + table("FORWARD -m mark --mark 0x10/0x10 -j DROP"),
    "untracked": table("PREROUTING -i up0 -j CT --notrack", name="raw")
    + table("FORWARD -m conntrack --ctstate UNTRACKED -j DROP"),
    "bridges": table("FORWARD -m physdev --physdev-is-bridged -j ACCEPT", policy="DROP"),
    "the way back": table("PREROUTING -m rpfilter --invert -j DROP", name="raw"),
    "unicast": table("FORWARD -m pkttype --pkt-type unicast -j DROP"),
    "ufw": table(
        "FORWARD -j ufw-before-forward",
        "FORWARD -j ufw-user-forward",
        "FORWARD -j ufw-after",
        f"ufw-before-forward {GOES_ON.removeprefix('FORWARD ')}",
        "ufw-user-forward -p tcp --dport 443 -j ACCEPT",
        'ufw-after -m limit --limit 3/min --limit-burst 10 -j LOG --log-prefix "[BLOCK] "',
        policy="DROP",
        chains="ufw-before-forward ufw-user-forward ufw-after",
    ),
    "ufw that routes pods": table(
        "FORWARD -j ufw-user-forward",
        "ufw-user-forward -i flock+ -j ACCEPT",
        "ufw-user-forward -o flock+ -j ACCEPT",
        policy="DROP",
        chains="ufw-user-forward",
    ),
    "Docker": table(
        "FORWARD -j DOCKER-USER",
        "FORWARD -j DOCKER-ISOLATION",
        "FORWARD -o docker0 -m conntrack --ctstate ESTABLISHED -j ACCEPT",
        "FORWARD -o docker0 -j DOCKER",
        "FORWARD -i docker0 ! -o docker0 -j ACCEPT",
        "FORWARD -i docker0 -o docker0 -j ACCEPT",
        "DOCKER-USER -j RETURN",
        "DOCKER-ISOLATION -i docker0 ! -o docker0 -j DROP",
        "DOCKER-ISOLATION -j RETURN",
        policy="DROP",
        chains="DOCKER-USER DOCKER-ISOLATION DOCKER",
    ),
    "Docker with a user's rules": table(
        "FORWARD -j DOCKER-USER",
        "DOCKER-USER -i flock+ -j ACCEPT",
        "DOCKER-USER -o flock+ -j ACCEPT",
        "DOCKER-USER -j RETURN",
        policy="DROP",
        chains="DOCKER-USER",
    ),
    "fail2ban": table("FORWARD -p tcp -m multiport --dports 22 -j f2b", "f2b -j RETURN", chains="f2b"),
    "a crowd, by chance": table("FORWARD -m statistic --mode random --probability 0.0001 -j DROP"),
}
FOUR = {
    "libvirt": table(
        "FORWARD -j LIBVIRT_FWX",
        "FORWARD -j LIBVIRT_FWI",
        "FORWARD -j LIBVIRT_FWO",
        "LIBVIRT_FWX -i virbr0 -o virbr0 -j ACCEPT",
        "LIBVIRT_FWI -d 192.168.122.0/24 -o virbr0 -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT",
        "LIBVIRT_FWI -o virbr0 -j REJECT --reject-with icmp-port-unreachable",
        "LIBVIRT_FWO -s 192.168.122.0/24 -i virbr0 -j ACCEPT",
        "LIBVIRT_FWO -i virbr0 -j REJECT --reject-with icmp-port-unreachable",
        chains="LIBVIRT_FWX LIBVIRT_FWI LIBVIRT_FWO",
    ),
    "kube-proxy": table(
        "FORWARD -m conntrack --ctstate NEW -j KUBE-PROXY-FIREWALL",
        'FORWARD -m comment --comment "kubernetes forwarding rules" -j KUBE-FORWARD',
        "FORWARD -m conntrack --ctstate NEW -j KUBE-SERVICES",
        "KUBE-FORWARD -m conntrack --ctstate INVALID -j DROP",
        "KUBE-FORWARD -m mark --mark 0x4000/0x4000 -j ACCEPT",
        "KUBE-SERVICES -d 10.96.0.20/32 -p tcp -m tcp --dport 80 -j REJECT",
        chains="KUBE-PROXY-FIREWALL KUBE-FORWARD KUBE-SERVICES",
    ),
    "pods by address": table("FORWARD -s 192.0.2.0/24 -j ACCEPT", "FORWARD -d 192.0.2.0/24 -j ACCEPT", policy="DROP"),
    "not pods by address": table("FORWARD ! -s 192.0.2.0/24 -j DROP"),
    "a range": table("FORWARD -m iprange --src-range 192.0.2.0-192.0.2.255 -j DROP"),
    "not a range": table("FORWARD -m iprange ! --src-range 10.0.0.0-10.0.0.9 -j DROP"),
    "spoofing": table("FORWARD -i up0 -s 192.0.2.0/24 -j DROP"),
}
# Read by programs elsewhere: nobody can tell from rules alone.
UNREADABLE = {
    "a program's decision": table("FORWARD -j NFQUEUE --queue-num 9 --queue-bypass"),
    "a filter's code": table('FORWARD -m bpf --bytecode "1,6 0 0 0" -j DROP'),
}
