/* The floor: what a dual-stack pod costs when nothing but the kernel and the disk has to be paid for.
 *
 *   floor add NETNS HOSTIF HOSTMAC PODMAC IP6 IP4 STATEFILE BYTES FLUSHES
 *   floor del HOSTIF STATEFILE BYTES FLUSHES
 *
 * One static process does the kernel work of flock's ADD by batched netlink, and writes a state file of BYTES bytes
 * durably (temporary file, fsync, rename, fsync of the directory) FLUSHES times: with two, once before the kernel work
 * (pending) and once after it (committed); with one, only after; with none, never.  There is no IPAM, no JSON, no second
 * process: the benchmark divides flock's time by this one's.
 *
 * Only the last message of a batch asks for an acknowledgement; the kernel reports errors of the others unasked.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <linux/if_addr.h>
#include <linux/if_link.h>
#include <linux/neighbour.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <linux/veth.h>
#include <net/if.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { MTU = 1500, POD_ROUTE_PROTOCOL = 133, POD_ROUTE_METRIC = 20, LOOPBACK = 1 };

struct batch {
    char data[4096];
    size_t length;
    struct nlmsghdr *message; /* the one being written */
    unsigned sequence;
};

static void die(const char *what) {
    fprintf(stderr, "floor: %s: %s\n", what, strerror(errno));
    exit(1);
}

/* --- writing netlink messages --- */

static void *put(struct batch *b, const void *data, size_t size) {
    void *at = b->data + b->length;
    if (b->length + NLMSG_ALIGN(size) > sizeof b->data) {
        errno = ENOBUFS;
        die("batch");
    }
    memcpy(at, data, size);
    b->length += NLMSG_ALIGN(size);
    b->message->nlmsg_len = (uint32_t)(b->data + b->length - (char *)b->message);
    return at;
}

static void begin(struct batch *b, int type, int flags, const void *header, size_t size) {
    struct nlmsghdr head = {.nlmsg_type = (uint16_t)type, .nlmsg_flags = (uint16_t)(NLM_F_REQUEST | flags),
                            .nlmsg_seq = ++b->sequence};
    b->message = (struct nlmsghdr *)(b->data + b->length);
    put(b, &head, sizeof head);
    put(b, header, size);
}

static void attribute(struct batch *b, int type, const void *data, size_t size) {
    struct rtattr head = {.rta_len = (uint16_t)RTA_LENGTH(size), .rta_type = (uint16_t)type};
    put(b, &head, sizeof head);
    put(b, data, size);
}

static struct rtattr *nest(struct batch *b, int type) {
    struct rtattr head = {.rta_type = (uint16_t)type};
    return put(b, &head, sizeof head);
}

static void end_nest(struct batch *b, struct rtattr *nested) {
    nested->rta_len = (uint16_t)(b->data + b->length - (char *)nested);
}

static void attribute_int(struct batch *b, int type, uint32_t value) { attribute(b, type, &value, sizeof value); }
static void attribute_text(struct batch *b, int type, const char *text) { attribute(b, type, text, strlen(text) + 1); }

/* --- talking to the kernel --- */

static int netlink_socket(void) {
    int fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE);
    struct sockaddr_nl self = {.nl_family = AF_NETLINK};
    if (fd < 0 || bind(fd, (struct sockaddr *)&self, sizeof self) < 0) die("netlink socket");
    return fd;
}

/* Send the batch and read until its last message is acknowledged.  A link among the answers tells both indices. */
static void transact(int fd, struct batch *b, int *index, int *peer) {
    static char answers[32768];
    b->message->nlmsg_flags |= NLM_F_ACK;
    if (send(fd, b->data, b->length, 0) < 0) die("netlink send");
    for (;;) {
        ssize_t size = recv(fd, answers, sizeof answers, 0);
        if (size < 0) die("netlink receive");
        int left = (int)size;
        for (struct nlmsghdr *m = (void *)answers; NLMSG_OK(m, left); m = NLMSG_NEXT(m, left)) {
            if (m->nlmsg_type == NLMSG_ERROR) {
                struct nlmsgerr *e = NLMSG_DATA(m);
                if (e->error) {
                    errno = -e->error;
                    fprintf(stderr, "floor: message %u of type %u\n", e->msg.nlmsg_seq, e->msg.nlmsg_type);
                    die("kernel refused");
                }
                if (m->nlmsg_seq == b->sequence) return;
            } else if (m->nlmsg_type == RTM_NEWLINK && index) {
                struct ifinfomsg *link = NLMSG_DATA(m);
                int rest = (int)IFLA_PAYLOAD(m);
                *index = link->ifi_index;
                for (struct rtattr *a = IFLA_RTA(link); RTA_OK(a, rest); a = RTA_NEXT(a, rest))
                    if (a->rta_type == IFLA_LINK) *peer = *(int *)RTA_DATA(a);
            }
        }
    }
}

/* --- the messages --- */

struct address {
    int family;
    unsigned char bytes[16];
    size_t size;
};

static struct address parse(const char *text) {
    struct address a = {.family = strchr(text, ':') ? AF_INET6 : AF_INET};
    a.size = a.family == AF_INET6 ? 16 : 4;
    if (inet_pton(a.family, text, a.bytes) != 1) {
        errno = EINVAL;
        die(text);
    }
    return a;
}

static struct address link_local(const unsigned char mac[6]) {
    struct address a = {.family = AF_INET6, .size = 16, .bytes = {0xfe, 0x80}};
    const unsigned char identifier[8] = {mac[0] ^ 2, mac[1], mac[2], 0xff, 0xfe, mac[3], mac[4], mac[5]};
    memcpy(a.bytes + 8, identifier, sizeof identifier);
    return a;
}

static void parse_mac(const char *text, unsigned char mac[6]) {
    if (sscanf(text, "%hhx:%hhx:%hhx:%hhx:%hhx:%hhx", mac, mac + 1, mac + 2, mac + 3, mac + 4, mac + 5) != 6) {
        errno = EINVAL;
        die(text);
    }
}

/* As flock does: else the kernel makes one for each core, gives up all but one, and waits for that. */
static void one_queue(struct batch *b) {
    attribute_int(b, IFLA_NUM_TX_QUEUES, 1);
    attribute_int(b, IFLA_NUM_RX_QUEUES, 1);
}

static void create_veth(struct batch *b, const char *host, const unsigned char *host_mac, const unsigned char *pod_mac,
                        int pod_netns) {
    struct ifinfomsg link = {0};
    begin(b, RTM_NEWLINK, NLM_F_CREATE | NLM_F_EXCL, &link, sizeof link);
    attribute_text(b, IFLA_IFNAME, host);
    attribute_int(b, IFLA_MTU, MTU);
    attribute(b, IFLA_ADDRESS, host_mac, 6);
    one_queue(b);
    struct rtattr *info = nest(b, IFLA_LINKINFO);
    attribute_text(b, IFLA_INFO_KIND, "veth");
    struct rtattr *data = nest(b, IFLA_INFO_DATA);
    struct rtattr *peer = nest(b, VETH_INFO_PEER);
    put(b, &link, sizeof link);
    attribute_text(b, IFLA_IFNAME, "eth0");
    attribute_int(b, IFLA_MTU, MTU);
    attribute(b, IFLA_ADDRESS, pod_mac, 6);
    one_queue(b);
    attribute_int(b, IFLA_NET_NS_FD, (uint32_t)pod_netns);
    end_nest(b, peer);
    end_nest(b, data);
    end_nest(b, info);
    struct ifinfomsg any = {0};
    begin(b, RTM_GETLINK, 0, &any, sizeof any);
    attribute_text(b, IFLA_IFNAME, host);
}

static void up(struct batch *b, int index) {
    struct ifinfomsg link = {.ifi_index = index, .ifi_flags = IFF_UP, .ifi_change = IFF_UP};
    begin(b, RTM_NEWLINK, 0, &link, sizeof link);
}

/* No generated link-local address on the host side: fe80::1 is the only one.  Must precede `up`. */
static void name_and_quieten(struct batch *b, int index, const char *alias) {
    struct ifinfomsg link = {.ifi_index = index};
    uint8_t none = IN6_ADDR_GEN_MODE_NONE;
    begin(b, RTM_NEWLINK, 0, &link, sizeof link);
    attribute(b, IFLA_IFALIAS, alias, strlen(alias));
    struct rtattr *families = nest(b, IFLA_AF_SPEC);
    struct rtattr *inet6 = nest(b, AF_INET6);
    attribute(b, IFLA_INET6_ADDR_GEN_MODE, &none, sizeof none);
    end_nest(b, inet6);
    end_nest(b, families);
}

static void add_address(struct batch *b, int index, struct address a, int prefix) {
    struct ifaddrmsg m = {.ifa_family = (uint8_t)a.family, .ifa_prefixlen = (uint8_t)prefix, .ifa_index = (uint32_t)index,
                          .ifa_flags = a.family == AF_INET6 ? IFA_F_NODAD : 0};
    const uint32_t flags = IFA_F_NODAD | IFA_F_NOPREFIXROUTE;
    begin(b, RTM_NEWADDR, NLM_F_CREATE | NLM_F_REPLACE, &m, sizeof m);
    if (a.family == AF_INET6) attribute(b, IFA_FLAGS, &flags, sizeof flags);
    attribute(b, IFA_LOCAL, a.bytes, a.size);
    attribute(b, IFA_ADDRESS, a.bytes, a.size);
}

static void add_neighbour(struct batch *b, int index, struct address a, const unsigned char *mac) {
    struct ndmsg m = {.ndm_family = (uint8_t)a.family, .ndm_ifindex = index, .ndm_state = NUD_PERMANENT};
    begin(b, RTM_NEWNEIGH, NLM_F_CREATE | NLM_F_REPLACE, &m, sizeof m);
    attribute(b, NDA_DST, a.bytes, a.size);
    attribute(b, NDA_LLADDR, mac, 6);
}

static void add_host_route(struct batch *b, int index, struct address a) {
    struct rtmsg m = {.rtm_family = (uint8_t)a.family, .rtm_dst_len = (uint8_t)(a.size * 8), .rtm_table = RT_TABLE_MAIN,
                      .rtm_protocol = POD_ROUTE_PROTOCOL, .rtm_type = RTN_UNICAST,
                      .rtm_scope = a.family == AF_INET ? RT_SCOPE_LINK : RT_SCOPE_UNIVERSE};
    begin(b, RTM_NEWROUTE, NLM_F_CREATE | NLM_F_REPLACE, &m, sizeof m);
    attribute(b, RTA_DST, a.bytes, a.size);
    attribute_int(b, RTA_OIF, (uint32_t)index);
    attribute_int(b, RTA_PRIORITY, POD_ROUTE_METRIC);
}

static void add_default_route(struct batch *b, int index, struct address gateway) {
    struct rtmsg m = {.rtm_family = (uint8_t)gateway.family, .rtm_table = RT_TABLE_MAIN, .rtm_protocol = POD_ROUTE_PROTOCOL,
                      .rtm_type = RTN_UNICAST, .rtm_flags = gateway.family == AF_INET ? RTNH_F_ONLINK : 0};
    begin(b, RTM_NEWROUTE, NLM_F_CREATE | NLM_F_REPLACE, &m, sizeof m);
    attribute(b, RTA_GATEWAY, gateway.bytes, gateway.size);
    attribute_int(b, RTA_OIF, (uint32_t)index);
}

/* --- the disk --- */

static void flush(const char *path, size_t bytes) {
    char temporary[4096], parent[4096];
    char *content = malloc(bytes);
    if (!content) die("memory");
    memset(content, ' ', bytes);
    snprintf(temporary, sizeof temporary, "%s.tmp", path);
    snprintf(parent, sizeof parent, "%s", path);
    int fd = open(temporary, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (fd < 0 || write(fd, content, bytes) != (ssize_t)bytes || fsync(fd) < 0 || close(fd) < 0) die(temporary);
    if (rename(temporary, path) < 0) die(path);
    int directory = open(dirname(parent), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (directory < 0 || fsync(directory) < 0) die("directory");
    close(directory);
    free(content);
}

/* --- the two verbs --- */

/* Visit the pod's namespace once, to open a socket that stays in it and to switch router advertisements off there. */
static int visit_pod(int pod_netns) {
    int home = open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC);
    if (home < 0 || setns(pod_netns, CLONE_NEWNET) < 0) die("enter the pod's namespace");
    int fd = netlink_socket();
    int ra = open("/proc/sys/net/ipv6/conf/eth0/accept_ra", O_WRONLY | O_CLOEXEC);
    if (ra < 0 || write(ra, "0", 1) != 1) die("accept_ra");
    close(ra);
    if (setns(home, CLONE_NEWNET) < 0) die("return to the node's namespace");
    close(home);
    return fd;
}

static void add(char **arg) {
    const char *netns = arg[0], *host = arg[1], *state = arg[6];
    unsigned char host_mac[6], pod_mac[6];
    parse_mac(arg[2], host_mac);
    parse_mac(arg[3], pod_mac);
    struct address ip6 = parse(arg[4]), ip4 = parse(arg[5]), gateway6 = parse("fe80::1"), gateway4 = parse("169.254.1.1");
    size_t bytes = strtoul(arg[7], NULL, 10);
    int flushes = atoi(arg[8]), index = 0, peer = 0;

    if (flushes > 1) flush(state, bytes);

    int pod_netns = open(netns, O_RDONLY | O_CLOEXEC);
    if (pod_netns < 0) die(netns);
    int node_socket = netlink_socket();
    static struct batch create, pod, node;
    create_veth(&create, host, host_mac, pod_mac, pod_netns);
    transact(node_socket, &create, &index, &peer);

    name_and_quieten(&node, index, "flock: bench/floor");
    up(&node, index);
    add_address(&node, index, gateway6, 128);
    add_host_route(&node, index, link_local(pod_mac));
    add_neighbour(&node, index, ip6, pod_mac);
    add_neighbour(&node, index, ip4, pod_mac);
    add_host_route(&node, index, ip6);
    add_host_route(&node, index, ip4);
    transact(node_socket, &node, NULL, NULL);

    int pod_socket = visit_pod(pod_netns);
    up(&pod, LOOPBACK);
    up(&pod, peer);
    add_address(&pod, peer, ip6, 128);
    add_address(&pod, peer, ip4, 32);
    add_neighbour(&pod, peer, gateway6, host_mac);
    add_neighbour(&pod, peer, gateway4, host_mac);
    add_default_route(&pod, peer, gateway6);
    add_default_route(&pod, peer, gateway4);
    transact(pod_socket, &pod, NULL, NULL);

    if (flushes > 0) flush(state, bytes);
}

static void delete(char **arg) {
    size_t bytes = strtoul(arg[2], NULL, 10);
    int flushes = atoi(arg[3]);
    static struct batch b;
    struct ifinfomsg any = {0};
    if (flushes > 1) flush(arg[1], bytes);
    begin(&b, RTM_DELLINK, 0, &any, sizeof any);
    attribute_text(&b, IFLA_IFNAME, arg[0]);
    transact(netlink_socket(), &b, NULL, NULL);
    if (flushes > 0) flush(arg[1], bytes);
}

int main(int argc, char **argv) {
    if (argc == 11 && !strcmp(argv[1], "add"))
        add(argv + 2);
    else if (argc == 6 && !strcmp(argv[1], "del"))
        delete(argv + 2);
    else {
        fprintf(stderr, "usage: floor add NETNS HOSTIF HOSTMAC PODMAC IP6 IP4 STATEFILE BYTES FLUSHES\n"
                        "       floor del HOSTIF STATEFILE BYTES FLUSHES\n");
        return 2;
    }
    return 0;
}
