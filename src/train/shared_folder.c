#include "train/shared_folder.h"

#include "base/io.h"
#include "base/milestone.h"
#include "base/random.h"
#include "base/thread.h"
#include "hyperparallel.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define LOOK_FOR_S 10.0 /* a file system that caches what is in a folder */
#define TURN_S     0.05

/* What a process says of itself. */
typedef struct {
  bool sees;
  char host[64];
} witness;

/* --- the mark --------------------------------------------------------------------------------- */

enum { NAME = 64 };

/* Called as other temporary files are: what a run that is killed leaves, the next one removes. */
static hp_status make_mark(const char *dir, char name[NAME]) {
  uint32_t random;
  str path = {0};
  HP_TRY(random_bytes(&random, sizeof random));
  snprintf(name, NAME, "shared.tmp.%ld-%08x-%08x", (long)getpid(), dir_machine(), random);
  HP_TRY(path_join(&path, dir, name));
  int fd = open(path.at, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0644);
  hp_status st = HP_OK;
  if (fd < 0)
    st = err_set(HP_ERR_IO, __FILE__, __LINE__, "%s: cannot create: %s", path.at, strerror(errno));
  else close(fd);
  str_free(&path);
  return st;
}

/* What process 0 calls it. */
static hp_status tell_name(int size, char name[NAME]) {
  char *all = mem_calloc((size_t)size, NAME);
  HP_TRY_MEM(all);
  hp_status st = hp_world_gather(name, NAME, all);
  if (!st) memcpy(name, all, NAME);
  mem_free(all);
  return st;
}

/* Network file systems ask their server again for a folder that is opened, not for one that they
 * are asked about. */
static void refresh(const char *dir) {
  int fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd >= 0) close(fd);
}

static hp_status look_for_mark(const char *dir, const char *name, bool *sees) {
  str path = {0}, parent = {0};
  hp_status st = path_join(&path, dir, name);
  if (!st) st = path_parent(dir, &parent);
  double now = time_now_s(), until_s = now + LOOK_FOR_S;
  for (*sees = false; !st; now = time_now_s()) {
    refresh(parent.at);
    refresh(dir);
    *sees = path_exists(path.at);
    if (*sees || now >= until_s) break;
    milestone_count_work();
    time_sleep_until(now + TURN_S);
  }
  str_free(&path);
  str_free(&parent);
  return st;
}

static void remove_mark(const char *dir, const char *name) {
  str path = {0};
  if (path_join(&path, dir, name) || unlink(path.at)) err_clear(); /* it costs nobody anything */
  str_free(&path);
}

/* --- who sees it ------------------------------------------------------------------------------ */

static hp_status refuse(const char *dir, const witness *all, int size) {
  enum { NAMED = 4 };
  str who = {0};
  int n = 0;
  for (int i = 0; i < size; i++) {
    if (all[i].sees || n++ >= NAMED) continue;
    str_printf(&who, "%s%d (%s)", n > 1 ? ", " : "", i, all[i].host);
  }
  if (n > NAMED) str_printf(&who, " and %d more", n - NAMED);
  hp_status st = str_status(&who);
  if (!st)
    st = err_set(HP_ERR_INPUT, __FILE__, __LINE__,
                 "output_dir \"%s\": process%s %s do%s not see what process 0 (%s) writes there; "
                 "each process writes its shards of a checkpoint to output_dir, so it must be on a "
                 "file system that all of them share (NFS, Lustre, ...), under the same path",
                 dir, n > 1 ? "es" : "", who.at, n > 1 ? "" : "es", all[0].host);
  str_free(&who);
  return st;
}

/* All see the same of it, and go the same way. */
static hp_status judge(const char *dir, bool sees, int size) {
  witness mine = {.sees = sees};
  if (gethostname(mine.host, sizeof mine.host - 1)) mine.host[0] = 0;
  witness *all = mem_calloc((size_t)size, sizeof *all);
  HP_TRY_MEM(all);
  hp_status st = hp_world_gather(&mine, sizeof mine, all);
  bool shared = true;
  for (int i = 0; !st && i < size; i++) shared &= all[i].sees;
  if (!st && !shared) st = refuse(dir, all, size);
  mem_free(all);
  return st;
}

hp_status shared_folder_check(const char *dir) {
  int rank, size;
  char name[NAME] = "";
  bool sees = true;
  HP_TRY(hp_world(&rank, &size));
  if (size == 1) return HP_OK;
  if (!rank) HP_TRY(make_mark(dir, name));
  hp_status st = tell_name(size, name);
  if (!st && rank) st = look_for_mark(dir, name, &sees);
  if (!st) st = judge(dir, sees, size);
  if (!rank) remove_mark(dir, name);
  return st;
}
