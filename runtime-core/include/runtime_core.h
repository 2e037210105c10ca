/* The C interface of runtime-core's tracing. Generated from runtime-core/c/src: do not edit.
 *
 * Link with libruntime_core_c, static (and -lpthread -ldl -lm) or shared. The shared library
 * stays loaded once it is: the flags live in it. Every function may be called from any thread. */
#ifndef RUNTIME_CORE_H
#define RUNTIME_CORE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Categories there can be. */
#define RUNTIME_CORE_CATEGORIES_MAX 200u
/* The slot that every name beyond them shares; it is never on. */
#define RUNTIME_CORE_CATEGORY_EXHAUSTED 200u
/* The category node.http, which every process has. */
#define RUNTIME_CORE_CATEGORY_NODE_HTTP 0u

/* The kind of an argument's value, and the member it is in. */
enum runtime_core_kind {
    RUNTIME_CORE_INT = 1, /* int64_t i */
    RUNTIME_CORE_UINT = 2, /* uint64_t u */
    RUNTIME_CORE_FLOAT = 3, /* double f */
    RUNTIME_CORE_BOOL = 4, /* bool b */
    RUNTIME_CORE_TEXT = 5, /* const char *text */
    RUNTIME_CORE_JSON = 6, /* const char *text */
};

/* An argument of an event. Text and JSON end with a zero. */
struct runtime_core_argument {
    const char *key;
    uint32_t kind;
    union {
        int64_t i;
        uint64_t u;
        double f;
        bool b;
        const char *text;
    } value;
};

/* Whether the category is on that a flag, &runtime_core_flags()[category], belongs to: a load
 * and a compare. */
static inline bool runtime_core_enabled(const uint32_t *flag) {
    return __atomic_load_n(flag, __ATOMIC_RELAXED) != 0;
}

/* The enable flags of all categories: 201 words, by index. A category is on while its word
 * is not 0; read it with runtime_core_enabled().
 *
 * The array never moves and is never freed, for the life of the process: when the process
 * joins an agent or leaves it, other memory is put in place under the same address. So the
 * address of a flag may be kept for ever. Do not write to it: use
 * runtime_core_set_enabled(). The words are the live ones and may change at any time. */
const uint32_t *runtime_core_flags(void);

/* The index of the category of that name, added where it is new, and good for the life of
 * the process. A name that is a list ("node,node.http") is a category of its own that is on
 * when any of its parts is. RUNTIME_CORE_CATEGORY_EXHAUSTED, which is never on, where 200 are
 * taken already and for names that are empty or longer than 128 bytes. Takes a lock only to
 * add. */
uint32_t runtime_core_category(const char *name);

/* Switches a category for the process itself, whoever else has it on or off. */
void runtime_core_set_enabled(uint32_t category, bool on);

/* Writes an event, stamped now, to whoever asked for the category's events: an agent, a
 * recording, or nobody. The phase is a letter of Chrome's trace format: B, E, i, C, or with
 * an id b, n, e. Ask runtime_core_enabled() first, so that arguments are not made in vain. */
void runtime_core_event(uint32_t category, char phase, const char *name, uint64_t id, const struct runtime_core_argument *arguments, size_t count);

/* A number that no other operation of this process has; never 0. */
uint64_t runtime_core_next_id(void);

/* Joins the tracebyte agent as this service, and keeps looking for one where there is none.
 * Returns at once: 0, or -1 where that cannot be started (runtime_core_error()). */
int runtime_core_join(const char *service);

/* Leaves the agent. Everything goes on without it. */
void runtime_core_leave(void);

/* Records events to a file of Chrome's trace format until runtime_core_record_end() or the
 * end of the process. Patterns are separated by commas: "node.*,-node.fs". In the file's name
 * ${rotation} becomes the file's number and ${pid} the process's id; NULL stands for
 * "node_trace.${rotation}.log". Returns 0, or -1 (runtime_core_error()). */
int runtime_core_record(const char *patterns, const char *file);

/* Ends the recording and says how many events were written and how many were lost; each
 * pointer may be NULL. Returns 0, or -1 where there was none or it ended early
 * (runtime_core_error()). */
int runtime_core_record_end(uint64_t *events, uint64_t *events_lost);

/* Why the last call of this thread that returned -1 did so. Good until the next one that does. */
const char *runtime_core_error(void);

#ifdef __cplusplus
}
#endif

#endif
