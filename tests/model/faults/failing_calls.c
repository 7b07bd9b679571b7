/* Makes the k-th call of one kind fail, once. Loaded by LD_PRELOAD and driven through ctypes.
 *
 * Calls with a file count if it is below `root`, of allocations and mappings without a file those of
 * at least `LARGE` bytes.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define LARGE (256 << 10)
#define NEXT(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

enum Kind { NONE, OPEN, READ, WRITE, SYNC, RENAME, MKDIR, LOCK, MAP, ALLOCATE, THREAD };

static atomic_int armed = NONE;
static atomic_long calls;
static long failing;
static int number;
static char root[4096];

void faults_arm(int kind, long call, int error, const char* directory) {
  snprintf(root, sizeof(root), "%s", directory);
  failing = call;
  number = error;
  atomic_store(&calls, 0);
  atomic_store(&armed, kind);
}

long faults_disarm(void) {
  atomic_store(&armed, NONE);
  return atomic_load(&calls);
}

static int fails(enum Kind kind) {
  if (atomic_load(&armed) != (int)kind || atomic_fetch_add(&calls, 1) + 1 != failing) return 0;
  errno = number;
  return 1;
}

static int is_inside(const char* path) { return strncmp(path, root, strlen(root)) == 0; }

static int path_fails(enum Kind kind, const char* path) {
  return atomic_load(&armed) == (int)kind && is_inside(path) && fails(kind);
}

static int file_fails(enum Kind kind, int file) {
  if (atomic_load(&armed) != (int)kind) return 0;
  char link[64], path[4096] = "";
  snprintf(link, sizeof(link), "/proc/self/fd/%d", file);
  const int saved = errno;
  const ssize_t size = readlink(link, path, sizeof(path) - 1);
  errno = saved;
  return size > 0 && is_inside(path) && fails(kind);
}

#define OPENER(name)                                              \
  int name(const char* path, int flags, ...) {                    \
    va_list arguments;                                            \
    va_start(arguments, flags);                                   \
    const mode_t mode = va_arg(arguments, int);                   \
    va_end(arguments);                                            \
    return path_fails(OPEN, path) ? -1 : NEXT(name)(path, flags, mode); \
  }
OPENER(open)
OPENER(open64)

#define OPENER_AT(name)                                           \
  int name(int at, const char* path, int flags, ...) {            \
    va_list arguments;                                            \
    va_start(arguments, flags);                                   \
    const mode_t mode = va_arg(arguments, int);                   \
    va_end(arguments);                                            \
    return path_fails(OPEN, path) ? -1 : NEXT(name)(at, path, flags, mode); \
  }
OPENER_AT(openat)
OPENER_AT(openat64)

#define FILE_CALL(kind, type, name, parameters, arguments) \
  type name parameters { return file_fails(kind, file) ? -1 : NEXT(name) arguments; }
FILE_CALL(READ, ssize_t, read, (int file, void* data, size_t size), (file, data, size))
FILE_CALL(READ, ssize_t, pread, (int file, void* data, size_t size, off_t at),
          (file, data, size, at))
FILE_CALL(READ, ssize_t, pread64, (int file, void* data, size_t size, off64_t at),
          (file, data, size, at))
FILE_CALL(WRITE, ssize_t, write, (int file, const void* data, size_t size), (file, data, size))
FILE_CALL(WRITE, ssize_t, pwrite, (int file, const void* data, size_t size, off_t at),
          (file, data, size, at))
FILE_CALL(WRITE, ssize_t, pwrite64, (int file, const void* data, size_t size, off64_t at),
          (file, data, size, at))
FILE_CALL(WRITE, int, ftruncate, (int file, off_t size), (file, size))
FILE_CALL(WRITE, int, ftruncate64, (int file, off64_t size), (file, size))
FILE_CALL(SYNC, int, fsync, (int file), (file))
FILE_CALL(SYNC, int, fdatasync, (int file), (file))
FILE_CALL(LOCK, int, flock, (int file, int operation), (file, operation))

int rename(const char* from, const char* to) {
  return path_fails(RENAME, to) ? -1 : NEXT(rename)(from, to);
}

int renameat(int at, const char* from, int to_at, const char* to) {
  return path_fails(RENAME, to) ? -1 : NEXT(renameat)(at, from, to_at, to);
}

int mkdir(const char* path, mode_t mode) {
  return path_fails(MKDIR, path) ? -1 : NEXT(mkdir)(path, mode);
}

#define MAPPER(name, offset)                                                               \
  void* name(void* at, size_t size, int access, int flags, int file, offset start) {       \
    const int is_failing = file >= 0 ? file_fails(MAP, file) : size >= LARGE && fails(MAP); \
    return is_failing ? MAP_FAILED : NEXT(name)(at, size, access, flags, file, start);      \
  }
MAPPER(mmap, off_t)
MAPPER(mmap64, off64_t)

/* Not found by dlsym, which allocates itself. */
extern void* __libc_malloc(size_t size);
extern void* __libc_calloc(size_t count, size_t size);
extern void* __libc_realloc(void* data, size_t size);
extern void* __libc_memalign(size_t alignment, size_t size);

void* malloc(size_t size) {
  return size >= LARGE && fails(ALLOCATE) ? NULL : __libc_malloc(size);
}

void* calloc(size_t count, size_t size) {
  return count * size >= LARGE && fails(ALLOCATE) ? NULL : __libc_calloc(count, size);
}

void* realloc(void* data, size_t size) {
  return size >= LARGE && fails(ALLOCATE) ? NULL : __libc_realloc(data, size);
}

void* memalign(size_t alignment, size_t size) {
  return size >= LARGE && fails(ALLOCATE) ? NULL : __libc_memalign(alignment, size);
}

void* aligned_alloc(size_t alignment, size_t size) { return memalign(alignment, size); }

int posix_memalign(void** data, size_t alignment, size_t size) {
  void* const result = memalign(alignment, size);
  if (result == NULL) return ENOMEM;
  *data = result;
  return 0;
}

int pthread_create(pthread_t* thread, const pthread_attr_t* attributes, void* (*start)(void*),
                   void* argument) {
  if (fails(THREAD)) return number;
  return NEXT(pthread_create)(thread, attributes, start, argument);
}
