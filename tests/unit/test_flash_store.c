/* The store of tier flash: what was written comes back, from any number of threads and in any
 * sizes; and what a disk, another job or another program does to it is found and named. */
#include "rt/flash_store.h"
#include "test.h"

#include "base/mem.h"
#include "base/philox.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <stddef.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

enum { MIB = 1 << 20, PATHS = 3 };

static const char *const engines[] = {"io_uring", "threads"};

/* Folders of this test. */
static const char *const *folders(int n) {
  static char name[PATHS][512];
  static const char *path[PATHS];
  for (int i = 0; i < n; i++) {
    snprintf(name[i], sizeof name[i], "%s/disk%d", test_dir(), i);
    mkdir(name[i], 0700);
    path[i] = name[i];
  }
  return path;
}

/* NULL: this engine is not on this machine. */
static flash_store *open_store(int n, uint64_t limit, const char *engine) {
  flash_store *s = NULL;
  flash_options o = {.path = folders(n), .n = n, .limit = limit, .locks = true, .engine = engine};
  hp_status st = flash_open(&o, &s);
  if (st == HP_ERR_UNSUPPORTED) err_clear();
  else CHECK_OK(st);
  return s;
}

/* The descriptor of a store's file in the i-th folder. */
static int file_in(const char *folder) {
  DIR *d = opendir("/proc/self/fd");
  struct dirent *e;
  int found = -1;
  while ((e = readdir(d))) {
    char at[512] = "", place[64];
    snprintf(place, sizeof place, "/proc/self/fd/%.20s", e->d_name);
    ssize_t n = readlink(place, at, sizeof at - 1);
    struct stat s;
    if (n > 0 && !strncmp(at, folder, strlen(folder)) && !stat(place, &s) && S_ISREG(s.st_mode))
      found = atoi(e->d_name);
  }
  closedir(d);
  CHECK(found >= 0);
  return found;
}

/* A file of it without O_DIRECT, which reads and writes at any place. */
static int reopen(const char *folder) {
  char place[64];
  snprintf(place, sizeof place, "/proc/self/fd/%d", file_in(folder));
  int fd = open(place, O_RDWR);
  CHECK(fd >= 0);
  return fd;
}

static void flip_byte(const char *folder, off_t at) {
  int fd = reopen(folder);
  unsigned char c;
  CHECK_EQ(pread(fd, &c, 1, at), 1);
  c ^= 0x10;
  CHECK_EQ(pwrite(fd, &c, 1, at), 1);
  close(fd);
}

static void fill(unsigned char *x, size_t n, unsigned seed) {
  for (size_t i = 0; i < n; i++) x[i] = (unsigned char)(i * 31 + (i >> 8) * 7 + seed);
}

/* --- what was written comes back -------------------------------------------------------------- */

TEST(a_flash_store_returns_what_was_written_at_any_offset_and_size) {
  for (int e = 0; e < 2; e++)
    for (int n = 1; n <= PATHS; n += 2) {
      flash_store *s = open_store(n, 8 * MIB, engines[e]);
      if (!s) continue;
      unsigned char *x = malloc(8 * MIB + 64), *y = calloc(8 * MIB + 64, 1),
                    *mirror = calloc(8 * MIB, 1);
      uint64_t drawn = 0;
      for (int i = 0; i < 300; i++) {
        uint64_t large = i % 10 == 0, at = philox_u32(7, 0, drawn++) % (4 * MIB),
                 shift = philox_u32(7, 0, drawn++) % 64;
        uint64_t bytes =
            large ? philox_u32(7, 0, drawn++) % (4 * MIB) : philox_u32(7, 0, drawn++) % 5001;
        if (i % 3 == 0) at = at / 4096 * 4096, shift = 0;
        fill(x, bytes + shift, (unsigned)i);
        memcpy(mirror + at, x + shift, bytes);
        CHECK_OK(flash_write(s, at, x + shift, bytes, "w"));
        uint64_t from = at > 3000 ? at - 3000 : 0;
        CHECK_OK(flash_read(s, from, y + shift, bytes + 6000, "w"));
        CHECK(!memcmp(y + shift, mirror + from, bytes + 6000));
      }
      CHECK_OK(flash_read(s, 0, y, 8 * MIB, "all"));
      CHECK(!memcmp(y, mirror, 8 * MIB));
      free(x), free(y), free(mirror);
      flash_close(s);
    }
}

TEST(a_flash_store_holds_every_size_from_1_to_5000) {
  flash_store *s = open_store(2, 32 * MIB, NULL);
  unsigned char x[5008], y[5008];
  uint64_t at = 0;
  for (uint64_t n = 1; n <= 5000; n += n < 32 || n > 4064 ? 1 : 37, at += n) {
    fill(x, n, (unsigned)n);
    CHECK_OK(flash_write(s, at, x, n, "w"));
  }
  at = 0;
  for (uint64_t n = 1; n <= 5000; n += n < 32 || n > 4064 ? 1 : 37, at += n) {
    fill(x, n, (unsigned)n);
    CHECK_OK(flash_read(s, at, y, n, "w"));
    CHECK(!memcmp(x, y, n));
  }
  flash_close(s);
}

TEST(a_flash_store_is_zeros_until_it_is_written_and_after_it_is_cleared) {
  flash_store *s = open_store(1, 4 * MIB, NULL);
  unsigned char *x = malloc(4 * MIB), *y = malloc(4 * MIB);
  memset(y, 1, 4 * MIB);
  CHECK_OK(flash_read(s, 0, y, 4 * MIB, "w"));
  for (int i = 0; i < 4 * MIB; i++) CHECK(!y[i]);
  fill(x, 4 * MIB, 1);
  CHECK_OK(flash_write(s, 0, x, 4 * MIB, "w"));
  flash_clear(s, 8192, MIB);
  memset(x + 8192, 0, MIB);
  CHECK_OK(flash_read(s, 0, y, 4 * MIB, "w"));
  CHECK(!memcmp(x, y, 4 * MIB));
  free(x), free(y);
  flash_close(s);
}

typedef struct {
  flash_store *s;
  int i;
  bool right;
} user;

/* Neighbours that share a block at either end, as buffers at multiples of 256 do. */
static void *use_store(void *arg) {
  enum { BYTES = 3 * MIB + 256 };
  user *u = arg;
  unsigned char *x = malloc(BYTES), *y = malloc(BYTES);
  u->right = true;
  for (int k = 0; k < 6; k++) {
    fill(x, BYTES, (unsigned)(u->i + 10 * k));
    u->right &= !flash_write(u->s, (uint64_t)u->i * BYTES, x, BYTES, "w");
    for (int j = 0; j < 2; j++)
      u->right &= !flash_read(u->s, (uint64_t)u->i * BYTES, y, BYTES, "w");
    u->right &= !memcmp(x, y, BYTES);
  }
  free(x), free(y);
  return NULL;
}

TEST(a_flash_store_serves_more_threads_than_it_has_rings) {
  for (int e = 0; e < 2; e++) {
    flash_store *s = open_store(2, 32 * MIB, engines[e]);
    user u[7];
    pthread_t t[7];
    if (!s) continue;
    for (int i = 0; i < 7; i++) {
      u[i] = (user){s, i, false};
      CHECK(!pthread_create(&t[i], NULL, use_store, &u[i]));
    }
    for (int i = 0; i < 7; i++) {
      pthread_join(t[i], NULL);
      CHECK(u[i].right);
    }
    flash_close(s);
  }
}

TEST(a_flash_store_allocates_nothing_after_it_is_open) {
  for (int e = 0; e < 2; e++) {
    flash_store *s = open_store(1, 8 * MIB, engines[e]);
    if (!s) continue;
    unsigned char *x = calloc(4 * MIB, 1);
    uint64_t before = mem_count();
    CHECK_OK(flash_write(s, 100, x + 3, 3 * MIB, "w"));
    CHECK_OK(flash_read(s, 100, x + 5, 3 * MIB, "w"));
    CHECK_EQ(mem_count(), before);
    free(x);
    flash_close(s);
  }
}

/* --- what goes wrong -------------------------------------------------------------------------- */

TEST(a_byte_that_changed_on_flash_is_found_with_tensor_and_path) {
  for (int e = 0; e < 2; e++) {
    flash_store *s = open_store(2, 8 * MIB, engines[e]);
    if (!s) continue;
    unsigned char *x = malloc(4 * MIB);
    fill(x, 4 * MIB, 3);
    CHECK_OK(flash_write(s, 0, x, 4 * MIB, "m.layer"));
    flip_byte(folders(2)[1], MIB + 4096 * 3 + 77); /* of stripe 3 */
    CHECK_OK(flash_read(s, 0, x, 3 * MIB, "m.layer"));
    CHECK_EQ(flash_read(s, 0, x, 4 * MIB, "m.layer"), HP_ERR_DEVICE);
    CHECK(strstr(err_message(), "\"m.layer\" on tier flash, path \""));
    CHECK(strstr(err_message(), "disk1\": the 4096 bytes at 1060864 are not those"));
    err_clear();
    CHECK_OK(flash_read(s, 3 * MIB, x, 4096 * 3, "m.layer"));
    CHECK_OK(flash_write(s, 3 * MIB, x, MIB, "m.layer")); /* writing repairs it */
    CHECK_OK(flash_read(s, 0, x, 4 * MIB, "m.layer"));
    flip_byte(folders(2)[0], 10); /* and in a block that is read to be changed */
    CHECK_FAILS(flash_write(s, 5, x, 3, "v"), "\"v\" on tier flash");
    free(x);
    flash_close(s);
  }
}

TEST(a_truncated_flash_file_is_found_with_tensor_and_path) {
  for (int e = 0; e < 2; e++) {
    flash_store *s = open_store(1, 8 * MIB, engines[e]);
    if (!s) continue;
    unsigned char *x = malloc(4 * MIB);
    fill(x, 4 * MIB, 3);
    CHECK_OK(flash_write(s, 0, x, 4 * MIB, "kv"));
    CHECK(!ftruncate(file_in(folders(1)[0]), 3 * MIB - 4096));
    CHECK_EQ(flash_read(s, 0, x, 4 * MIB, "kv"), HP_ERR_DEVICE);
    CHECK(strstr(err_message(), "\"kv\" on tier flash, path \""));
    CHECK(strstr(err_message(), "its file has 3141632 bytes, expected 8388608"));
    err_clear();
    CHECK_FAILS(flash_read(s, 3 * MIB + 100, x, 50, "kv"), "truncated it");
    free(x);
    flash_close(s);
  }
}

/* From now on the store's file is another one, whose calls fail. */
static void replace_file(const char *folder, const char *by) {
  int fd = open(by, O_RDWR), file = file_in(folder);
  CHECK(fd >= 0);
  CHECK_EQ(dup2(fd, file), file);
  close(fd);
}

TEST(a_disk_that_fails_is_told_with_tensor_and_path_and_ends_no_other_transfer) {
  for (int e = 0; e < 2; e++) {
    flash_store *s = open_store(2, 8 * MIB, engines[e]);
    if (!s) continue;
    unsigned char *x = calloc(4 * MIB, 1);
    CHECK_OK(flash_write(s, 0, x, 4 * MIB, "v.layer"));
    replace_file(folders(2)[1], "/proc/self/mem"); /* where nothing is mapped: EIO */
    CHECK_EQ(flash_read(s, 0, x, 4 * MIB, "v.layer"), HP_ERR_DEVICE);
    CHECK(strstr(err_message(), "\"v.layer\" on tier flash, path \""));
    CHECK(strstr(err_message(), "disk1\": 1048576 bytes at "));
    CHECK(strstr(err_message(), "cannot be read: Input/output error; check its disk"));
    err_clear();
    CHECK_OK(flash_read(s, 0, x, MIB, "v.layer")); /* of the other disk */
    replace_file(folders(2)[0], "/dev/full");
    CHECK_FAILS(flash_write(s, 0, x, MIB, "m"), "be written: No space left on device");
    CHECK_FAILS(flash_write(s, 10, x, 10, "m"), "\"m\" on tier flash");
    free(x);
    flash_close(s);
  }
}

static int count_entries(const char *folder) {
  DIR *d = opendir(folder);
  int n = 0;
  while (readdir(d)) n++;
  closedir(d);
  return n - 2;
}

TEST(two_jobs_on_one_flash_path_are_told_and_nothing_is_left_of_a_killed_one) {
  const char *const *path = folders(2);
  flash_options o = {.path = path, .n = 1, .limit = MIB, .locks = true};
  flash_store *s;
  int ready[2];
  CHECK(!pipe(ready));
  pid_t other = fork();
  if (!other) {
    bool ok = !flash_open(&o, &s) && !flash_write(s, 0, "abc", 3, "w");
    if (write(ready[1], &ok, 1) != 1) _exit(1);
    for (;;) pause();
  }
  bool ok = false;
  CHECK_EQ(read(ready[0], &ok, 1), 1);
  CHECK(ok);
  CHECK_EQ(count_entries(path[0]), 0);
  CHECK_FAILS(flash_open(&o, &s), "disk0\": another job");
  kill(other, SIGKILL);
  CHECK_EQ(waitpid(other, NULL, 0), other);
  CHECK_OK(flash_open(&o, &s));
  flash_close(s);
  CHECK_EQ(count_entries(path[0]), 0);
  o.locks = false; /* a process of a job in which another one has the folder */
  CHECK_OK(flash_open(&o, &s));
  flash_close(s);
}

TEST(flash_options_that_cannot_be_are_refused) {
  flash_store *s;
  const char *const *path = folders(2), *same[] = {path[0], path[1], path[0]};
  const char *missing = "/no/such/folder";
  CHECK_FAILS(flash_open(&(flash_options){.path = path, .n = 0, .limit = MIB}, &s), "0 paths");
  CHECK_FAILS(flash_open(&(flash_options){.path = path, .n = 1}, &s), "flash_limit is 0");
  CHECK_FAILS(flash_open(&(flash_options){.path = path, .n = 1, .limit = UINT64_MAX}, &s),
              "no disk has so many");
  CHECK_FAILS(flash_open(&(flash_options){.path = same, .n = 3, .limit = MIB, .locks = true}, &s),
              "are one folder; name each once");
  CHECK_FAILS(flash_open(&(flash_options){.path = &missing, .n = 1, .limit = MIB}, &s),
              "\"/no/such/folder\": No such file or directory; expected an existing folder");
}

/* A tmpfs of 2 MiB if this process may mount one, else a limit on the size of files. */
TEST(a_disk_without_room_is_told_with_path_and_bytes_before_anything_runs) {
  const char *const *path = folders(1);
  flash_options o = {.path = path, .n = 1, .limit = 64 * MIB, .locks = true};
  flash_store *s;
  bool mounts = !unshare(CLONE_NEWNS) && !mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) &&
                !mount("tmpfs", path[0], "tmpfs", 0, "size=2m");
  signal(SIGXFSZ, SIG_IGN);
  if (!mounts) CHECK(!setrlimit(RLIMIT_FSIZE, &(struct rlimit){2 * MIB, 2 * MIB}));
  CHECK_EQ(flash_open(&o, &s), HP_ERR_IO);
  CHECK(strstr(err_message(), "disk0\": 67108864 bytes cannot be taken: "));
  CHECK(strstr(err_message(), mounts ? "No space left" : "File too large"));
  err_clear();
  o.limit = MIB; /* and the folder is free again */
  CHECK_OK(flash_open(&o, &s));
  CHECK_OK(flash_write(s, 5, "abc", 3, "w"));
  flash_close(s);
}

/* As many containers do. */
static void forbid_io_uring(void) {
  struct sock_filter rule[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_io_uring_setup, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  struct sock_fprog all = {sizeof rule / sizeof *rule, rule};
  CHECK(!prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0));
  CHECK(!prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &all));
}

TEST(where_io_uring_is_forbidden_threads_take_its_place) {
  char why[128], x[4];
  forbid_io_uring();
  CHECK(!flash_has_uring(why));
  CHECK_STR(why, "io_uring: Operation not permitted");
  flash_store *s = open_store(1, MIB, NULL);
  CHECK_STR(flash_describe(s), "1 path, 1 MiB, threads");
  CHECK_OK(flash_write(s, 5, "abc", 4, "w"));
  CHECK_OK(flash_read(s, 5, x, 4, "w"));
  CHECK_STR(x, "abc");
  flash_close(s);
  CHECK(!open_store(1, MIB, "io_uring"));
}

TEST(torture_a_flash_store_that_is_not_opened_for_want_of_memory_leaves_nothing) {
  flash_options o = {.path = folders(2), .n = 2, .limit = MIB, .locks = true};
  bool all = false;
  for (uint64_t k = 1; !all; k++) {
    flash_store *s;
    uint64_t before = mem_count();
    mem_fail_at(k);
    hp_status st = flash_open(&o, &s);
    all = mem_count() - before < k;
    mem_fail_at(0);
    CHECK(!st || st == HP_ERR_OOM);
    if (!st) flash_close(s);
    err_clear();
  }
}
