/* Two processes of a job with a tensor on flash, each with its shard: they share a folder, and read
 * each other's shards.  In case "damaged" the disk changes a byte of rank 1; in case "far" the host
 * cannot address the memory of the devices, where another tensor and the shards of an output are.
 *
 *   flash_ranks FOLDER [damaged|far]     exit code 0 when it went as it should */
#include "comm/world.h"
#include "rt/device_mesh.h"
#include "unit/far_memory.h"

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

/* Twice a tensor of the devices: a shard of each process, and the sum of all, a collective. */
static hp_status run_far(hp_device *d, int me) {
  const hp_shape shape = {1, {N}};
  float *v = mem_calloc(N, sizeof *v), *y = mem_calloc(N, sizeof *y), sum = 0;
  hp_graph *g;
  hp_program *p;
  HP_TRY(hp_param_create(d, "v", HP_F32, shape));
  for (int i = 0; i < N; i++) v[i] = (float)(i % 3);
  HP_TRY(hp_write(d, "v", v, N * sizeof *v));
  HP_TRY(hp_graph_create(&g));
  hp_tensor twice = hp_scale(g, hp_param(g, "v", HP_F32, shape), 2);
  hp_output(g, "y", twice);
  hp_output(g, "sum", hp_sum(g, twice, (int64_t[]){0}, 1, false));
  HP_TRY(hp_compile(g, d, NULL, &p));
  HP_TRY(hp_run(p, (hp_io[]){{"y", y, N * sizeof *y}, {"sum", &sum, sizeof sum}}, 2));
  for (int i = 0; i < N; i++)
    if (y[i] != 2 * v[i]) HP_FAIL(HP_ERR_INTERNAL, "rank %d: output %d is %g", me, i, (double)y[i]);
  if (sum != 200000) /* of i % 3, twice */
    HP_FAIL(HP_ERR_INTERNAL, "rank %d: the sum is %g", me, (double)sum);
  HP_TRY(hp_read(d, "v", y, N * sizeof *y));
  if (memcmp(v, y, N * sizeof *v)) HP_FAIL(HP_ERR_INTERNAL, "rank %d read other numbers", me);
  hp_program_free(p);
  hp_graph_free(g);
  mem_free(v);
  mem_free(y);
  return HP_OK;
}

int main(int argc, char **argv) {
  const hp_layout_rule rule = {"*", "(dp)"};
  const char *what = argc > 2 ? argv[2] : "";
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
  bool far = !strcmp(what, "far");
  if (!st && far) far_memory_use(d, false);
  if (!st) st = use(d, folder, !strcmp(what, "damaged"), world_get()->rank);
  if (!st && far) st = run_far(d, world_get()->rank);
  if (st)
    printf("rank %d: %s\n", world_get()->rank, *err_message() ? err_message() : hp_last_error());
  fflush(stdout);
  if (st) world_fail();
  int code = world_end(st != HP_OK, &told);
  hp_device_close(d);
  world_leave();
  return code;
}
