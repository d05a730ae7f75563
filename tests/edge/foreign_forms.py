"""Statements and matches of nft's manual, one rule each: what is tried is that whoever reads them does not fail."""

RULES = """
ip saddr & 0.0.0.255 == 0.0.0.5 drop
ip saddr 192.0.2.1 . ip daddr 10.0.0.1 drop
ip dscp cs1 drop
ip dscp { cs1, 0x12 } drop
ip version 4 drop
ip hdrlength 5 drop
ip length 40-100 drop
ip id 1-9 drop
ip frag-off & 0x2000 != 0 drop
ip option rr exists drop
ip checksum 1 drop
ip6 flowlabel 22 drop
ip6 nexthdr { tcp, udp } drop
ip6 nexthdr != tcp drop
ip6 hoplimit gt 3 drop
ip6 saddr ::/0 drop
ip6 saddr & ffff:: == 2001:: drop
ip6 daddr fe80::-fe80::ffff drop
tcp dport >= 1024 drop
tcp sport 1-1023 tcp dport != { 22, 80-90 } drop
tcp flags & (syn | ack) == syn drop
tcp flags { syn, syn | ack } drop
tcp flags ! ack drop
tcp option maxseg size 1-500 drop
tcp option maxseg size set rt mtu
tcp option timestamp exists drop
tcp option 30 exists drop
tcp sequence 1 drop
tcp doff 5 drop
th dport 53 drop
udp length 8 drop
icmp type echo-request drop
icmp type . icmp code { echo-request . 0 } drop
icmpv6 type { nd-router-advert, nd-neighbor-solicit } accept
icmpv6 id 7 drop
sctp chunk init exists drop
dccp type request drop
esp spi 1 drop
ah spi 1 drop
ether saddr 02:00:00:00:00:01 drop
vlan id 5 drop
arp operation request drop
@nh,96,32 0xc0000200 drop
@th,16,16 { 80, 443 } drop
@ll,0,48 0 drop
@th,0,8 & 0xf0 != 0x10 drop
rt type 0 drop
rt classid 1 drop
rt nexthop 192.0.2.1 drop
rt mtu 1500 drop
rt ipsec exists drop
exthdr hbh exists drop
exthdr frag missing drop
frag more-fragments 1 drop
hbh nexthdr 6 drop
dst nexthdr 6 drop
mh type 1 drop
srh last-entry 0 drop
ct state new,untracked drop
ct state ! established drop
ct state { new, invalid } drop
ct direction original drop
ct direction != reply drop
ct status snat,dnat drop
ct status & (assured | seen-reply) == 0 drop
ct mark 1-9 drop
ct mark & 0xff != 7 drop
ct mark . meta mark { 1 . 2 } drop
ct expiration < 1m drop
ct helper "ftp" drop
ct l3proto ipv4 drop
ct original ip saddr 192.0.2.0/24 drop
ct original ip6 daddr fd00::/8 drop
ct reply proto-dst 80 drop
ct original proto-src { 1, 2 } drop
ct zone 1 drop
ct original zone 1 drop
ct bytes > 1000 drop
ct original packets 1 drop
ct avgpkt > 100 drop
ct label 3 drop
ct id 4 drop
ct count 5 drop
ct count over 5 drop
ct mark set 1
ct mark set meta mark
ct mark set ct mark & 0xff | 0x100
ct zone set 1
ct event set new
meta length > 1000 drop
meta priority 1:2 drop
meta priority set 1:3
meta mark set 0x7
meta mark set meta mark | 0x10
meta mark set ip saddr map { 192.0.2.0/24 : 7, 10.0.0.1 : 8 }
meta mark set ct mark
meta mark set jhash ip saddr mod 4
meta mark set numgen inc mod 3 offset 1
meta mark set symhash mod 2
meta iiftype ether drop
meta iifkind "veth" drop
meta oifkind != "veth" drop
meta iifgroup 0 drop
meta oifgroup default drop
meta skuid { 0, 1000 } drop
meta skgid 5 drop
meta cgroup 1 drop
meta cpu 0-3 drop
meta rtclassid 1 drop
meta nftrace set 1
meta random < 1000 drop
meta day Monday drop
meta time < "2020-01-01" drop
meta hour "08:00"-"18:00" drop
meta ipsec exists drop
meta secmark 1 drop
meta sdif "x" drop
meta sdifname "x" drop
meta pkttype { broadcast, multicast } drop
meta protocol != { ip, arp } drop
meta protocol vmap { ip : accept, ip6 : drop }
meta l4proto . th dport vmap { tcp . 80 : drop, udp . 53 : accept }
meta l4proto 6-17 drop
iif . oif { "lo" . "lo" } drop
iifname { "flock*", "eth*" } drop
iifname != { "flock*", "eth0" } drop
iifname . ip saddr . tcp dport { "flock00000001" . 192.0.2.5 . 80 } drop
iifname "*" drop
iif lo drop
oif != lo drop
fib saddr oif exists accept
fib saddr . mark . iif oif missing drop
fib daddr . iif type != { local, broadcast } drop
fib daddr type vmap { unicast : drop, local : accept }
fib daddr oifname "up0" drop
fib saddr . iif oif "up0" drop
fib daddr . oif type local drop
socket transparent 1 drop
socket mark 1 drop
socket wildcard 0 drop
socket cgroupv2 level 1 "x" drop
osf name "Linux" drop
ipsec in reqid 1 drop
ipsec out ip daddr 10.0.0.1 drop
numgen random mod 2 vmap { 0 : drop, 1 : accept }
jhash ip saddr . ip daddr mod 2 0 drop
limit rate 10/second burst 5 packets drop
limit rate over 10 mbytes/second drop
quota 10 mbytes drop
quota over 10 mbytes drop
quota until 10 mbytes accept
counter name "c" drop
limit name "l" drop
quota name "q" drop
ct helper set "h"
ct timeout set "t"
last drop
log prefix "x\\"y" flags all drop
log group 2 snaplen 10 queue-threshold 3 drop
reject with icmp port-unreachable
reject with icmpv6 no-route
reject with icmpx host-unreachable
reject with tcp reset
queue to 1-3
queue flags fanout,bypass to 1-3
queue to jhash ip saddr mod 4
notrack
synproxy mss 1460 wscale 7 timestamp sack-perm
tproxy to :50080
dup to 192.0.2.9 device "lo"
flow add @f
ip ttl set 3
ip dscp set cs1
ip saddr set 192.0.2.9
tcp dport set 81
exthdr hbh nexthdr 6 drop
reset tcp option sack-perm
add @d { ip saddr }
update @d { ip saddr timeout 1m } drop
delete @d { ip saddr } drop
add @d { ip saddr limit rate over 1/second } drop
update @d { ip saddr ct count over 3 } drop
add @d { ip saddr counter } drop
meter m { ip saddr limit rate 3/minute } drop
ip saddr @s drop
ip saddr != @i drop
ip saddr . tcp dport @c4 drop
ip saddr . ip daddr @ci drop
ip saddr vmap @v
tcp dport vmap @p
iifname vmap @n
goto more
jump more
jump { ip saddr 10.0.0.1 drop; accept; }
goto { drop; }
iifname "flock*" jump { ct state vmap { new : drop, established : accept }; }
return
continue
accept comment "all of it"
drop comment "nothing"
ip saddr 192.0.2.0/24 meta mark set 1 ct mark set 2 counter log accept
tunnel id 5 drop
xt match "nothing" drop
""".strip().splitlines()

WITH = """
chain more { }
set s { type ipv4_addr; elements = { 192.0.2.1, 10.0.0.1 } }
set i { type ipv4_addr; flags interval; auto-merge; elements = { 0.0.0.0-9.255.255.255, 192.0.2.0/25, 255.0.0.0/8 } }
set d { type ipv4_addr; size 100; flags dynamic,timeout; timeout 1m; }
set c4 { type ipv4_addr . inet_service; elements = { 192.0.2.1 . 80 comment "one" } }
set ci { type ipv4_addr . ipv4_addr; flags interval; elements = { 192.0.2.0/24 . 10.0.0.0-10.0.0.9 } }
map v { type ipv4_addr : verdict; flags interval; elements = { 192.0.2.0/24 : jump more, * : continue } }
map p { type inet_service : verdict; elements = { 80 : drop, 81 : goto more } }
map n { type ifname : verdict; elements = { "flock00000001" : drop } }
counter c { packets 0 bytes 0 }
limit l { rate over 1/second }
quota q { over 10 mbytes }
"""
