/* A program that closes the shared library and still holds the address of a flag. */
#include "runtime_core.h"

#include <dlfcn.h>
#include <stdio.h>

int main(int count, char **args) {
    void *library = count == 2 ? dlopen(args[1], RTLD_NOW) : NULL;
    if (library == NULL) {
        fprintf(stderr, "%s\n", dlerror());
        return 1;
    }
    const uint32_t *(*flags)(void);
    *(void **)&flags = dlsym(library, "runtime_core_flags");
    const uint32_t *held = flags();
    if (dlclose(library) != 0 || runtime_core_enabled(held)) {
        return 1;
    }
    puts("ok");
    return 0;
}
