/* Stands in a plugin's place and notes how long each call of it took.
 *
 *   DIRECTORY/PLUGIN         this program
 *   DIRECTORY/PLUGIN.timed   the plugin, run with the same arguments, environment, input and output
 *
 * A line in /run/cni-times for each call: plugin, verb, container id, start and end on the monotonic clock in
 * nanoseconds, wait status.  The span is that of launch.c, from just before the spawn to the return of the wait; what
 * this program takes until then and afterwards, some tenths of a millisecond, is in nobody's.  Where the file cannot
 * be written, as in a container with a /run of its own, the call goes on without a note.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#ifndef NOTES
#define NOTES "/run/cni-times"
#endif

extern char **environ;

static long long now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000000000LL + t.tv_nsec;
}

static const char *told(const char *variable) {
    const char *value = getenv(variable);
    return value && *value ? value : "-";
}

static void note(const char *plugin, long long start, long long end, int status) {
    char line[512]; /* one write of a whole line: many append at once */
    int length = snprintf(line, sizeof line, "%s %s %s %lld %lld %d\n", plugin, told("CNI_COMMAND"),
                          told("CNI_CONTAINERID"), start, end, status);
    int file = open(NOTES, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    if (file < 0 || length >= (int)sizeof line) return;
    if (write(file, line, (size_t)length) < 0) return;
    close(file);
}

int main(int argc, char **argv) {
    char program[4096];
    int status;
    pid_t pid;
    (void)argc;
    if (snprintf(program, sizeof program, "%s.timed", argv[0]) >= (int)sizeof program) return 127;
    const char *slash = strrchr(argv[0], '/');
    long long start = now();
    errno = posix_spawn(&pid, program, NULL, NULL, argv, environ);
    if (errno) {
        perror(program);
        return 127;
    }
    while (waitpid(pid, &status, 0) < 0)
        if (errno != EINTR) return 127;
    note(slash ? slash + 1 : argv[0], start, now(), status);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}
