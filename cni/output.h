/* What this program says, all of it on standard output: results as they are, and CNI errors with a code, one line
   that tells what stood in the way, and what to do about it.

   With its bodies, and included once: flock.c says why. */

#ifndef FLOCK_OUTPUT_H
#define FLOCK_OUTPUT_H

#include <errno.h>
#include <poll.h>
#include <stdarg.h>
#include <stdlib.h>
#include <stdnoreturn.h>
#include <unistd.h>

#include "json.h"

#define NEWEST_VERSION "1.1.0"

/* Those of the CNI specification that arise here; the agent's own pass through. */
enum code {
    INCOMPATIBLE_VERSION = 1,
    INVALID_ENVIRONMENT = 4,
    IO_FAILURE = 5,
    DECODING_FAILURE = 6,
    INVALID_CONFIG = 7,
    TRY_AGAIN = 11,
    NOT_AVAILABLE = 50,
};

/* What failures carry as cniVersion: the configuration's as soon as it is known to be one of ours. */
static const char *spoken_version = NEWEST_VERSION;

/* Wait out a descriptor that its owner made non-blocking; true if the call is worth repeating. */
static bool not_yet(int fd, short events)
{
    if (errno == EAGAIN)
        poll(&(struct pollfd){.fd = fd, .events = events}, 1, -1);
    return errno == EAGAIN || errno == EINTR;
}

static bool print(const char *at, size_t size)
{
    while (size > 0) {
        ssize_t written = write(STDOUT_FILENO, at, size);
        if (written >= 0) {
            at += written;
            size -= (size_t)written;
        } else if (!not_yet(STDOUT_FILENO, POLLOUT)) {
            return false;
        }
    }
    return true;
}

/* Print a CNI error and end.  The message is what stands between `details` and the closing NULL, put together. */
__attribute__((sentinel)) static noreturn void fail(enum code code, const char *details, ...)
{
    char message_bytes[2048], line_bytes[6 * sizeof message_bytes + 1024];
    struct text message = {message_bytes, 0, sizeof message_bytes}, line = {line_bytes, 0, sizeof line_bytes};
    va_list parts;
    va_start(parts, details);
    for (const char *part; (part = va_arg(parts, const char *)) != NULL;)
        put(&message, part);
    va_end(parts);
    put(&line, "{\"cniVersion\":\"");
    put(&line, spoken_version);
    put(&line, "\",\"code\":");
    put_number(&line, (uint64_t)code);
    put(&line, ",\"msg\":");
    put_quoted(&line, message.at, message.size);
    put(&line, ",\"details\":");
    put_quoted(&line, details, strlen(details));
    put(&line, "}\n");
    print(line.at, line.size);
    exit(1);
}

/* A number as a C string, for messages. */
struct digits {
    char at[32];
};

static struct digits decimal(uint64_t number)
{
    struct digits digits = {{0}};
    put_number(&(struct text){digits.at, 0, sizeof digits.at - 1}, number);
    return digits;
}

static struct digits seconds(int64_t ms)
{
    struct digits digits = {{0}};
    struct text text = {digits.at, 0, sizeof digits.at - 1};
    put_number(&text, (uint64_t)ms / 1000);
    if (ms % 1000 != 0) {
        char fraction[] = {'.', (char)('0' + ms / 100 % 10), (char)('0' + ms / 10 % 10), (char)('0' + ms % 10)};
        put_bytes(&text, fraction, sizeof fraction);
    }
    return digits;
}

#endif
