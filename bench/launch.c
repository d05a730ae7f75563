/* The launcher: starts commands as a container runtime does and times each from spawn to exit.
 *
 *   launch PLAN TIMES AT_ONCE PAUSE_MICROSECONDS
 *
 * PLAN holds one word per line; a command is any of these, ended by `go`:
 *
 *   node PATH     network namespace to start it in (entered by the launcher, outside the timed span)
 *   stdin PATH    what it reads, default nothing
 *   stdout PATH   where its output goes, default nowhere
 *   env KEY=VALUE its whole environment, one line each
 *   arg WORD      its argument vector, the first being the executable's path
 *   go
 *
 * AT_ONCE 1 runs them one after the other with a pause between, so that what one leaves behind (a kernel worker, an
 * agent's after-work) is not charged to the next; more keeps that many running until none is left.  TIMES gets a
 * line per command, in the plan's order: wait status, start and end on the monotonic clock in nanoseconds.
 * On SIGTERM or SIGINT it starts no more and waits for those that run, so that nobody writes after it is gone.
 *
 * It is C because the interpreter's own fork and wait would be a visible part of a two-millisecond span.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { MOST_WORDS = 32 };

struct command {
    char *node, *input, *output;
    char *argument[MOST_WORDS], *environment[MOST_WORDS];
    int arguments, variables;
    pid_t pid;
    int status;
    long long start, end;
};

static volatile sig_atomic_t stopped;

static void stop(int number) {
    (void)number;
    stopped = 1;
}

static void die(const char *what) {
    fprintf(stderr, "launch: %s: %s\n", what, errno ? strerror(errno) : "bad plan");
    exit(2);
}

static long long now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000000000LL + t.tv_nsec;
}

static void append(char **words, int *count, char *word) {
    if (*count == MOST_WORDS - 1) die("too many words");
    words[(*count)++] = word;
}

static struct command *read_plan(const char *path, int *count) {
    FILE *file = fopen(path, "re");
    struct command *commands = NULL, current = {0};
    char *line = NULL;
    size_t room = 0;
    ssize_t length;
    *count = 0;
    if (!file) die(path);
    while ((length = getline(&line, &room, file)) > 0) {
        if (line[length - 1] == '\n') line[length - 1] = 0;
        char *space = strchr(line, ' '), *value = strdup(space ? space + 1 : "");
        if (space) *space = 0;
        if (!strcmp(line, "node")) current.node = value;
        else if (!strcmp(line, "stdin")) current.input = value;
        else if (!strcmp(line, "stdout")) current.output = value;
        else if (!strcmp(line, "env")) append(current.environment, &current.variables, value);
        else if (!strcmp(line, "arg")) append(current.argument, &current.arguments, value);
        else if (!strcmp(line, "go")) {
            commands = realloc(commands, (size_t)(*count + 1) * sizeof *commands);
            if (!commands) die("memory");
            commands[(*count)++] = current;
            memset(&current, 0, sizeof current);
        } else {
            errno = 0;
            die(line);
        }
    }
    fclose(file);
    return commands;
}

static void enter(const char *node) {
    static const char *entered;
    if (entered && !strcmp(entered, node)) return;
    int fd = open(node, O_RDONLY | O_CLOEXEC);
    if (fd < 0 || setns(fd, CLONE_NEWNET) < 0) die(node);
    close(fd);
    entered = node;
}

static void spawn(struct command *c) {
    posix_spawn_file_actions_t actions;
    int input = open(c->input ? c->input : "/dev/null", O_RDONLY | O_CLOEXEC);
    int output = open(c->output ? c->output : "/dev/null", O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (input < 0 || output < 0) die("stdin or stdout");
    if (c->node) enter(c->node);
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, input, 0);
    posix_spawn_file_actions_adddup2(&actions, output, 1);
    posix_spawn_file_actions_adddup2(&actions, output, 2);
    c->start = now();
    errno = posix_spawn(&c->pid, c->argument[0], &actions, NULL, c->argument, c->environment);
    if (errno) die(c->argument[0]);
    posix_spawn_file_actions_destroy(&actions);
    close(input);
    close(output);
}

static void reap(struct command *commands, int count) {
    int status;
    pid_t pid = wait(&status);
    long long end = now();
    if (pid < 0) die("wait");
    for (int i = 0; i < count; i++)
        if (commands[i].pid == pid) {
            commands[i].status = status;
            commands[i].end = end;
            commands[i].pid = 0;
        }
}

int main(int argc, char **argv) {
    int count, running = 0;
    if (argc != 5) {
        fprintf(stderr, "usage: launch PLAN TIMES AT_ONCE PAUSE_MICROSECONDS\n");
        return 2;
    }
    struct command *commands = read_plan(argv[1], &count);
    int at_once = atoi(argv[3]);
    useconds_t pause = (useconds_t)atoi(argv[4]);
    struct sigaction action = {.sa_handler = stop, .sa_flags = SA_RESTART};
    sigaction(SIGTERM, &action, NULL);
    sigaction(SIGINT, &action, NULL);
    for (int next = 0; (next < count && !stopped) || running;) {
        if (next < count && !stopped && running < at_once) {
            if (pause) usleep(pause);
            spawn(&commands[next++]);
            running++;
        } else {
            reap(commands, count);
            running--;
        }
    }
    if (stopped) return 1;
    FILE *times = fopen(argv[2], "we");
    if (!times) die(argv[2]);
    for (int i = 0; i < count; i++)
        fprintf(times, "%d %lld %lld\n", commands[i].status, commands[i].start, commands[i].end);
    if (fclose(times)) die(argv[2]);
    return 0;
}
