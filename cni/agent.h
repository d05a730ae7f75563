/* One line to the agent and one back, over a connection of its own, with patience.

   Every request may be sent again: an agent that is not there, has no room for one more connection, or is gone
   before a whole line came back is tried again after a pause.  How long each of these is borne is the caller's to
   say.

   With its bodies, and included once: flock.c says why. */

#ifndef FLOCK_AGENT_H
#define FLOCK_AGENT_H

#include <errno.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "json.h"

/* The first pause covers a socket that is just being bound again, the others an agent that starts. */
#define FIRST_PAUSE_MS 5
#define PAUSE_MS 50

/* The result of an ADD comes back to us as prevResult, inside a configuration that may have this size. */
#define ANSWER_LIMIT ((size_t)4 << 20)

enum outcome { ANSWERED, ABSENT, BUSY, HUNG_UP, SILENT, TOO_LONG, UNREACHABLE };

/* All from the start of the call. */
struct patience {
    int64_t absent_ms; /* with an agent that is not there, or hangs up */
    int64_t busy_ms;   /* with one that has no room for another connection */
    int64_t silent_ms; /* with one that took the request */
};

struct reply {
    enum outcome outcome;
    struct span answer; /* if ANSWERED: without the newline, in memory that stays */
    int64_t waited_ms;  /* if ABSENT, BUSY, HUNG_UP, SILENT: the patience that ran out */
    int reason;         /* if UNREACHABLE: errno */
};

static bool nobody_there(const struct reply *reply)
{
    return reply->outcome == ABSENT || reply->outcome == HUNG_UP;
}

static int64_t now_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

/* Send and receive at once: an agent that refuses a request may answer and hang up before it has read it all. */
static enum outcome converse(int fd, struct span request, int64_t deadline, struct span *answer)
{
    static char bytes[ANSWER_LIMIT];
    size_t got = 0;
    while (got < sizeof bytes) {
        struct pollfd agent = {.fd = fd, .events = request.size > 0 ? POLLIN | POLLOUT : POLLIN};
        int64_t left = deadline - now_ms();
        if (left <= 0)
            return SILENT;
        if (poll(&agent, 1, (int)left) <= 0)
            continue;
        if (agent.revents & POLLOUT) {
            ssize_t sent = send(fd, request.at, request.size, MSG_NOSIGNAL);
            if (sent >= 0)
                request = (struct span){request.at + sent, request.size - (size_t)sent};
            else if (errno != EAGAIN && errno != EINTR)
                request.size = 0; /* nobody reads any more; an answer may still be there */
        }
        if (agent.revents & (POLLIN | POLLHUP | POLLERR)) {
            ssize_t count = recv(fd, bytes + got, sizeof bytes - got, 0);
            if (count == 0 || (count < 0 && errno != EAGAIN && errno != EINTR))
                return HUNG_UP;
            const char *end = count > 0 ? memchr(bytes + got, '\n', (size_t)count) : NULL;
            got += count > 0 ? (size_t)count : 0;
            if (end != NULL) {
                *answer = (struct span){bytes, (size_t)(end - bytes)};
                return ANSWERED;
            }
        }
    }
    return TOO_LONG;
}

/* One connection, one line each way.  `errno` says why something is UNREACHABLE. */
static enum outcome exchange(const char *path, struct span request, int64_t deadline, struct span *answer)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    strcpy(address.sun_path, path);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return UNREACHABLE;
    enum outcome outcome;
    if (connect(fd, (struct sockaddr *)&address, sizeof address) == 0)
        outcome = converse(fd, request, deadline, answer);
    else if (errno == ENOENT || errno == ECONNREFUSED)
        outcome = ABSENT;
    else if (errno == EAGAIN || errno == EINTR)
        outcome = BUSY;
    else
        outcome = UNREACHABLE;
    int reason = errno;
    close(fd);
    errno = reason;
    return outcome;
}

static struct reply ask(const char *path, struct span request, const struct patience *patience)
{
    int64_t start = now_ms();
    for (int64_t pause = FIRST_PAUSE_MS;; pause = PAUSE_MS) {
        struct reply reply = {0};
        reply.outcome = exchange(path, request, start + patience->silent_ms, &reply.answer);
        reply.reason = errno;
        switch (reply.outcome) {
        case ABSENT:
        case HUNG_UP: reply.waited_ms = patience->absent_ms; break;
        case BUSY: reply.waited_ms = patience->busy_ms; break;
        case SILENT: reply.waited_ms = patience->silent_ms; return reply;
        default: return reply;
        }
        int64_t left = start + reply.waited_ms - now_ms();
        if (left <= 0)
            return reply;
        poll(NULL, 0, (int)(left < pause ? left : pause));
    }
}

#endif
