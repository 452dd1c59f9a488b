/* `hyper bench cost`: what this machine reaches of its limits by the kind of work, for predictions.
 *
 * Ops of `bench op` run in three sizes and both dtypes; each device that ran them keeps what it
 * learned (rt/learn.h).  That is this machine's record from then on, and --write FILE makes a
 * cluster file of it. */
#include "base/io.h"
#include "cli/bench.h"
#include "rt/cost_record.h"
#include "rt/device_mesh.h"

#include <string.h>

enum { LAUNCHES = 200 };

/* Rows of so many bytes and columns, and sequences of so many tokens. */
static const struct {
  uint64_t size;
  int64_t width, seq;
} sizes[] = {{512 << 10, 256, 128}, {4 << 20, 768, 256}, {16 << 20, 2048, 512}};
enum { SIZES = sizeof sizes / sizeof *sizes };

/* The least time of a run that does next to nothing. */
static hp_status time_launch(hp_device *d, double *out) {
  hp_graph *g;
  hp_program *p = NULL;
  HP_TRY(hp_graph_create(&g));
  hp_tensor x = hp_param(g, "x", HP_F32, (hp_shape){1, {16}});
  hp_assign(g, x, hp_add(g, x, x));
  hp_status st = hp_compile(g, d, NULL, &p);
  *out = 1;
  for (int i = 0; !st && i < LAUNCHES; i++) {
    double start = time_now_s();
    st = hp_run(p, NULL, 0);
    double seconds = time_now_s() - start;
    if (seconds < *out) *out = seconds;
  }
  hp_program_free(p);
  hp_graph_free(g);
  return st;
}

/* A record of the limits alone, in place of the one that was. */
static hp_status begin(const bench_args *a, int *threads) {
  hp_device_options o = {.threads = (int)a->m.threads};
  hp_device *d;
  hp_limits l;
  cluster c;
  double launch;
  HP_TRY(cluster_load("this", &c));
  HP_TRY(hp_device_open(&o, &d));
  hp_status st = hp_device_measure(d, &l);
  if (!st) st = time_launch(d, &launch);
  *threads = d->member[0]->backend->threads(d->member[0]->dev);
  hp_device_close(d);
  HP_TRY(st);
  c.flops = l.flops;
  c.gb_s = l.bytes * 1e-9;
  c.costs = (cost_table){.flops_bf16 = l.bf16_flops, .launch_us = launch * 1e6};
  cost_record_remove(*threads);
  cost_record_write(*threads, &c);
  return HP_OK;
}

/* The tiers of the file that is replaced are measured by another kind of `hyper bench`. */
static void keep_tiers(const char *file, cluster *c) {
  cluster old;
  if (!file || !file_exists(file)) return;
  if (cluster_load(file, &old)) err_clear();
  else memcpy(c->tier, old.tier, sizeof c->tier);
}

static hp_status write_cluster(const bench_args *a, int threads) {
  cluster c;
  HP_TRY(cluster_load("this", &c));
  cost_record_read(threads, &c);
  if (!c.costs.rows)
    HP_FAIL(HP_ERR_IO, "the folder of compiled kernels cannot be written, so that nothing was "
                       "kept; HYPER_CACHE names another");
  keep_tiers(a->write, &c);
  return bench_write_cluster(a, &c);
}

hp_status bench_cost(const bench_args *a) {
  int threads;
  HP_TRY(begin(a, &threads));
  for (int i = 0; i < SIZES; i++) {
    bench_args one = *a;
    one.size = sizes[i].size;
    one.width = sizes[i].width;
    one.seq = sizes[i].seq;
    one.m.threads = threads;
    one.m.model = NULL;
    HP_TRY(bench_op(&one));
  }
  return write_cluster(a, threads);
}
