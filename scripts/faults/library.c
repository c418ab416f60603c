/* Makes chosen system calls fail: preloaded by scripts/fault_injection.py, which arms it in forked children.
 *
 * What counts is every call about a path below one of the watched folders, about a descriptor that was opened there,
 * every mapping without a file that Python code asks for (by ctypes or the module mmap), and every larger piece of
 * memory that Python itself asks for. Calls count from 1 when `fault_arm` is called.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/uio.h>
#include <unistd.h>

enum { COUNT, FAIL, FAIL_EVER_AFTER, KILL, SHORT }; /* ever after: in the same folder, as where its disk fails */
enum { DESCRIPTORS = 4096, FOLDERS = 4, NAMES = 1 << 16, LARGE = 1024 };

static char folders[FOLDERS][PATH_MAX];
static unsigned char watched[DESCRIPTORS]; /* 1 + the number of the folder */
static int mode, at, error, count, armed, folder_hit;
static char names[NAMES];

void fault_watch(int number, const char *folder) { strncpy(folders[number], folder, PATH_MAX - 1); }

void fault_arm(int new_mode, int new_at, int new_error)
{
    mode = new_mode, at = new_at, error = new_error, count = 0, folder_hit = -1, names[0] = 0;
    armed = 1;
}

int fault_disarm(void) { armed = 0; return count; }
int fault_folder(void) { return folder_hit; } /* of the first call that failed; FOLDERS for memory */
const char *fault_names(void) { return names; }

/* Whether this call fails; `folder` is 1 + its number, 0 for a call that does not count. */
static int strikes(const char *name, int folder, int can_be_short)
{
    if (!armed || !folder)
        return 0;
    int number = __atomic_add_fetch(&count, 1, __ATOMIC_SEQ_CST);
    if (mode == COUNT && strlen(names) + strlen(name) + 2 < NAMES)
        strcat(strcat(names, name), " ");
    if (mode == KILL && number == at)
        kill(getpid(), SIGKILL);
    int now = number == at || (mode == FAIL_EVER_AFTER && folder_hit == folder - 1);
    if (!now || mode == COUNT || (mode == SHORT && !can_be_short))
        return 0;
    if (folder_hit < 0)
        folder_hit = folder - 1;
    errno = error;
    return 1;
}

static int folder_of(const char *path)
{
    for (int number = 0; path && number < FOLDERS; number++) {
        size_t length = strlen(folders[number]);
        if (length && !strncmp(path, folders[number], length) && (path[length] == '/' || !path[length]))
            return number + 1;
    }
    return 0;
}

static int of(int descriptor) { return descriptor >= 0 && descriptor < DESCRIPTORS ? watched[descriptor] : 0; }

static int below(int directory, const char *path)
{
    return path && path[0] != '/' && directory != AT_FDCWD ? of(directory) : folder_of(path);
}

static int note(int descriptor, int folder)
{
    if (descriptor >= 0 && descriptor < DESCRIPTORS)
        watched[descriptor] = folder;
    return descriptor;
}

#define REAL(type, name, ...)                                                                                          \
    static type (*real)(__VA_ARGS__);                                                                                  \
    if (!real)                                                                                                         \
    real = (type(*)(__VA_ARGS__))dlsym(RTLD_NEXT, #name)

#define MODE(flags)                                                                                                    \
    mode_t rights = 0;                                                                                                 \
    if ((flags) & (O_CREAT | O_TMPFILE)) {                                                                             \
        va_list list;                                                                                                  \
        va_start(list, flags);                                                                                         \
        rights = va_arg(list, mode_t);                                                                                 \
        va_end(list);                                                                                                  \
    }

int open64(const char *path, int flags, ...)
{
    REAL(int, open64, const char *, int, ...);
    MODE(flags)
    int folder = folder_of(path);
    return strikes("open", folder, 0) ? -1 : note(real(path, flags, rights), folder);
}

int openat64(int directory, const char *path, int flags, ...)
{
    REAL(int, openat64, int, const char *, int, ...);
    MODE(flags)
    int folder = below(directory, path);
    return strikes("openat", folder, 0) ? -1 : note(real(directory, path, flags, rights), folder);
}

int fcntl64(int descriptor, int command, ...)
{
    REAL(int, fcntl64, int, int, ...);
    va_list list;
    va_start(list, command);
    long argument = va_arg(list, long);
    va_end(list);
    int copies = command == F_DUPFD_CLOEXEC || command == F_DUPFD;
    if (copies && strikes("dup", of(descriptor), 0))
        return -1;
    int found = real(descriptor, command, argument);
    return copies ? note(found, of(descriptor)) : found;
}

int close(int descriptor)
{
    REAL(int, close, int);
    int folder = of(descriptor), found = real(descriptor); /* Linux closes it whatever it answers */
    note(descriptor, 0);
    return strikes("close", folder, 0) ? -1 : found;
}

int closedir(DIR *directory) /* which closes its descriptor unseen */
{
    REAL(int, closedir, DIR *);
    note(dirfd(directory), 0);
    return real(directory);
}

/* A call on a descriptor or a path, which answers `failure` where it fails. */
#define CALL(type, name, shown, folder, failure, parameters, arguments)                                                \
    type name parameters                                                                                               \
    {                                                                                                                  \
        static type(*real) parameters;                                                                                 \
        if (!real)                                                                                                     \
            real = (type(*) parameters)dlsym(RTLD_NEXT, #name);                                                        \
        return strikes(shown, folder, 0) ? failure : real arguments;                                                   \
    }

CALL(int, fstat64, "fstat", of(d), -1, (int d, struct stat64 *s), (d, s))
CALL(int, stat64, "stat", folder_of(p), -1, (const char *p, struct stat64 *s), (p, s))
CALL(int, lstat64, "lstat", folder_of(p), -1, (const char *p, struct stat64 *s), (p, s))
CALL(int, fstatat64, "fstatat", below(d, p), -1, (int d, const char *p, struct stat64 *s, int f), (d, p, s, f))
CALL(int, fstatfs, "fstatfs", of(d), -1, (int d, struct statfs *s), (d, s))
CALL(int, fchmod, "fchmod", of(d), -1, (int d, mode_t m), (d, m))
CALL(int, fsync, "fsync", of(d), -1, (int d), (d))
CALL(int, fdatasync, "fdatasync", of(d), -1, (int d), (d))
CALL(int, flock, "flock", of(d), -1, (int d, int o), (d, o))
CALL(int, mkdir, "mkdir", folder_of(p), -1, (const char *p, mode_t m), (p, m))
CALL(int, unlinkat, "unlinkat", below(d, p), -1, (int d, const char *p, int f), (d, p, f))
CALL(int, renameat, "renameat", below(d, p), -1, (int d, const char *p, int e, const char *q), (d, p, e, q))
CALL(DIR *, fdopendir, "fdopendir", of(d), NULL, (int d), (d))
CALL(struct dirent64 *, readdir64, "readdir", of(dirfd(d)), NULL, (DIR * d), (d))

/* A transfer, which may also be half done. */
#define TRANSFER(name, shown, parameters, arguments, halve)                                                            \
    ssize_t name parameters                                                                                            \
    {                                                                                                                  \
        static ssize_t(*real) parameters;                                                                              \
        if (!real)                                                                                                     \
            real = (ssize_t(*) parameters)dlsym(RTLD_NEXT, #name);                                                     \
        if (strikes(shown, of(d), 1)) {                                                                                \
            if (mode != SHORT)                                                                                         \
                return -1;                                                                                             \
            halve;                                                                                                     \
        }                                                                                                              \
        return real arguments;                                                                                         \
    }

#define HALVE_VECTOR                                                                                                   \
    struct iovec half = {v->iov_base, v->iov_len > 1 ? v->iov_len / 2 : v->iov_len};                                   \
    v = &half, c = 1

TRANSFER(read, "read", (int d, void *b, size_t n), (d, b, n), if (n > 1) n /= 2)
TRANSFER(write, "write", (int d, const void *b, size_t n), (d, b, n), if (n > 1) n /= 2)

ssize_t readv(int d, const struct iovec *v, int c)
{
    REAL(ssize_t, readv, int, const struct iovec *, int);
    struct iovec half = {v->iov_base, v->iov_len > 1 ? v->iov_len / 2 : v->iov_len};
    if (!strikes("readv", of(d), 1))
        return real(d, v, c);
    return mode == SHORT ? real(d, &half, 1) : -1;
}

ssize_t preadv64v2(int d, const struct iovec *v, int c, off64_t o, int f)
{
    REAL(ssize_t, preadv64v2, int, const struct iovec *, int, off64_t, int);
    struct iovec half = {v->iov_base, v->iov_len > 1 ? v->iov_len / 2 : v->iov_len};
    if (!strikes("preadv", of(d), 1))
        return real(d, v, c, o, f);
    return mode == SHORT ? real(d, &half, 1, o, f) : -1;
}

/* Whether one of these modules asks: others, such as the compiler, have no answer to ENOMEM but to end the process. */
static int is_from(const void *caller, const char *one, const char *other)
{
    Dl_info found;
    return armed && dladdr(caller, &found) && (strstr(found.dli_fname, one) || strstr(found.dli_fname, other));
}

static void *map(void *(*real)(void *, size_t, int, int, int, off64_t), const void *caller, void *a, size_t n, int p,
                 int f, int d, off64_t o)
{
    int folder = f & MAP_ANONYMOUS ? (is_from(caller, "ffi", "/mmap.") ? FOLDERS + 1 : 0) : of(d);
    if (strikes(folder > FOLDERS ? "mmap-memory" : "mmap", folder, 0)) {
        if (folder > FOLDERS)
            errno = ENOMEM;
        return MAP_FAILED;
    }
    return real(a, n, p, f, d, o);
}

void *mmap64(void *a, size_t n, int p, int f, int d, off64_t o)
{
    REAL(void *, mmap64, void *, size_t, int, int, int, off64_t);
    return map(real, __builtin_return_address(0), a, n, p, f, d, o);
}

void *mmap(void *a, size_t n, int p, int f, int d, off_t o)
{
    REAL(void *, mmap, void *, size_t, int, int, int, off_t);
    return map(real, __builtin_return_address(0), a, n, p, f, d, o);
}

int mprotect(void *a, size_t n, int p)
{
    REAL(int, mprotect, void *, size_t, int);
    int folder = is_from(__builtin_return_address(0), "ffi", "_ctypes") ? FOLDERS + 1 : 0;
    return strikes("mprotect", folder, 0) ? (errno = ENOMEM, -1) : real(a, n, p);
}

/* Python's larger pieces of memory: contents of files, buffers, tensors. */
void *__libc_malloc(size_t);
void *__libc_calloc(size_t, size_t);

static int is_pythons(size_t n, const void *caller)
{
    return armed && n >= LARGE && is_from(caller, "libpython", "/bin/python") ? FOLDERS + 1 : 0;
}

void *malloc(size_t n)
{
    return strikes("malloc", is_pythons(n, __builtin_return_address(0)), 0) ? NULL : __libc_malloc(n);
}

void *calloc(size_t c, size_t n)
{
    return strikes("calloc", is_pythons(c * n, __builtin_return_address(0)), 0) ? NULL : __libc_calloc(c, n);
}
