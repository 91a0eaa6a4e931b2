/* What g++'s libraries of a newer system expect of glibc, for a wheel that is to run on an older
 * one: kernel_checks/wheel.py links this file into it. */

#define HIDDEN __attribute__((visibility("hidden")))

/* Whether the process has one thread, since glibc 2.32. That it may have more is always right:
 * libstdc++ then takes its atomic path. */
HIDDEN char __libc_single_threaded = 0;

/* In glibc's static part, which the linker's stubs lack. The handle lets glibc forget the handlers
 * if the library is unloaded. */
extern HIDDEN void* __dso_handle;
int __register_atfork(void (*before)(void), void (*parent)(void), void (*child)(void), void*);

HIDDEN int pthread_atfork(void (*before)(void), void (*parent)(void), void (*child)(void)) {
    return __register_atfork(before, parent, child, __dso_handle);
}
