/* Two processes of a job with a tensor on flash, each with its shard: they share a folder, and read
 * each other's shards.  In case "damaged" the disk changes a byte of rank 1.
 *
 *   flash_ranks FOLDER [damaged]     exit code 0 when it went as it should */
#include "comm/world.h"
#include "rt/device_mesh.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { N = 100001 };

/* Of the file of this process, which has no name. */
static hp_status flip_byte(const char *folder) {
  DIR *d = opendir("/proc/self/fd");
  struct dirent *e;
  while (d && (e = readdir(d))) {
    char at[512] = "", place[64];
    snprintf(place, sizeof place, "/proc/self/fd/%.20s", e->d_name);
    if (readlink(place, at, sizeof at - 1) < 0 || !strstr(at, folder) || !strstr(at, "deleted"))
      continue;
    int fd = open(place, O_RDWR);
    char c = 0;
    bool done = pread(fd, &c, 1, 5000) == 1 && (c ^= 1, pwrite(fd, &c, 1, 5000) == 1);
    close(fd);
    closedir(d);
    return done ? HP_OK : HP_ERR_IO;
  }
  HP_FAIL(HP_ERR_INTERNAL, "the file of the flash tier was not found");
}

static hp_status use(hp_device *d, const char *folder, bool damaged, int me) {
  ir_value type = {.dtype = HP_F32, .rank = 1, .dim = {N}};
  float *x = mem_calloc(N, sizeof *x), *y = mem_calloc(N, sizeof *y);
  uint32_t index;
  HP_TRY(device_mesh_state_of(d, "w", &type, TIER_FLASH, &index));
  for (int i = 0; i < N; i++) x[i] = (float)i;
  HP_TRY(hp_write(d, "w", x, N * sizeof *x));
  if (damaged && me == 1) HP_TRY(flip_byte(folder));
  HP_TRY(hp_read(d, "w", y, N * sizeof *y));
  if (memcmp(x, y, N * sizeof *x)) HP_FAIL(HP_ERR_INTERNAL, "rank %d read other numbers", me);
  HP_TRY(hp_params_verify(d));
  mem_free(x);
  mem_free(y);
  return HP_OK;
}

int main(int argc, char **argv) {
  const hp_layout_rule rule = {"w", "(dp)"};
  const char *told, *folder = argc > 1 ? argv[1] : "";
  hp_device *d = NULL;
  hp_device_options o = {.threads = 1,
                         .interpret = true,
                         .mesh = "(2)(dp)",
                         .layouts = &rule,
                         .n_layouts = 1,
                         .flash = &folder,
                         .n_flash = 1,
                         .flash_limit = 1 << 20};
  hp_status st = hp_device_open(&o, &d);
  if (!st) st = use(d, folder, argc > 2, world_get()->rank);
  if (st)
    printf("rank %d: %s\n", world_get()->rank, *err_message() ? err_message() : hp_last_error());
  fflush(stdout);
  if (st) world_fail();
  int code = world_end(st != HP_OK, &told);
  hp_device_close(d);
  world_leave();
  return code;
}
