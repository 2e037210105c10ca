/* A program in C that switches, asks, writes events and records them. */
#include "runtime_core.h"

#include <stdio.h>
#include <string.h>

#define MUST(condition)                                                    \
    do {                                                                   \
        if (!(condition)) {                                                \
            fprintf(stderr, "line %d: %s\n", __LINE__, #condition);        \
            return 1;                                                      \
        }                                                                  \
    } while (0)

_Static_assert(sizeof(struct runtime_core_argument) == 24, "as in Rust");

int main(int count, char **args) {
    const uint32_t *flags = runtime_core_flags();
    uint32_t jobs = runtime_core_category("c.jobs");
    uint32_t list = runtime_core_category("c,c.jobs");
    MUST(count == 2);
    MUST(runtime_core_category("node.http") == RUNTIME_CORE_CATEGORY_NODE_HTTP);
    MUST(jobs != list && jobs < RUNTIME_CORE_CATEGORIES_MAX && runtime_core_category("c.jobs") == jobs);
    MUST(runtime_core_category("") == RUNTIME_CORE_CATEGORY_EXHAUSTED);
    MUST(runtime_core_category(NULL) == RUNTIME_CORE_CATEGORY_EXHAUSTED);

    MUST(!runtime_core_enabled(&flags[jobs]));
    runtime_core_set_enabled(jobs, true);
    MUST(runtime_core_enabled(&flags[jobs]) && runtime_core_enabled(&flags[list]));
    runtime_core_set_enabled(jobs, false);
    runtime_core_set_enabled(RUNTIME_CORE_CATEGORY_EXHAUSTED, true);
    MUST(!runtime_core_enabled(&flags[jobs]) && !runtime_core_enabled(&flags[RUNTIME_CORE_CATEGORY_EXHAUSTED]));

    MUST(runtime_core_record("c.*,", args[1]) == -1);
    MUST(strstr(runtime_core_error(), "empty pattern") != NULL);
    MUST(runtime_core_record_end(NULL, NULL) == -1);
    MUST(runtime_core_record("c.*", args[1]) == 0);
    MUST(runtime_core_enabled(&flags[jobs]));
    uint64_t id = runtime_core_next_id();
    struct runtime_core_argument arguments[] = {
        {"int", RUNTIME_CORE_INT, {.i = -1}},
        {"uint", RUNTIME_CORE_UINT, {.u = UINT64_MAX}},
        {"float", RUNTIME_CORE_FLOAT, {.f = 0.5}},
        {"bool", RUNTIME_CORE_BOOL, {.b = true}},
        {"text", RUNTIME_CORE_TEXT, {.text = "a \"b\""}},
        {"json", RUNTIME_CORE_JSON, {.text = "[1, {}]"}},
        {"unknown", 99, {.i = 0}},
        {NULL, RUNTIME_CORE_INT, {.i = 0}},
    };
    runtime_core_event(jobs, 'b', "job", id, arguments, sizeof arguments / sizeof *arguments);
    runtime_core_event(jobs, 'e', "job", id, NULL, 0);
    uint64_t events = 0, lost = 1;
    MUST(runtime_core_record_end(&events, &lost) == 0);
    MUST(events == 2 && lost == 0 && !runtime_core_enabled(&flags[jobs]));

    MUST(runtime_core_join("c") == 0);
    runtime_core_leave();
    MUST(flags == runtime_core_flags());
    puts("ok");
    return 0;
}
