/* Let the runtime's loopback plugin finish first, where a pod wants addresses on `lo`.

   containerd starts that plugin and this one side by side.  It brings `lo` up, looks at the addresses there, and fails
   the whole pod if it finds any that is not a loopback address, as anycast addresses are.  So a pod with such an
   annotation is attached once `lo` is up and no loopback plugin for the same container runs beside us.  A runtime that
   brings `lo` up by itself, or leaves it alone, is not waited for.

   With its bodies, and included once: flock.c says why. */

#ifndef FLOCK_LOOPBACK_H
#define FLOCK_LOOPBACK_H

#include <fcntl.h>
#include <net/if.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>

#include "agent.h"
#include "call.h"

#define ANYCAST "\"flock.fritzlab.net/anycast\""
#define LOOPBACK_PATIENCE_MS 2000 /* the plugin takes a few milliseconds; then the pod matters more */
#define LOOPBACK_PAUSE_MS 1

/* A file of a process, as a C string with what zero bytes it has; empty if the process is gone. */
static struct span process_file(const char *pid, const char *name)
{
    static char bytes[VARIABLE_LIMIT];
    char path[64] = "/proc/";
    struct text text = {path, strlen(path), sizeof path - 1};
    put(&text, pid);
    put(&text, name);
    struct span content = {bytes, 0};
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    for (ssize_t got; fd >= 0 && content.size < sizeof bytes - 1; content.size += (size_t)got)
        if ((got = read(fd, bytes + content.size, sizeof bytes - 1 - content.size)) <= 0)
            break;
    if (fd >= 0)
        close(fd);
    bytes[content.size] = '\0';
    return content;
}

static bool is_program(const char *pid, const char *name)
{
    struct span comm = process_file(pid, "/comm");
    return comm.size == strlen(name) + 1 && memcmp(comm.at, name, comm.size - 1) == 0;
}

static bool is_for(const char *pid, const char *container_id)
{
    static const char name[] = "CNI_CONTAINERID=";
    struct span variables = process_file(pid, "/environ");
    for (size_t i = 0; i < variables.size; i += strlen(variables.at + i) + 1)
        if (strncmp(variables.at + i, name, sizeof name - 1) == 0)
            return strcmp(variables.at + i + sizeof name - 1, container_id) == 0;
    return false;
}

/* Is it among the children of one thread of the runtime? */
static bool is_child(const char *runtime, const char *thread, const char *container_id)
{
    static char children[1 << 14];
    char name[64] = "/task/";
    struct text text = {name, strlen(name), sizeof name - 1};
    put(&text, thread);
    put(&text, "/children");
    struct span list = process_file(runtime, name);
    size_t size = list.size < sizeof children - 1 ? list.size : sizeof children - 1;
    memcpy(children, list.at, size);
    children[size] = '\0';
    for (char *rest = children, *pid; (pid = strsep(&rest, " ")) != NULL;)
        if (*pid != '\0' && is_program(pid, "loopback") && is_for(pid, container_id))
            return true;
    return false;
}

/* As the kernel lists a directory.  Not by readdir, which would bring in a heap. */
struct entry {
    uint64_t inode;
    int64_t offset;
    uint16_t size;
    uint8_t type;
    char name[];
};

static bool loopback_runs(const char *runtime, const char *container_id)
{
    static _Alignas(struct entry) char entries[1 << 15];
    char path[64] = "/proc/";
    struct text text = {path, strlen(path), sizeof path - 1};
    put(&text, runtime);
    put(&text, "/task");
    int threads = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    bool found = false;
    for (long size; threads >= 0 && !found && (size = syscall(SYS_getdents64, threads, entries, sizeof entries)) > 0;)
        for (long at = 0; at < size && !found;) {
            const struct entry *thread = (const void *)(entries + at);
            found = thread->name[0] != '.' && is_child(runtime, thread->name, container_id);
            at += thread->size;
        }
    if (threads >= 0)
        close(threads);
    return found;
}

/* A socket by which the pod's interfaces can be looked at from here; -1 if there is none to be had. */
static int socket_in(const char *netns)
{
    int result = -1, home = open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC), there = open(netns, O_RDONLY | O_CLOEXEC);
    if (home >= 0 && there >= 0 && setns(there, CLONE_NEWNET) == 0) {
        result = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
        if (setns(home, CLONE_NEWNET) != 0)
            fail(IO_FAILURE, "The runtime must run as root.", "the node's network namespace cannot be entered again: ",
                 strerror(errno), NULL);
    }
    if (home >= 0)
        close(home);
    if (there >= 0)
        close(there);
    return result;
}

static bool is_up(int fd)
{
    struct ifreq lo = {.ifr_name = "lo"};
    return ioctl(fd, SIOCGIFFLAGS, &lo) == 0 && (lo.ifr_flags & IFF_UP);
}

static void let_loopback_finish(const struct call *call)
{
    if (!verb_is(call, "ADD") || memmem(call->config.at, call->config.size, ANYCAST, sizeof ANYCAST - 1) == NULL)
        return;
    struct digits runtime = decimal((uint64_t)getppid());
    bool comes = is_program(runtime.at, "containerd");
    int pod = socket_in(call->netns);
    int64_t deadline = now_ms() + LOOPBACK_PATIENCE_MS;
    while (pod >= 0 && ((comes && !is_up(pod)) || loopback_runs(runtime.at, call->container_id)) && now_ms() < deadline)
        poll(NULL, 0, LOOPBACK_PAUSE_MS);
    if (pod >= 0)
        close(pod);
}

#endif
