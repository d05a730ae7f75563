/* Is an agent that is not there only being restarted?

   Some runtimes ask for STATUS every few seconds and report the node as unable to take pods at the first failure, while
   an ADD at that time would just wait.  So an agent keeps a file beside its socket whose time of change says when it
   could last serve.  If that is less than a restart ago, its absence is no news.  An agent that ended unable to serve
   has removed the file, one that never ran has made none, and with /run it is gone after a boot.

   With its bodies, and included once: flock.c says why. */

#ifndef FLOCK_RESTART_H
#define FLOCK_RESTART_H

#include <sys/stat.h>
#include <time.h>

#include "agent.h"
#include "call.h"

#define SERVED "serving"

/* Ending one agent and starting the next takes seconds, on a full and busy node up to this.  A time in the future says
   nothing: the clock was set. */
#define RESTART_S 60

static bool is_restarting(const struct call *call)
{
    char path[PATH_MAX];
    struct stat served;
    struct timespec now;
    beside_socket(call, SERVED, path);
    if (lstat(path, &served) != 0 || !S_ISREG(served.st_mode) || clock_gettime(CLOCK_REALTIME, &now) != 0)
        return false;
    return now.tv_sec >= served.st_mtim.tv_sec && now.tv_sec - served.st_mtim.tv_sec < RESTART_S;
}

#endif
