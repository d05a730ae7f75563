/* A DEL that finds no agent is left for the next one, if the configuration says `deferDel`.

   Runtimes delete pods one after the other, and the kubelet removes the old agent's own pod in the same queue: a DEL
   that waits for the new agent would wait for itself.  So it is noted down in a directory that the agent keeps beside
   its socket, as an empty file that is named after the container and its interface, and reported as done.  The agent
   listens first and reads the notes next.  Whoever made one therefore asks once more: either the agent that came
   meanwhile answers, and the note is taken back, or it has yet to come and will read it.

   With its bodies, and included once: flock.c says why. */

#ifndef FLOCK_LATER_H
#define FLOCK_LATER_H

#include <fcntl.h>

#include "agent.h"
#include "call.h"

#define NOTES "deferred/"

/* A name that is too long is the file system's to refuse. */
static bool note_down(const struct call *call, char path[static PATH_MAX])
{
    struct text name = {path, beside_socket(call, NOTES, path), PATH_MAX - 1};
    put(&name, call->container_id);
    put(&name, ":");
    put(&name, call->ifname);
    path[name.size] = '\0';
    int fd = open(path, O_WRONLY | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd >= 0)
        close(fd);
    return fd >= 0;
}

/* Ends the program if the request was left for later.  False if it cannot be: nobody is there, and no place for notes
   either. */
static bool ask_or_leave(const struct call *call, struct span request, struct patience patience, struct reply *reply)
{
    static char note[PATH_MAX];
    patience.silent_ms -= patience.absent_ms; /* which is not waited for here */
    patience.absent_ms = 0;
    *reply = ask(call->socket, request, &patience);
    if (!nobody_there(reply))
        return true;
    if (!note_down(call, note))
        return false;
    *reply = ask(call->socket, request, &patience);
    if (nobody_there(reply))
        exit(0);
    unlink(note);
    return true;
}

#endif
