/* What explain tells of a program that keeps values on slower tiers: lifetimes, what moves, and the
 * same bytes everywhere. */
#include "base/json.h"
#include "rt/explain_chain.h"
#include "rt/explain_memory.h"
#include "rt/memory_picture.h"
#include "rt/memory_time.h"
#include "step_case.h"
#include "test.h"

#include <string.h>

/* --- chains of a small program ---------------------------------------------------------------- */

/* A tensor w of the host, which the device has when the run begins and ends, and a result. */
static const char small[] =
    "arena device 768 bound 768 at 0\n"
    "arena host 256 bound 256 at 0\n"
    "b0 = f32[64] state host \"w\"\n"
    "b1 = f32[64] device+0 carried_in of=b0\n"
    "b2 = f32[64] device+256 class=3\n"
    "b3 = f32[64] host+0 class=3\n"
    "b4 = f32[64] device+512 class=3\n"
    "b5 = f32[64] device+0 carried_out of=b0\n"
    "b6 = f32[64] device+256 output \"y\" class=3\n"
    "compute: b2 = exp b1 @\"layers.0\" micro=0\n"
    "copy_out: b3 = offload b2 {tier=1} wait=compute:0 @\"layers.0\"\n"
    "copy_out: b0 = offload b1 {tier=1} @\"layers.0\"\n"
    "copy_in: b4 = fetch b3 {tier=1} wait=copy_out:0 @\"head\"\n"
    "copy_in: b5 = fetch b0 {tier=1} wait=copy_out:1 @\"head\"\n"
    "compute: b6 = mul b4, b5 wait=copy_in:1 @\"head\" phase=backward micro=1\n";
static const inst_times times[] = {{0, 0, 1, 0}, {1, 1, 2, 0},   {2, 2, 3, 0},
                                   {3, 3, 4, 0}, {4, 4, 5.5, 0}, {5, 5, 7, 0}};

static program *parse_small(void) {
  program *p;
  CHECK_OK(program_parse(small, strlen(small), "small", &p));
  return p;
}

static void check_chain(const char *pattern, const char *want) {
  program *p = parse_small();
  str out = {0};
  CHECK_OK(explain_chains(p, NULL, times, pattern, &out));
  CHECK_STR(out.at, want);
  str_free(&out);
  program_free(p);
}

TEST(the_chain_of_a_tensor_tells_where_it_is_at_any_time) {
  check_chain(
      "w",
      "w\n"
      "  f32[64], 256 B, parameters, on host in 1 of 2 gaps\n"
      "  2 uses, 2 stays on the device, 1 fetches, 1 offloads: 512 B in 2.500 s, of which 2.000 s "
      "exposed\n"
      "    instr.      start        end  what     micro  kind of work, place in the model\n"
      "  on the device from 0.0 s to 3.000 s, b1 at offset 0, 256 B, left there by the run before\n"
      "         0      0.0 s    1.000 s  read         0  exp layers.0\n"
      "         2    2.000 s    3.000 s  offload         copy_out: offload to host layers.0, "
      "exposed "
      "1.000 s\n"
      "  on host from 3.000 s to 4.000 s, 256 B\n"
      "  on the device from 4.000 s to 7.000 s, b5 at offset 0, 256 B, kept at the end\n"
      "         4    4.000 s    5.500 s  fetch           copy_in: fetch from host head, exposed "
      "1.000 "
      "s\n"
      "         5    5.000 s    7.000 s  read         1  mul backward head\n");
}

/* By its place in the model: it has no name of its own. */
TEST(the_chain_of_a_result_begins_where_it_is_made) {
  check_chain(
      "layers.*",
      "exp layers.0\n"
      "  f32[64], 256 B, activations, on host in 1 of 1 gaps\n"
      "  2 uses, 2 stays on the device, 1 fetches, 1 offloads: 512 B in 2.000 s, of which "
      "2.000 s exposed; to recompute it would take 1.000 s\n"
      "    instr.      start        end  what     micro  kind of work, place in the model\n"
      "  on the device from 0.0 s to 2.000 s, b2 at offset 256, 256 B\n"
      "         0      0.0 s    1.000 s  write        0  exp layers.0\n"
      "         1    1.000 s    2.000 s  offload         copy_out: offload to host layers.0, "
      "exposed 1.000 s\n"
      "  on host from 2.000 s to 3.000 s, 256 B\n"
      "  on the device from 3.000 s to 7.000 s, b4 at offset 512, 256 B\n"
      "         3    3.000 s    4.000 s  fetch           copy_in: fetch from host head, "
      "exposed 1.000 s\n"
      "         5    5.000 s    7.000 s  read         1  mul backward head\n");
}

TEST(a_name_that_no_value_has_is_refused_with_the_nearest) {
  program *p = parse_small();
  str out = {0};
  CHECK_EQ(explain_chains(p, NULL, times, "layers.1", &out), HP_ERR_ARG);
  CHECK(strstr(err_message(), "no value of the step is called \"layers.1\""));
  err_clear();
  CHECK_EQ(explain_chains_json(p, NULL, times, "[", &out), HP_ERR_ARG);
  err_clear();
  str_free(&out);
  program_free(p);
}

/* Copies in a circle between two tiers, which a text may have. */
TEST(copies_in_a_circle_have_a_name_and_an_end) {
  const char *text = "arena device 256 bound 256 at 0\narena host 256 bound 256 at 0\n"
                     "b0 = f32[64] device+0\nb1 = f32[64] host+0\n"
                     "copy_in: b0 = fetch b1 {tier=1}\ncopy_out: b1 = offload b0 {tier=1}\n";
  program *p;
  str out = {0};
  CHECK_OK(program_parse(text, strlen(text), "circle", &p));
  CHECK_OK(explain_chains(p, NULL, times, "*", &out));
  CHECK(strstr(out.at, "0 uses, 1 stays"));
  str_free(&out);
  program_free(p);
}

TEST(memory_over_time_follows_the_times_of_instructions) {
  enum { N = 14 }; /* of 7 s: half a second each */
  program *p = parse_small();
  live_bytes at[N];
  CHECK_OK(memory_over_time(p, times, 7, at, N));
  static const uint64_t params[N] = {256, 256, 256, 256, 256, 256, 0,
                                     0,   256, 256, 256, 256, 256, 256};
  static const uint64_t host[N] = {0, 0, 256, 256, 256, 256, 256, 256, 0};
  for (int i = 0; i < N; i++) {
    CHECK_EQ(at[i].of[TIER_DEVICE][MEM_PARAM], params[i]);
    CHECK_EQ(at[i].of[TIER_HOST][MEM_ACTIVATION], host[i]);
  }
  CHECK_EQ(at[0].of[TIER_DEVICE][MEM_ACTIVATION], 256);
  CHECK_EQ(at[5].of[TIER_DEVICE][MEM_ACTIVATION], 0);
  CHECK_EQ(at[12].of[TIER_DEVICE][MEM_ACTIVATION], 512); /* the result, and what it is made of */
  CHECK_OK(memory_over_time(p, times, 0, at, 1));        /* a run that takes no time */
  program_free(p);
}

TEST(each_tier_has_a_panel_and_each_of_its_streams_a_lane) {
  const char *program_text =
      "arena device 512 bound 512 at 0\narena host 256 bound 256 at 0\n"
      "arena flash 256 bound 256 at 0\n"
      "b0 = f32[64] state flash \"w\"\nb1 = f32[64] device+0\nb2 = f32[64] host+0 class=3\n"
      "b3 = f32[64] flash+0 class=3\nb4 = f32[64] device+256 class=3\n"
      "flash_in: b1 = fetch b0 {tier=2}\ncompute: b4 = exp b1 wait=flash_in:0\n"
      "copy_out: b2 = offload b4 {tier=1} wait=compute:0\n"
      "flash_out: b3 = offload b4 {tier=2} wait=compute:0\n";
  const inst_times t[] = {{0, 0, 1, 0}, {1, 1, 2, 0}, {2, 2, 3, 0}, {2, 2, 4, 0}};
  program *p;
  str out = {0};
  CHECK_OK(program_parse(program_text, strlen(program_text), "tiers", &p));
  CHECK_OK(memory_picture(p, NULL, t, NULL, NULL, false, &out));
  CHECK(strstr(out.at, ">device: at most 512 B in use, planned 512 B<"));
  CHECK(strstr(out.at, ">host: at most 256 B") && strstr(out.at, ">flash: at most 512 B"));
  CHECK(strstr(out.at, ">flash in<") && strstr(out.at, ">flash out<") &&
        strstr(out.at, ">4.000 s<"));
  str_free(&out);
  program_free(p);
}

/* --- a training step -------------------------------------------------------------------------- */

static void open_limited(step_case *s, double share, hp_program_stats *stats) {
  hp_program_stats whole;
  hp_device_options o = {.threads = 1, .interpret = true, .plan_only = true};
  hp_graph *g = step_graph(HP_F32);
  hp_device *d;
  CHECK_OK(hp_device_open(&o, &d));
  CHECK_OK(hp_plan(g, d, NULL, &whole));
  hp_device_close(d);
  hp_graph_free(g);
  o.plan_only = false;
  o.memory_limit = (uint64_t)(share * (double)whole.memory.planned_bytes);
  for (int k = 0; k < HP_MEMORY_CLASSES; k++) o.offload[k] = HP_OFFLOAD_AUTO;
  step_open(&o, NULL, HP_F32, s);
  CHECK_OK(hp_program_stats_get(s->p, stats));
  CHECK(stats->memory.planned_bytes <= o.memory_limit);
}

static int64_t integer(const tree_node *m, const char *key) {
  int64_t x;
  CHECK_OK(tree_need_int(m, key, &x));
  return x;
}

static double number(const tree_node *m, const char *key) {
  double x;
  CHECK_OK(tree_need_double(m, key, &x));
  return x;
}

/* Of a list of objects, of those where the first key has that text; NULL: of all. */
static int64_t sum_of(const tree_node *list, const char *where, const char *is, const char *key) {
  int64_t sum = 0;
  for (uint32_t i = 0; i < list->len; i++) {
    const char *text;
    CHECK_OK(tree_need_string(list->child[i], where, &text));
    if (!is || !strcmp(text, is)) sum += integer(list->child[i], key);
  }
  return sum;
}

static tree explain_tree(const hp_program *p, const char *what) {
  char *text;
  tree t;
  CHECK_OK(hp_explain(p, what, &text));
  CHECK_OK(json_parse(text, strlen(text), what, &t));
  hp_free(text);
  return t;
}

static void check_bytes(const hp_memory *m, const tree_node *root) {
  const tree_node *classes = tree_get(root, "classes"), *moved = tree_get(root, "moved");
  for (int t = 0; t < 2; t++) {
    const tree_node *tier = tree_get(tree_get(root, "tiers"), m->tier[t].name);
    CHECK_EQ(integer(tier, "planned_bytes"), m->tier[t].planned_bytes);
    CHECK_EQ(integer(tier, "moved_bytes"), m->tier[t].moved_bytes);
    CHECK_EQ(sum_of(classes, "tier", m->tier[t].name, "moved_bytes"), m->tier[t].moved_bytes);
    CHECK(sum_of(classes, "tier", m->tier[t].name, "planned_bytes") <=
          (int64_t)m->tier[t].planned_bytes);
  }
  CHECK_EQ(integer(root, "moved_values"), moved->len);
  CHECK_EQ(sum_of(moved, "tier", NULL, "moved_bytes"), m->tier[1].moved_bytes);
  CHECK_EQ(integer(root, "lower_bound_bytes"), m->state_bytes + m->work_bound);
}

TEST(what_moves_adds_up_to_what_is_planned) {
  step_case s;
  hp_program_stats stats;
  open_limited(&s, 0.4, &stats);
  const hp_memory *m = &stats.memory;
  CHECK(m->live_bytes <= m->work_bytes && m->live[MEM_PARAM] + m->live[MEM_OPTIMIZER]);
  CHECK_EQ(m->state[MEM_PARAM], 0); /* at home on the host */
  CHECK(m->tier[1].planned_bytes >= m->model[MEM_PARAM] + m->model[MEM_OPTIMIZER]);
  str text = {0};
  memory_print(m, 0, &text);
  CHECK(strstr(text.at, "\nhost: total ") && strstr(text.at, "in a run "));
  str_free(&text);
  tree t = explain_tree(s.p, "memory.json");
  check_bytes(m, t.root);
  const tree_node *moved = tree_get(t.root, "moved");
  double copy_s = 0, exposed_s = 0;
  int64_t last = INT64_MAX;
  for (uint32_t i = 0; i < moved->len; i++) {
    const tree_node *v = moved->child[i];
    CHECK(integer(v, "size_bytes") <= last);
    last = integer(v, "size_bytes");
    CHECK(integer(v, "fetches") + integer(v, "offloads") > 0 && integer(v, "uses") > 0);
    CHECK_EQ(integer(v, "moved_bytes"), (integer(v, "fetches") + integer(v, "offloads")) * last);
    copy_s += number(v, "copy_s");
    exposed_s += number(v, "exposed_copy_s");
  }
  CHECK_NEAR(copy_s, number(t.root, "copy_s"), 1e-9);
  CHECK_NEAR(exposed_s, stats.exposed_copy_s, 1e-9);
  CHECK(number(t.root, "lower_bound_s") > 0);
  CHECK(number(t.root, "lower_bound_s") <= number(t.root, "plan_s") * (1 + 1e-9));
  tree_free(&t);
  step_close(&s);
}

/* Stays follow one another; with what is between them they are the whole run. */
TEST(each_tensor_of_a_step_has_its_chain) {
  step_case s;
  hp_program_stats stats;
  open_limited(&s, 0.4, &stats);
  step_run(&s);
  tree t = explain_tree(s.p, "memory.json *");
  const tree_node *values = tree_get(t.root, "values");
  double run_s = number(t.root, "run_s");
  int moved = 0, offloaded = 0;
  CHECK(values->len > 60 && run_s > 0);
  for (uint32_t i = 0; i < values->len; i++) {
    const tree_node *stays = tree_get(values->child[i], "stays");
    double start_s = 0;
    int64_t uses = 0;
    moved += integer(values->child[i], "moved_bytes") > 0;
    for (uint32_t k = 0; k < stays->len; k++) {
      const tree_node *touches = tree_get(stays->child[k], "touches");
      CHECK(number(stays->child[k], "start_s") >= start_s);
      start_s = number(stays->child[k], "start_s");
      double end_s = number(stays->child[k], "end_s");
      CHECK(end_s <= run_s && touches->len);
      for (uint32_t j = 0; j < touches->len; j++) {
        const char *what;
        CHECK_OK(tree_need_string(touches->child[j], "what", &what));
        CHECK(number(touches->child[j], "end_s") <= end_s);
        if (!strcmp(what, "offload")) offloaded++;
        else uses += strcmp(what, "fetch") != 0;
      }
    }
    CHECK_EQ(uses, integer(values->child[i], "uses"));
  }
  CHECK(moved > 20 && offloaded > 20);
  tree_free(&t);
  step_close(&s);
}

/* Copies in the table of work: by direction and tier, at the speed of the tier's link. */
TEST(copies_are_work_at_the_limit_of_their_link) {
  step_case s;
  hp_program_stats stats;
  hp_op_time *row;
  int n;
  double bytes = 0;
  open_limited(&s, 0.4, &stats);
  step_run(&s);
  CHECK_OK(hp_program_times(s.p, &row, &n));
  for (int i = 0; i < n; i++) {
    bool in = !strcmp(row[i].kind, "fetch from host"),
         out = !strcmp(row[i].kind, "offload to host");
    CHECK_EQ(!strncmp(row[i].kind, "fetch", 5) || !strncmp(row[i].kind, "offload", 7), in || out);
    if (!in && !out) continue;
    bytes += row[i].bytes;
    CHECK_STR(row[i].limit, "link");
    CHECK(row[i].overlapped && row[i].limit_s > 0 && row[i].seconds > 0 && row[i].gap_s == 0);
  }
  CHECK_EQ((uint64_t)bytes, stats.memory.tier[1].moved_bytes);
  hp_free(row);
  step_close(&s);
}
