/* JSON without memory of its own.

   Writing: a `struct text` appends to an array its owner made; what does not fit is cut, so owners size it for the
   worst case.

   Reading: one strict pass over the whole text (RFC 8259, UTF-8, bounded depth) checks all of it and
   remembers where the values of the wanted top-level keys lie.  Keys are compared after undoing escapes; the same
   word nested deeper or inside a string is never taken for one.  Of a repeated key the last counts, as in the Go and
   Python readers on either side of us.

   With its bodies, and included once: flock.c says why. */

#ifndef FLOCK_JSON_H
#define FLOCK_JSON_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* A CNI configuration nests about six deep; the bound keeps hostile input off the end of the stack. */
#define JSON_DEPTH 64

/* Room for any string that is read out of JSON here: keys, versions, a socket path (108 with its end), and a network's
   name, after which runtimes name files (256 with its end). */
#define JSON_STRING_ROOM 256

struct span {
    const char *at; /* NULL: absent */
    size_t size;
};

struct text {
    char *at;
    size_t size, room;
};

struct field {
    const char *key;
    struct span value; /* the value's own characters, quotes and brackets included */
};

struct scanner {
    const char *at, *end;
    const char *problem; /* NULL while all is well */
};

/* Length of the UTF-8 character at `at`, or 0 where there is none: cut short, overlong, a surrogate, or beyond
   U+10FFFF. */
static size_t utf8_size(const char *at, const char *end)
{
    unsigned char first = (unsigned char)at[0];
    if (first < 0x80)
        return 1;
    size_t size = first >= 0xF0 ? 4 : first >= 0xE0 ? 3 : 2;
    if (first < 0xC2 || first > 0xF4 || (size_t)(end - at) < size)
        return 0;
    for (size_t i = 1; i < size; i++)
        if (((unsigned char)at[i] & 0xC0) != 0x80)
            return 0;
    unsigned char second = (unsigned char)at[1];
    if ((first == 0xE0 && second < 0xA0) || (first == 0xED && second > 0x9F) || (first == 0xF0 && second < 0x90) ||
        (first == 0xF4 && second > 0x8F))
        return 0;
    return size;
}

static void put_bytes(struct text *text, const char *bytes, size_t size)
{
    size_t left = text->room - text->size;
    if (size > left)
        size = left;
    memcpy(text->at + text->size, bytes, size);
    text->size += size;
}

static void put(struct text *text, const char *string)
{
    put_bytes(text, string, strlen(string));
}

static void put_number(struct text *text, uint64_t number)
{
    char digits[20];
    size_t first = sizeof digits;
    do
        digits[--first] = (char)('0' + number % 10);
    while ((number /= 10) != 0);
    put_bytes(text, digits + first, sizeof digits - first);
}

/* As a JSON string.  A byte that is not UTF-8 becomes U+FFFD: the reader always gets valid JSON. */
static void put_quoted(struct text *text, const char *at, size_t size)
{
    static const char hex[] = "0123456789abcdef";
    put(text, "\"");
    for (const char *end = at + size; at < end;) {
        size_t character = utf8_size(at, end);
        unsigned char byte = (unsigned char)*at;
        if (character == 0) {
            put(text, "\\ufffd");
            character = 1;
        } else if (byte < 0x20 || byte == 0x7F) {
            char escape[] = {'\\', 'u', '0', '0', hex[byte >> 4], hex[byte & 15]};
            put_bytes(text, escape, sizeof escape);
        } else {
            if (byte == '"' || byte == '\\')
                put(text, "\\");
            put_bytes(text, at, character);
        }
        at += character;
    }
    put(text, "\"");
}

/* The value of four hex digits, or -1. */
static int32_t hex4(const char *at, const char *end)
{
    int32_t value = 0;
    if (end - at < 4)
        return -1;
    for (int i = 0; i < 4; i++) {
        char c = at[i];
        int digit = c >= '0' && c <= '9'   ? c - '0'
                    : c >= 'a' && c <= 'f' ? c - 'a' + 10
                    : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                           : -1;
        if (digit < 0)
            return -1;
        value = value << 4 | digit;
    }
    return value;
}

static size_t encode_utf8(int32_t point, char into[4])
{
    if (point < 0x80) {
        into[0] = (char)point;
        return 1;
    }
    size_t size = point < 0x800 ? 2 : point < 0x10000 ? 3 : 4;
    for (size_t i = size - 1; i > 0; i--, point >>= 6)
        into[i] = (char)(0x80 | (point & 0x3F));
    into[0] = (char)((0xF00 >> size & 0xF0) | point); /* C0, E0, F0 for 2, 3, 4 */
    return size;
}

/* Undo the escapes of a string that was scanned before.  False for what a C string of this size cannot hold: one
   that is too long, has a NUL in it, or an escaped half of a surrogate pair. */
static bool json_string(struct span token, char into[JSON_STRING_ROOM])
{
    static const char escapes[] = "\"\\/bfnrt", meanings[] = "\"\\/\b\f\n\r\t";
    const char *at = token.at + 1, *end = token.at + token.size - 1;
    struct text out = {into, 0, JSON_STRING_ROOM};
    while (at < end && out.size < out.room) {
        if (*at != '\\') {
            put_bytes(&out, at++, 1);
        } else if (at[1] != 'u') {
            put_bytes(&out, &meanings[strchr(escapes, at[1]) - escapes], 1);
            at += 2;
        } else {
            int32_t point = hex4(at + 2, end);
            at += 6;
            if (point >= 0xD800 && point < 0xDC00 && end - at >= 6 && at[0] == '\\' && at[1] == 'u') {
                int32_t low = hex4(at + 2, end);
                at += 6;
                point = low >= 0xDC00 && low < 0xE000 ? 0x10000 + (point - 0xD800) * 0x400 + (low - 0xDC00) : 0;
            }
            if (point == 0 || (point >= 0xD800 && point < 0xE000))
                return false;
            char bytes[4];
            put_bytes(&out, bytes, encode_utf8(point, bytes));
        }
    }
    if (out.size == out.room)
        return false;
    into[out.size] = '\0';
    return true;
}

static bool wrong(struct scanner *s, const char *problem)
{
    s->problem = problem;
    return false;
}

static bool next_is(const struct scanner *s, char c)
{
    return s->at < s->end && *s->at == c;
}

static void skip_space(struct scanner *s)
{
    while (next_is(s, ' ') || next_is(s, '\n') || next_is(s, '\t') || next_is(s, '\r'))
        s->at++;
}

static bool skip(struct scanner *s, char c)
{
    if (!next_is(s, c))
        return false;
    s->at++;
    return true;
}

static bool scan_string(struct scanner *s)
{
    if (!skip(s, '"'))
        return wrong(s, "a string is expected");
    while (!skip(s, '"')) {
        if (s->at == s->end)
            return wrong(s, "a string does not end");
        if ((unsigned char)*s->at < 0x20)
            return wrong(s, "a control character stands in a string");
        if (!skip(s, '\\')) {
            size_t size = utf8_size(s->at, s->end);
            if (size == 0)
                return wrong(s, "a string is not UTF-8");
            s->at += size;
        } else if (next_is(s, 'u') && hex4(s->at + 1, s->end) >= 0) {
            s->at += 5;
        } else if (s->at < s->end && *s->at != '\0' && strchr("\"\\/bfnrt", *s->at) != NULL) {
            s->at++;
        } else {
            return wrong(s, "a string has an unknown escape");
        }
    }
    return true;
}

static bool scan_digits(struct scanner *s)
{
    const char *first = s->at;
    while (s->at < s->end && *s->at >= '0' && *s->at <= '9')
        s->at++;
    return s->at > first || wrong(s, "a digit is expected");
}

static bool scan_number(struct scanner *s)
{
    skip(s, '-');
    if (!skip(s, '0') && !scan_digits(s))
        return false;
    if (skip(s, '.') && !scan_digits(s))
        return false;
    if (skip(s, 'e') || skip(s, 'E')) {
        if (!skip(s, '+'))
            skip(s, '-');
        return scan_digits(s);
    }
    return true;
}

static bool scan_word(struct scanner *s, const char *word)
{
    size_t size = strlen(word);
    if ((size_t)(s->end - s->at) < size || memcmp(s->at, word, size) != 0)
        return wrong(s, "a value is expected");
    s->at += size;
    return true;
}

static bool scan_value(struct scanner *s, int depth);

static bool scan_array(struct scanner *s, int depth)
{
    skip(s, '[');
    skip_space(s);
    if (skip(s, ']'))
        return true;
    do {
        skip_space(s);
        if (!scan_value(s, depth))
            return false;
        skip_space(s);
    } while (skip(s, ','));
    return skip(s, ']') || wrong(s, "',' or ']' is expected");
}

static void remember(struct span key, struct span value, struct field *fields, size_t count)
{
    char name[JSON_STRING_ROOM];
    if (!json_string(key, name))
        return;
    for (size_t i = 0; i < count; i++)
        if (strcmp(name, fields[i].key) == 0)
            fields[i].value = value;
}

static bool scan_object(struct scanner *s, int depth, struct field *fields, size_t count)
{
    if (!skip(s, '{'))
        return wrong(s, "an object is expected");
    skip_space(s);
    if (skip(s, '}'))
        return true;
    do {
        skip_space(s);
        struct span key = {s->at, 0};
        if (!scan_string(s))
            return false;
        key.size = (size_t)(s->at - key.at);
        skip_space(s);
        if (!skip(s, ':'))
            return wrong(s, "':' is expected");
        skip_space(s);
        struct span value = {s->at, 0};
        if (!scan_value(s, depth))
            return false;
        value.size = (size_t)(s->at - value.at);
        skip_space(s);
        if (count > 0)
            remember(key, value, fields, count);
    } while (skip(s, ','));
    return skip(s, '}') || wrong(s, "',' or '}' is expected");
}

static bool scan_value(struct scanner *s, int depth)
{
    if (depth == 0)
        return wrong(s, "it is nested too deeply");
    switch (s->at < s->end ? *s->at : '\0') {
    case '{': return scan_object(s, depth - 1, NULL, 0);
    case '[': return scan_array(s, depth - 1);
    case '"': return scan_string(s);
    case 't': return scan_word(s, "true");
    case 'f': return scan_word(s, "false");
    case 'n': return scan_word(s, "null");
    case '-': case '0': case '1': case '2': case '3': case '4': case '5': case '6': case '7': case '8': case '9':
        return scan_number(s);
    default: return wrong(s, "a value is expected");
    }
}

/* Check that `json` is exactly one object and find `fields` in it.  NULL when it is, else what is wrong, and in
   `*offset` where. */
static const char *json_fields(struct span json, struct field *fields, size_t count, size_t *offset)
{
    struct scanner s = {json.at, json.at + json.size, NULL};
    skip_space(&s);
    if (scan_object(&s, JSON_DEPTH, fields, count)) {
        skip_space(&s);
        if (s.at < s.end)
            wrong(&s, "something follows the object");
    }
    *offset = (size_t)(s.at - json.at);
    return s.problem;
}

#endif
