/* Every reduction that a layout can be partial with, of devices that each have other numbers. */
#include "base/str.h"
#include "ir/layout.h"
#include "rt/collective.h"
#include "test.h"

#include <pthread.h>

enum { DEVICES = 3, ELEMENTS = 5 }; /* elements that the devices do not divide */

typedef struct {
  device d;
  collectives *c;
  int64_t in[ELEMENTS], out[ELEMENTS]; /* room for any dtype */
  hp_status st;
} member;

static int64_t number(int64_t place, int k) { return (place * 4 + k * 3) % 7 - 2; }

static void put(hp_dtype t, void *at, int k, int64_t x) {
  if (t == HP_F32) ((float *)at)[k] = (float)x;
  else if (t == HP_I32) ((int32_t *)at)[k] = (int32_t)x;
  else ((int64_t *)at)[k] = x;
}
static double get(hp_dtype t, const void *at, int k) {
  if (t == HP_F32) return (double)((const float *)at)[k];
  if (t == HP_I32) return ((const int32_t *)at)[k];
  return (double)((const int64_t *)at)[k];
}

static double expected(hp_dtype t, int op, int k) {
  int64_t sum = 0, prod = 1, least = INT64_MAX, most = INT64_MIN, all = 1;
  for (int i = 0; i < DEVICES; i++) {
    int64_t x = number(i, k);
    sum += x;
    prod *= x;
    least = x < least ? x : least;
    most = x > most ? x : most;
    all &= x != 0;
  }
  switch (op) {
  case PARTIAL_SUM: return (double)sum;
  case PARTIAL_AVG: return t == HP_F32 ? (double)((float)sum / DEVICES) : (double)(sum / DEVICES);
  case PARTIAL_MAX: return (double)most;
  case PARTIAL_MIN: return (double)least;
  case PARTIAL_PROD: return (double)prod;
  default: return (double)all;
  }
}

static void *run(void *arg) {
  member *m = arg;
  double arrived_s = 0;
  m->st = collective_run(m->c, 0, (void *[]){m->in, m->out}, &arrived_s);
  return NULL;
}

static void reduce(const mesh *m, const char *type, hp_dtype t, int op) {
  static member all[DEVICES];
  pthread_t thread[DEVICES];
  program *p;
  comm *c;
  str text = {0};
  str_printf(&text,
             "arena device 128 bound 0 at 0\nb0 = %s[%d] device+0 input \"x\"\n"
             "b1 = %s[%d] device+64\ncomm: b1 = all_reduce b0 {axes=[0], n=%d, op=%d}\n",
             type, ELEMENTS, type, ELEMENTS, DEVICES, op);
  CHECK_OK(program_parse(text.at, text.len, "text", &p));
  CHECK_OK(comm_local_open(DEVICES, &c));
  for (int i = 0; i < DEVICES; i++) {
    all[i] = (member){.d = {.mesh = m, .position = i, .comm = c, .backend = &backend_cpu}};
    CHECK_OK(collectives_load(&all[i].d, p, &all[i].c));
    for (int k = 0; k < ELEMENTS; k++) put(t, all[i].in, k, number(i, k));
    CHECK(!pthread_create(&thread[i], NULL, run, &all[i]));
  }
  for (int i = 0; i < DEVICES; i++) {
    CHECK(!pthread_join(thread[i], NULL));
    CHECK_OK(all[i].st);
    for (int k = 0; k < ELEMENTS; k++)
      if (get(t, all[i].out, k) != expected(t, op, k))
        test_fail(__FILE__, __LINE__, "%s of %s: element %d of device %d is %g, want %g",
                  partial_op_name(op), type, k, i, get(t, all[i].out, k), expected(t, op, k));
    collectives_free(all[i].c);
  }
  c->iface->close(c);
  program_free(p);
  str_free(&text);
}

TEST(every_reduction_is_what_its_name_says) {
  mesh m;
  CHECK_OK(mesh_init((int64_t[]){DEVICES}, (const char *[]){"a"}, 1, NULL, 0, &m));
  for (int op = PARTIAL_SUM; op < PARTIAL_COUNT; op++) {
    if (op != PARTIAL_ALL) reduce(&m, "f32", HP_F32, op);
    reduce(&m, "i32", HP_I32, op);
    reduce(&m, "i64", HP_I64, op);
  }
  mesh_free(&m);
}
