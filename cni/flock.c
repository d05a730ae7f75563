/* flock, the CNI executable: environment and standard input in, one JSON line to the agent, one back, the right exit
   code.

   It knows nothing but the protocol.  What a container needs is decided by the agent behind a unix socket; this
   program checks what a runtime handed over (environment, then configuration), sends it as one line

     {"op":…,"container_id":…,"netns":…,"ifname":…,"args":…,"path":…,"stdin_data":<base64>}

   and takes one line back: {"result":…}, {"error":{…}} or {}.  Result and error are passed on byte for byte.  An
   agent that is away, or goes away before it has answered, gets the same request again until `wait` seconds are
   over: every verb is idempotent.  STATUS never waits for one (restart.h), DEL need not (later.h).  VERSION is answered
   here.  Every failure is a CNI error on standard output, exit 1.

   Read on in call.h (what the runtime hands over), loopback.h (another plugin that has to go first), agent.h (the
   connection), later.h and restart.h (an agent that is away), output.h (errors) and json.h.

   Bodies are in headers because the program is one unit: everything is static, so the compiler names what nobody
   calls, and inlines and drops across files without the linker's help; state stays where it is used; and one call of
   any compiler builds it, for hosts as well as for tests with sanitizers.

   Why C: it runs once or more per pod, on hosts that may have no Python, and is to be done in about a
   millisecond.  All memory is static; pages that a call does not touch cost nothing. */

#define _GNU_SOURCE
#include <signal.h>

#include "agent.h"
#include "call.h"
#include "json.h"
#include "later.h"
#include "loopback.h"
#include "output.h"
#include "restart.h"

/* These two may be set by the compiler, for tests that are not to take as long.

   For an agent that is there but slow, beyond `wait`: with the default wait this ends before the two minutes after
   which the kubelet drops a runtime request, so that an error with a reason comes back instead of a killed plugin. */
#ifndef ANSWER_GRACE_MS
#define ANSWER_GRACE_MS 60000
#endif

/* The runtime asks for STATUS within its own status call: a late answer is as good as none. */
#ifndef STATUS_PATIENCE_MS
#define STATUS_PATIENCE_MS 5000
#endif

/* Five variables with each byte escaped to six, the configuration in base64, and the keys. */
#define REQUEST_ROOM (5 * 6 * VARIABLE_LIMIT + CONFIG_LIMIT / 3 * 4 + 4 + 256)

static noreturn void answer_version(const struct config *config)
{
    static const char newest[] = "\"" NEWEST_VERSION "\"";
    static const char before[] = "{\"cniVersion\":";
    static const char after[] = ",\"supportedVersions\":[\"0.4.0\",\"1.0.0\",\"1.1.0\"]}\n";
    struct span given = config->fields[CNI_VERSION].value;
    if (config->problem != NULL || !is_string(given))
        given = (struct span){newest, sizeof newest - 1};
    exit(print(before, sizeof before - 1) && print(given.at, given.size) && print(after, sizeof after - 1) ? 0 : 1);
}

static void put_base64(struct text *text, const char *at, size_t size)
{
    static const char alphabet[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    for (size_t i = 0; i < size; i += 3) {
        size_t have = size - i < 3 ? size - i : 3;
        uint32_t bits = 0;
        for (size_t j = 0; j < 3; j++)
            bits = bits << 8 | (j < have ? (unsigned char)at[i + j] : 0);
        char group[] = {alphabet[bits >> 18], alphabet[bits >> 12 & 63], have > 1 ? alphabet[bits >> 6 & 63] : '=',
                        have > 2 ? alphabet[bits & 63] : '='};
        put_bytes(text, group, sizeof group);
    }
}

static void put_member(struct text *text, const char *key, const char *value)
{
    put(text, key);
    put_quoted(text, value, strlen(value));
}

static struct span build_request(const struct call *call)
{
    static char bytes[REQUEST_ROOM];
    struct text line = {bytes, 0, sizeof bytes};
    put_member(&line, "{\"op\":", call->verb->name);
    put_member(&line, ",\"container_id\":", call->container_id);
    put_member(&line, ",\"netns\":", call->netns);
    put_member(&line, ",\"ifname\":", call->ifname);
    put_member(&line, ",\"args\":", call->args);
    put_member(&line, ",\"path\":", call->path);
    put(&line, ",\"stdin_data\":\"");
    put_base64(&line, call->config.at, call->config.size);
    put(&line, "\"}\n");
    return (struct span){bytes, line.size};
}

static noreturn void give_up(const struct call *call, const struct reply *reply)
{
    static const char *const complaints[] = {
        [ABSENT] = "no agent listens at ",
        [BUSY] = "too many calls wait for the agent at ",
        [HUNG_UP] = "no answer, only closed connections, from the agent at ",
        [SILENT] = "no answer from the agent at ",
    };
    if (reply->outcome == UNREACHABLE)
        fail(IO_FAILURE, "The runtime must run as root, on the agent's node.", "the agent's socket ", call->socket,
             " cannot be used: ", strerror(reply->reason), NULL);
    if (reply->outcome == TOO_LONG)
        fail(DECODING_FAILURE, "Is this flock-agent's socket?", "the answer of the agent at ", call->socket,
             " is longer than 4 MiB", NULL);
    bool waited = reply->waited_ms > 0;
    fail(verb_is(call, "STATUS") ? NOT_AVAILABLE : TRY_AGAIN,
         "Is flock-agent running on this node, and is its socket the one that `socket` in the network configuration"
         " names?  Its log says more.  Every call may be repeated.",
         complaints[reply->outcome], call->socket, waited ? " for " : "", waited ? seconds(reply->waited_ms).at : "",
         waited ? " s" : "", NULL);
}

static struct span ask_agent(const struct call *call)
{
    struct patience patience = {call->wait_ms, call->wait_ms, call->wait_ms + ANSWER_GRACE_MS};
    if (verb_is(call, "STATUS"))
        patience = (struct patience){0, STATUS_PATIENCE_MS, STATUS_PATIENCE_MS};
    struct span request = build_request(call);
    struct reply reply;
    if (!call->defers || !ask_or_leave(call, request, patience, &reply))
        reply = ask(call->socket, request, &patience);
    if (verb_is(call, "STATUS") && nobody_there(&reply) && is_restarting(call))
        exit(0);
    if (reply.outcome != ANSWERED)
        give_up(call, &reply);
    return reply.answer;
}

/* Hand the answer on and end. */
static noreturn void deliver(const struct call *call, struct span answer)
{
    enum { RESULT, ERROR, ANSWER_FIELDS };
    struct field fields[ANSWER_FIELDS] = {[RESULT] = {.key = "result"}, [ERROR] = {.key = "error"}};
    size_t offset;
    const char *syntax = json_fields(answer, fields, ANSWER_FIELDS, &offset), *problem = syntax;
    struct span result = fields[RESULT].value, error = fields[ERROR].value;
    bool failed = error.at != NULL && *error.at != 'n', adds = verb_is(call, "ADD"); /* null is as good as absent */
    if (syntax == NULL && failed && *error.at != '{')
        problem = "`error` is no object";
    if (syntax == NULL && !failed && adds && (result.at == NULL || *result.at != '{'))
        problem = "there is no object `result` for ADD";
    if (problem != NULL)
        fail(DECODING_FAILURE, "Are the agent and this executable of the same release?", "the answer of the agent at ",
             call->socket, " is malformed: ", problem, syntax != NULL ? ", at byte " : "",
             syntax != NULL ? decimal(offset).at : "", NULL);
    struct span shown = failed ? error : adds ? result : (struct span){"", 0};
    exit((shown.size == 0 || (print(shown.at, shown.size) && print("\n", 1))) && !failed ? 0 : 1);
}

int main(void)
{
    signal(SIGPIPE, SIG_IGN); /* a reader that went away is a failed write, not the end */
    struct config config = read_config();
    struct call call = {.verb = read_verb()};
    if (verb_is(&call, "VERSION"))
        answer_version(&config);
    read_environment(&call);
    understand(&call, &config);
    let_loopback_finish(&call);
    deliver(&call, ask_agent(&call));
}
