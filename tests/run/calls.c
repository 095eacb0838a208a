/* Logs what a process does with files in one folder, or lets one such call fail.

   Preloaded.  CALLS_FOLDER is the folder, CALLS_LOG the log: of each call that has succeeded a
   line "operation, offset, length, length of path, length of other path", then these in bytes. */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

static const char *failing = "";
static long failing_number, seen;
static int failing_error;

/* Let the n-th call of an operation fail from now on, counted from 0; -1 only counts them. */
void calls_fail(const char *operation, long number, int error) {
    failing = strdup(operation);
    failing_number = number;
    failing_error = error;
    seen = 0;
}

long calls_seen(void) { return seen; }

static int fails(const char *operation) {
    if (strcmp(operation, failing) != 0 || seen++ != failing_number) return 0;
    errno = failing_error;
    return 1;
}

/* Write a path below the folder, without that: the empty one is the folder's own.  0: elsewhere. */
static int below(int at, const char *path, char *found) {
    const char *folder = getenv("CALLS_FOLDER");
    char whole[2 * PATH_MAX], link[64];
    if (folder == NULL) return 0;
    if (path != NULL && path[0] == '/') {
        snprintf(whole, sizeof whole, "%s", path);
    } else {
        if (at == AT_FDCWD) snprintf(link, sizeof link, "/proc/self/cwd");
        else snprintf(link, sizeof link, "/proc/self/fd/%d", at);
        ssize_t length = readlink(link, whole, PATH_MAX);
        if (length < 0) return 0;
        whole[length] = 0;
        if (path != NULL) snprintf(whole + length, PATH_MAX, "/%s", path);
    }
    size_t length = strlen(folder);
    if (strncmp(whole, folder, length) != 0) return 0;
    if (whole[length] != '/' && whole[length] != 0) return 0;
    snprintf(found, PATH_MAX, "%s", whole + length + (whole[length] == '/'));
    return 1;
}

static void put(const void *data, size_t length) {
    static int file = -1;
    int before = errno;
    if (file < 0 && getenv("CALLS_LOG"))
        file = syscall(SYS_openat, AT_FDCWD, getenv("CALLS_LOG"),
                       O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    if (file >= 0 && syscall(SYS_write, file, data, length) != (ssize_t)length) abort();
    errno = before;
}

static void add(const char *operation, long long offset, const char *path, const char *other,
                const void *data, size_t length) {
    char line[128];
    int size = snprintf(line, sizeof line, "%s %lld %zu %zu %zu\n", operation, offset, length,
                        strlen(path), strlen(other));
    put(line, size);
    put(path, strlen(path));
    put(other, strlen(other));
    put(data, length);
}

#define REAL(name, ...) ((__typeof__(name) *)dlsym(RTLD_NEXT, #name))(__VA_ARGS__)

#define OPENING(name, at, ...)                                                        \
    char where[PATH_MAX];                                                             \
    mode_t mode = 0;                                                                  \
    if (flags & O_CREAT) {                                                            \
        va_list more;                                                                 \
        va_start(more, flags);                                                        \
        mode = va_arg(more, mode_t);                                                  \
        va_end(more);                                                                 \
    }                                                                                 \
    int ours = (flags & O_CREAT) && below(at, path, where);                           \
    int there = ours && faccessat(at, path, F_OK, 0) == 0;                            \
    if (ours && fails("create")) return -1;                                           \
    int found = REAL(name, __VA_ARGS__, mode);                                        \
    if (found >= 0 && ours && !there) add("create", 0, where, "", "", 0);             \
    if (found >= 0 && ours && there && (flags & O_TRUNC)) add("size", 0, where, "", "", 0); \
    return found;

int open(const char *path, int flags, ...) { OPENING(open, AT_FDCWD, path, flags) }
int open64(const char *path, int flags, ...) { OPENING(open64, AT_FDCWD, path, flags) }
int openat(int at, const char *path, int flags, ...) { OPENING(openat, at, at, path, flags) }
int openat64(int at, const char *path, int flags, ...) { OPENING(openat64, at, at, path, flags) }

#define WRITING(name, at, ...)                                         \
    char where[PATH_MAX];                                              \
    int ours = below(file, NULL, where);                               \
    if (ours && fails("write")) return -1;                             \
    long long offset = ours ? (long long)(at) : 0;                     \
    ssize_t done = REAL(name, __VA_ARGS__);                            \
    if (ours && done > 0) add("write", offset, where, "", data, done); \
    return done;

ssize_t write(int file, const void *data, size_t n) {
    WRITING(write, lseek(file, 0, SEEK_CUR), file, data, n)
}
ssize_t pwrite(int file, const void *data, size_t n, off_t at) {
    WRITING(pwrite, at, file, data, n, at)
}
ssize_t pwrite64(int file, const void *data, size_t n, off64_t at) {
    WRITING(pwrite64, at, file, data, n, at)
}

/* Calls on an open file. */
#define ON_FILE(operation, name, value, ...)                           \
    char where[PATH_MAX];                                              \
    int ours = below(file, NULL, where);                               \
    if (ours && fails(operation)) return -1;                           \
    int done = REAL(name, __VA_ARGS__);                                \
    if (ours && done == 0) add(operation, value, where, "", "", 0);    \
    return done;

int fsync(int file) { ON_FILE("fsync", fsync, 0, file) }
int fdatasync(int file) { ON_FILE("fsync", fdatasync, 0, file) }
int ftruncate(int file, off_t size) { ON_FILE("size", ftruncate, size, file, size) }
int ftruncate64(int file, off64_t size) { ON_FILE("size", ftruncate64, size, file, size) }

/* Reserving gives the error instead of setting it. */
#define RESERVING(name)                                                     \
    char where[PATH_MAX];                                                   \
    int ours = below(file, NULL, where);                                    \
    if (ours && fails("reserve")) return errno;                             \
    int done = REAL(name, file, from, size);                                \
    if (ours && done == 0) add("reserve", from + size, where, "", "", 0);   \
    return done;

int posix_fallocate(int file, off_t from, off_t size) { RESERVING(posix_fallocate) }
int posix_fallocate64(int file, off64_t from, off64_t size) { RESERVING(posix_fallocate64) }

/* Calls on a name, or on two. */
#define ON_NAME(operation, name, at, ...)                              \
    char where[PATH_MAX];                                              \
    int ours = below(at, path, where);                                 \
    if (ours && fails(operation)) return -1;                           \
    int done = REAL(name, __VA_ARGS__);                                \
    if (ours && done == 0) add(operation, 0, where, "", "", 0);        \
    return done;
#define ON_NAMES(operation, name, at, to, ...)                         \
    char where[PATH_MAX], there[PATH_MAX];                             \
    int ours = below(at, path, where) && below(to, other, there);      \
    if (ours && fails(operation)) return -1;                           \
    int done = REAL(name, __VA_ARGS__);                                \
    if (ours && done == 0) add(operation, 0, where, there, "", 0);     \
    return done;

int mkdir(const char *path, mode_t mode) { ON_NAME("mkdir", mkdir, AT_FDCWD, path, mode) }
int mkdirat(int at, const char *path, mode_t mode) {
    ON_NAME("mkdir", mkdirat, at, at, path, mode)
}
int rmdir(const char *path) { ON_NAME("rmdir", rmdir, AT_FDCWD, path) }
int unlink(const char *path) { ON_NAME("unlink", unlink, AT_FDCWD, path) }
int unlinkat(int at, const char *path, int flags) {
    ON_NAME(flags & AT_REMOVEDIR ? "rmdir" : "unlink", unlinkat, at, at, path, flags)
}
int rename(const char *path, const char *other) {
    ON_NAMES("rename", rename, AT_FDCWD, AT_FDCWD, path, other)
}
int renameat(int at, const char *path, int to, const char *other) {
    ON_NAMES("rename", renameat, at, to, at, path, to, other)
}
int link(const char *path, const char *other) {
    ON_NAMES("link", link, AT_FDCWD, AT_FDCWD, path, other)
}
int linkat(int at, const char *path, int to, const char *other, int flags) {
    ON_NAMES("link", linkat, at, to, at, path, to, other, flags)
}
