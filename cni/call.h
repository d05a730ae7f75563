/* What the runtime hands over, checked: the verb, its environment variables, and the keys of the network
   configuration that concern this program.  Standard input is read first, because even an error in the environment
   is to carry the configuration's cniVersion; what is wrong with it is reported last.

   With its bodies, and included once: flock.c says why. */

#ifndef FLOCK_CALL_H
#define FLOCK_CALL_H

#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/un.h>
#include <unistd.h>

#include "json.h"
#include "output.h"

#define DEFAULT_SOCKET "/run/flock/flock.sock"
#define DEFAULT_WAIT_MS 30000

/* An hour: no runtime waits longer for a plugin, and no sum of milliseconds can overflow. */
#define LONGEST_WAIT_MS 3600000

/* GC brings about 100 bytes for each attachment of the node, a chain its previous result: 40 times what 1000 pods
   need. */
#define CONFIG_LIMIT ((size_t)4 << 20)

/* Sixteen longest paths: CNI_PATH is a list of directories.  */
#define VARIABLE_LIMIT ((size_t)64 << 10)

static const char *const supported_versions[] = {"0.4.0", "1.0.0", NEWEST_VERSION};

struct verb {
    const char *name;
    bool attachment; /* is about one container's interface */
    bool netns;      /* cannot do without the container's namespace */
    bool since_1_1;
};

static const struct verb verbs[] = {
    {"ADD", true, true, false}, {"DEL", true, false, false}, {"CHECK", true, true, false},
    {"GC", false, false, true}, {"STATUS", false, false, true}, {"VERSION", false, false, false},
};

enum { CNI_VERSION, NAME, SOCKET, WAIT, DEFER_DEL, CONFIG_FIELDS };

struct config {
    struct span json;
    struct field fields[CONFIG_FIELDS];
    int read_error;      /* errno, 0 for none */
    const char *problem; /* NULL if it is one JSON object, else why not, and at which byte */
    size_t offset;
};

struct call {
    const struct verb *verb;
    const char *container_id, *netns, *ifname, *args, *path; /* "" where the verb has none */
    struct span config;
    char socket[JSON_STRING_ROOM];
    int64_t wait_ms;
    bool defers; /* leaves a DEL for an agent that is away */
};

/* The path of what an agent keeps in its socket's directory, and its length. */
static size_t beside_socket(const struct call *call, const char *name, char path[static PATH_MAX])
{
    struct text text = {path, 0, PATH_MAX - 1};
    put_bytes(&text, call->socket, (size_t)(strrchr(call->socket, '/') + 1 - call->socket));
    put(&text, name);
    path[text.size] = '\0';
    return text.size;
}

static bool verb_is(const struct call *call, const char *name)
{
    return strcmp(call->verb->name, name) == 0;
}

/* All of standard input, up to one byte beyond the limit.  A terminal counts as empty: someone tries the program by
   hand. */
static void read_stdin(struct config *config)
{
    static char bytes[CONFIG_LIMIT + 1];
    struct span *json = &config->json;
    json->at = bytes;
    if (isatty(STDIN_FILENO))
        return;
    while (json->size < sizeof bytes) {
        ssize_t got = read(STDIN_FILENO, bytes + json->size, sizeof bytes - json->size);
        if (got > 0) {
            json->size += (size_t)got;
        } else if (got == 0) {
            return;
        } else if (!not_yet(STDIN_FILENO, POLLIN)) {
            config->read_error = errno;
            return;
        }
    }
}

static bool is_string(struct span value)
{
    return value.at != NULL && *value.at == '"';
}

/* Whatever is wrong is only noted: VERSION does not mind, and an environment error comes first. */
static struct config read_config(void)
{
    struct config config = {.fields = {[CNI_VERSION].key = "cniVersion", [NAME].key = "name", [SOCKET].key = "socket",
                                       [WAIT].key = "wait", [DEFER_DEL].key = "deferDel"}};
    char version[JSON_STRING_ROOM];
    read_stdin(&config);
    config.problem = json_fields(config.json, config.fields, CONFIG_FIELDS, &config.offset);
    if (config.json.size > CONFIG_LIMIT)
        config.problem = "it is larger than 4 MiB";
    struct span given = config.fields[CNI_VERSION].value;
    if (config.problem == NULL && is_string(given) && json_string(given, version))
        for (size_t i = 0; i < sizeof supported_versions / sizeof *supported_versions; i++)
            if (strcmp(version, supported_versions[i]) == 0)
                spoken_version = supported_versions[i];
    return config;
}

static bool is_alphanumeric(char c)
{
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

/* The form that the specification gives to container ids and to networks' names alike. */
static const char *identifier_problem(const char *value)
{
    if (!is_alphanumeric(*value))
        return "does not start with a letter or digit";
    for (; *value != '\0'; value++)
        if (!is_alphanumeric(*value) && strchr("_.-", *value) == NULL)
            return "has more in it than letters, digits, '_', '.' and '-'";
    return NULL;
}

/* What is not UTF-8 cannot reach the agent unchanged in JSON; a name or path that changed on the way would be the
   wrong one. */
static const char *utf8_problem(const char *value)
{
    for (const char *end = value + strlen(value); value < end;) {
        size_t size = utf8_size(value, end);
        if (size == 0)
            return "is not UTF-8";
        value += size;
    }
    return NULL;
}

static const char *ifname_problem(const char *value)
{
    if (strlen(value) > 15)
        return "is longer than 15 bytes";
    if (strcmp(value, ".") == 0 || strcmp(value, "..") == 0)
        return "is no name for an interface";
    if (strpbrk(value, "/: \t\n\v\f\r") != NULL)
        return "has '/', ':' or white space in it";
    return utf8_problem(value);
}

static const char *anything_goes(const char *value)
{
    (void)value; /* CNI_ARGS and CNI_PATH: bytes that are not UTF-8 reach the agent as U+FFFD and spoil nothing there */
    return NULL;
}

/* The value of a variable, "" if unset.  What is wrong with it is added to `problems`. */
static const char *variable(struct text *problems, const char *name, bool required,
                            const char *(*problem_of)(const char *))
{
    const char *value = getenv(name);
    if (value == NULL)
        value = "";
    const char *problem = *value == '\0'                   ? (required ? "is missing" : NULL)
                          : strlen(value) > VARIABLE_LIMIT ? "is longer than 64 KiB"
                                                           : problem_of(value);
    if (problem != NULL) {
        put(problems, problems->size > 0 ? "; " : "");
        put(problems, name);
        put(problems, *value != '\0' ? " \"" : " ");
        put_bytes(problems, value, strnlen(value, 64)); /* enough to recognise it */
        put(problems, *value != '\0' ? "\" " : "");
        put(problems, problem);
    }
    return value;
}

static const char *verb_problem(const char *value)
{
    for (size_t i = 0; i < sizeof verbs / sizeof *verbs; i++)
        if (strcmp(value, verbs[i].name) == 0)
            return NULL;
    return "is none of ADD, DEL, CHECK, GC, STATUS, VERSION";
}

static void check_environment(const struct text *problems)
{
    if (problems->size > 0)
        fail(INVALID_ENVIRONMENT, "The container runtime sets these; flock is not meant to be called by hand.",
             problems->at, NULL);
}

static const struct verb *read_verb(void)
{
    char bytes[256] = "";
    struct text problems = {bytes, 0, sizeof bytes - 1};
    const char *name = variable(&problems, "CNI_COMMAND", true, verb_problem);
    check_environment(&problems);
    const struct verb *verb = verbs;
    while (strcmp(verb->name, name) != 0)
        verb++;
    return verb;
}

/* All problems in one error, so that a broken runtime is mended in one go. */
static void read_environment(struct call *call)
{
    char bytes[1024] = "";
    struct text problems = {bytes, 0, sizeof bytes - 1};
    call->container_id = call->netns = call->ifname = call->args = "";
    if (call->verb->attachment) {
        call->container_id = variable(&problems, "CNI_CONTAINERID", true, identifier_problem);
        call->netns = variable(&problems, "CNI_NETNS", call->verb->netns, utf8_problem);
        call->ifname = variable(&problems, "CNI_IFNAME", true, ifname_problem);
        call->args = variable(&problems, "CNI_ARGS", false, anything_goes);
    }
    call->path = variable(&problems, "CNI_PATH", true, anything_goes);
    check_environment(&problems);
}

static noreturn void bad_field(const char *key, const char *problem)
{
    fail(INVALID_CONFIG, "Correct it in the network configuration list or flock's entry of it.", key, ": ", problem, NULL);
}

static void check_name(struct span given)
{
    char name[JSON_STRING_ROOM];
    if (given.at == NULL)
        bad_field("name", "is missing");
    if (!is_string(given))
        bad_field("name", "a string is expected");
    const char *problem = json_string(given, name) ? identifier_problem(name) : "is no network's name";
    if (problem != NULL)
        bad_field("name", problem);
}

static void check_version(const struct verb *verb, struct span given)
{
    static const char remedy[] = "Use one of the supported versions in the network configuration list.";
    char version[JSON_STRING_ROOM] = "0.1.0"; /* what the specification reads into a missing one */
    if (given.at != NULL && !is_string(given))
        bad_field("cniVersion", "a string is expected");
    if (given.at != NULL && !json_string(given, version))
        strcpy(version, "(unreadable)");
    if (strcmp(version, spoken_version) != 0) /* which is the configuration's if it is one of ours */
        fail(INCOMPATIBLE_VERSION, remedy, "cniVersion \"", version, given.at == NULL ? "\" (none is given)" : "\"",
             " is not supported; 0.4.0, 1.0.0 and 1.1.0 are", NULL);
    if (verb->since_1_1 && strcmp(version, NEWEST_VERSION) != 0)
        fail(INCOMPATIBLE_VERSION, remedy, verb->name, " needs cniVersion 1.1.0, the configuration has ", version,
             NULL);
}

static void read_socket(struct call *call, struct span given)
{
    strcpy(call->socket, DEFAULT_SOCKET);
    if (given.at == NULL)
        return;
    if (!is_string(given))
        bad_field("socket", "a string is expected");
    if (!json_string(given, call->socket) || strlen(call->socket) >= sizeof((struct sockaddr_un *)NULL)->sun_path)
        bad_field("socket", "a unix socket's path has at most 107 bytes, none of them NUL");
    if (call->socket[0] != '/')
        bad_field("socket", "an absolute path is expected");
}

static void read_wait(struct call *call, struct span given)
{
    call->wait_ms = DEFAULT_WAIT_MS;
    if (given.at == NULL)
        return;
    if (*given.at != '-' && (*given.at < '0' || *given.at > '9'))
        bad_field("wait", "a number of seconds is expected");
    double ms = strtod(given.at, NULL) * 1000; /* ends where the scanner did: at a comma, brace or space */
    if (ms < 0)
        bad_field("wait", "a number of seconds is expected, zero or more");
    call->wait_ms = ms < LONGEST_WAIT_MS ? (int64_t)ms : LONGEST_WAIT_MS;
}

static void read_defer(struct call *call, struct span given)
{
    if (given.at != NULL && *given.at != 't' && *given.at != 'f')
        bad_field("deferDel", "true or false is expected");
    call->defers = given.at != NULL && *given.at == 't' && verb_is(call, "DEL");
}

static void understand(struct call *call, const struct config *config)
{
    if (config->read_error != 0)
        fail(IO_FAILURE, "The container runtime writes it to standard input.",
             "the network configuration cannot be read: ", strerror(config->read_error), NULL);
    if (config->problem != NULL)
        fail(DECODING_FAILURE, "The container runtime writes it to standard input as one JSON object.",
             "the network configuration is no JSON object: ", config->problem, ", at byte ", decimal(config->offset).at,
             NULL);
    check_name(config->fields[NAME].value);
    check_version(call->verb, config->fields[CNI_VERSION].value);
    read_socket(call, config->fields[SOCKET].value);
    read_wait(call, config->fields[WAIT].value);
    read_defer(call, config->fields[DEFER_DEL].value);
    call->config = config->json;
}

#endif
