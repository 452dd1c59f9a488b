/* Layouts through the public API, and the vectors of the original HyperShard where they are. */
#include "base/io.h"
#include "base/json.h"
#include "base/vec.h"
#include "test.h"

#include <stdlib.h>

static hp_layout *parsed(const char *text) {
  hp_layout *l;
  CHECK_OK(hp_layout_parse(text, &l));
  return l;
}

/* --- parts ------------------------------------------------------------------------------------ */

/* The example of HyperShard's papers: the first name of a tuple is outermost. */
TEST(a_tuple_splits_its_dim_over_the_first_axis_outermost) {
  static const int64_t want[8][4] = {/* by rank: rows, columns */
                                     {0, 16, 0, 196},    {16, 32, 0, 196},  {0, 16, 392, 588},
                                     {16, 32, 392, 588}, {0, 16, 196, 392}, {16, 32, 196, 392},
                                     {0, 16, 588, 784},  {16, 32, 588, 784}};
  hp_layout *x = parsed("(2,2,2)(dp,sp,mp)(mp,(sp,dp))");
  for (int64_t r = 0; r < 8; r++) {
    int64_t start[2], stop[2];
    CHECK_OK(hp_layout_slice(x, (hp_shape){2, {32, 784}}, r, start, stop));
    CHECK_EQ(start[0], want[r][0]);
    CHECK_EQ(stop[0], want[r][1]);
    CHECK_EQ(start[1], want[r][2]);
    CHECK_EQ(stop[1], want[r][3]);
  }
  hp_layout_free(x);
}

TEST(an_uneven_dim_is_padded_at_its_end) {
  static const int64_t want[4][2] = {{0, 2}, {2, 4}, {4, 5}, {5, 5}};
  hp_layout *x = parsed("(4)(dp)(dp)");
  for (int64_t r = 0; r < 4; r++) {
    int64_t start, stop;
    CHECK_OK(hp_layout_slice(x, (hp_shape){1, {5}}, r, &start, &stop));
    CHECK_EQ(start, want[r][0]);
    CHECK_EQ(stop, want[r][1]);
  }
  hp_layout_free(x);
}

TEST(shards_of_a_given_length_hold_whole_units) {
  static const int64_t want[3][2] = {{0, 8}, {8, 12}, {12, 12}}; /* heads of 4 rows, two a part */
  hp_layout *x = parsed("(3)(tp)(tp:8)");
  int64_t start, stop;
  for (int64_t r = 0; r < 3; r++) {
    CHECK_OK(hp_layout_slice(x, (hp_shape){1, {12}}, r, &start, &stop));
    CHECK_EQ(start, want[r][0]);
    CHECK_EQ(stop, want[r][1]);
  }
  CHECK_FAILS(hp_layout_slice(x, (hp_shape){1, {25}}, 0, &start, &stop), "more than its shards");
  hp_layout_free(x);
}

TEST(ranks_stand_where_the_rank_list_puts_them) {
  hp_layout *x = parsed("(2,2)(dp,mp)(dp)@0,2,1,3"), *y = parsed("(2,2)(dp,mp)(dp)");
  int64_t start, stop, group[2], n;
  CHECK_OK(hp_layout_slice(x, (hp_shape){1, {8}}, 1, &start, &stop));
  CHECK_EQ(start, 4);
  CHECK_OK(hp_layout_group(x, "dp", 2, group, 2, &n)); /* not those of another rank list */
  CHECK_EQ(group[0], 2);
  CHECK_EQ(group[1], 3);
  CHECK_OK(hp_layout_group(y, "dp", 2, group, 2, &n));
  CHECK_EQ(group[0], 0);
  CHECK_EQ(group[1], 2);
  CHECK_OK(hp_layout_repeat(x, &n));
  CHECK_EQ(n, 2);
  CHECK_FAILS(hp_layout_group(x, "pp", 0, group, 2, &n), "\"pp\" is not an axis");
  CHECK_FAILS(hp_layout_group(x, "dp", 4, group, 2, &n), "rank 4 is not on the mesh");
  CHECK_FAILS(hp_layout_group(x, "dp", 0, group, 1, &n), "room for 1");
  CHECK_FAILS(hp_layout_slice(x, (hp_shape){1, {8}}, -1, &start, &stop), "rank -1");
  hp_layout_free(x);
  hp_layout_free(y);
}

TEST(shapes_of_shards_and_global_tensors_need_as_many_dims_as_the_layout) {
  hp_layout *x = parsed("(2,3)(dp,mp)((mp,dp),None)");
  hp_shape global;
  int64_t start[2], stop[2];
  CHECK_OK(hp_layout_global(x, (hp_shape){2, {4, 5}}, &global));
  CHECK_EQ(global.dim[0], 24);
  CHECK_EQ(global.dim[1], 5);
  CHECK_FAILS(hp_layout_global(x, (hp_shape){1, {8}}, &global), "1 dims, its layout 2");
  CHECK_FAILS(hp_layout_global(x, (hp_shape){2, {INT64_MAX / 2, 8}}, &global), "dim 0");
  CHECK_FAILS(hp_layout_slice(x, (hp_shape){3, {8, 4, 2}}, 0, start, stop), "3 dims");
  CHECK_FAILS(hp_layout_slice(x, (hp_shape){2, {-8, 4}}, 0, start, stop), "dim 0");
  hp_layout_free(x);
}

/* --- text, placements ------------------------------------------------------------------------- */

TEST(text_is_read_back_as_it_is_printed) {
  static const char *const text[] = {"(2,2,2)(dp,sp,mp)(mp,(sp,dp))",
                                     "(2,2)(dp,mp)",
                                     "(2,2)(dp,mp)()",
                                     "(4)(dp)(None,None)+max:dp",
                                     "(2,2,2)(dp,a.b,mp)((dp,a.b),None)+sum:mp@7,6,5,4,3,2,1,0",
                                     "(2,2)(dp,mp)@3,1,2,0",
                                     "(2,2)(dp,mp)((mp,dp):7,None:3)",
                                     "(1,2)(x,interleaved_parallel)(interleaved_parallel)+avg:x"};
  for (size_t i = 0; i < sizeof text / sizeof *text; i++) {
    hp_layout *l = parsed(text[i]);
    char *out;
    CHECK_OK(hp_layout_print(l, &out));
    CHECK_STR(out, text[i]);
    hp_free(out);
    hp_layout_free(l);
  }
  hp_layout *l = parsed(" ( 2 , 2 ) ( dp , mp ) ( ( mp ) , None , ) + sum : dp ");
  char *out;
  CHECK_OK(hp_layout_print(l, &out));
  CHECK_STR(out, "(2,2)(dp,mp)(mp,None)+sum:dp");
  hp_free(out);
  hp_layout_free(l);
}

TEST(what_makes_no_sense_is_refused_with_its_reason) {
  static const struct {
    const char *text, *why;
  } bad[] = {
      {"", "character 1: expected \"(\" and the device matrix"},
      {"(2,2)", "the names of the axes"},
      {"(2,2)(dp)", "2 sizes and 1 names"},
      {"(2,0)(dp,mp)", "axis 1 has size 0"},
      {"(-2,-2)(dp,mp)", "axis 0 has size -2"},
      {"(2.5,2)(dp,mp)", "a number"},
      {"(2,2)(dp,dp)", "names axes 0 and 1"},
      {"(2,2)(dp,None)", "\"None\""},
      {"(2,2)(interleaved_parallel,mp)", "must be the last"},
      {"(4000000000,4000000000)(dp,mp)", "more than"},
      {"(2,2,2,2,2,2,2,2,2)(a,b,c,d,e,f,g,h,i)", "at most 8 axes"},
      {"(2,2)(dp,mp)(DP)", "\"DP\" is not an axis of the mesh; its axes are dp, mp"},
      {"(2,2)(dp,mp)(dp,dp)", "splits dim 0 and dim 1"},
      {"(2,2)(dp,mp)((dp,dp))", "splits dim 0 and dim 0"},
      {"(2,2)(dp,mp)(dp)+sum:dp", "axis \"dp\" splits dim 0"},
      {"(2,2)(dp,mp)(dp)+median:mp", "\"median\" is not a reduction"},
      {"(2,2)(dp,mp)(dp)+sum:mp+max:mp", "is partial (sum) already, not max"},
      {"(2,2)(dp,mp)(dp:0)", "the length of a shard, at least 1"},
      {"(2,2)(dp,mp)(dp:x)", "a number"},
      {"(2,2)(dp,mp)(dp:3000000000)", "the length of a shard"},
      {"(2,2)(dp,mp)(dp)x", "the end of the layout"},
      {"(2,2)(dp,mp)(dp", "\",\" or \")\""},
      {"(2,2)(dp,mp)(None,None,None,None,None,None,None,None,None)", "at most 8 dims"},
      {"(2,2)(dp,mp)(dp)@0,1,2", "3 ranks, the device matrix 4 devices"},
      {"(2,2)(dp,mp)(dp)@0,1,2,1", "rank 1 occurs twice"},
      {"(2,2)(dp,mp)(dp)@0,1,2,-1", "rank -1 is negative"},
      {"(2,2)(dp,mp)(dp)@0,1,2,3 4", "the end of the layout"},
  };
  hp_layout *l;
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
    CHECK_FAILS(hp_layout_parse(bad[i].text, &l), bad[i].why);
  const int64_t one = 2;
  CHECK_FAILS(hp_layout_create(&one, (const char *[]){""}, 1, NULL, 0, &l), "is empty");
  CHECK_FAILS(hp_layout_create(&one, (const char *[]){"a"}, 1, NULL, 5, &l),
              "rank_list is NULL and n_ranks 5; expected 0 or 2, the devices of the mesh");
  CHECK_FAILS(hp_layout_create(&one, (const char *[]){"a b"}, 1, NULL, 0, &l), "no blank");
  CHECK_FAILS(hp_layout_create(&one, (const char *[]){"a"}, 0, NULL, 0, &l), "0 axes");
}

TEST(a_mesh_that_was_not_called_has_no_shards) {
  hp_layout *x = parsed("(2,2)(dp,mp)");
  int64_t n, start, stop;
  CHECK_FAILS(hp_layout_repeat(x, &n), "use hp_layout_call first");
  CHECK_FAILS(hp_layout_slice(x, (hp_shape){1, {4}}, 0, &start, &stop), "use hp_layout_call");
  CHECK_FAILS(hp_layout_set_partial(x, "dp", "sum"), "use hp_layout_call");
  hp_layout_free(x);
}

TEST(nothing_given_is_refused) {
  hp_layout *x = parsed("(2,2)(dp,mp)(dp)"), *y;
  int64_t n, two[2] = {2, 2};
  hp_shape s = {1, {4}};
  CHECK_FAILS(hp_layout_parse(NULL, &y), "is NULL");
  CHECK_FAILS(hp_layout_create(NULL, NULL, 2, NULL, 0, &y), "is NULL");
  CHECK_FAILS(hp_layout_create(two, (const char *[]){"a", NULL}, 2, NULL, 0, &y), "is empty");
  CHECK_FAILS(hp_layout_call(x, NULL, &y), "is NULL");
  CHECK_FAILS(hp_layout_place(x, NULL, 2, 1, &y), "is NULL");
  CHECK_FAILS(hp_layout_place(x, (const char *[]){"R", NULL}, 2, 1, &y), "expected S(dim)");
  CHECK_FAILS(hp_layout_set_partial(x, NULL, "sum"), "is NULL");
  CHECK_FAILS(hp_layout_set_partial(x, "mp", NULL), "is NULL");
  CHECK_FAILS(hp_layout_group(x, NULL, 0, two, 2, &n), "is NULL");
  CHECK_FAILS(hp_layout_slice(NULL, s, 0, two, two), "is NULL");
  hp_layout_free(NULL);
  hp_layout_free(x);
}

TEST(placements_say_the_same_as_entries) {
  hp_layout *x = parsed("(2,3,2)(dp,sp,mp)"), *y;
  char *out;
  CHECK_OK(hp_layout_place(x, (const char *[]){"S(1)", "P(max)", "S(-1)"}, 3, 2, &y));
  CHECK_OK(hp_layout_print(y, &out));
  CHECK_STR(out, "(2,3,2)(dp,sp,mp)(None,(dp,mp))+max:sp");
  hp_free(out);
  hp_layout_free(y);
  const char *r = "R";
  CHECK_FAILS(hp_layout_place(x, (const char *[]){"S(2)", r, r}, 3, 2, &y), "has 2 dims");
  CHECK_FAILS(hp_layout_place(x, (const char *[]){"S(-3)", r, r}, 3, 2, &y), "has 2 dims");
  CHECK_FAILS(hp_layout_place(x, (const char *[]){"Shard", r, r}, 3, 2, &y), "expected S(dim)");
  CHECK_FAILS(hp_layout_place(x, &r, 1, 2, &y), "1 placements, the mesh has 3 axes");
  CHECK_FAILS(hp_layout_place(x, &r, 1, -1, &y), "-1 dims");
  hp_layout_free(x);
}

/* --- the vectors ------------------------------------------------------------------------------ */

/* Answers of `hyper layout --batch` to a file of vectors, as trees, in order. */
typedef struct {
  VEC(tree) question, answer;
} vectors;

static void read_lines(const char *path, const char *bytes, size_t n, vectors *v, bool answers) {
  size_t line = 1;
  for (const char *at = bytes, *end = bytes + n; at < end; line++) {
    const char *stop = memchr(at, '\n', (size_t)(end - at));
    tree t;
    CHECK_OK(json_parse_line(at, (size_t)(stop - at), path, line, &t));
    CHECK(answers ? vec_push(&v->answer, t) : vec_push(&v->question, t));
    at = stop + 1;
  }
}

static void ask(const char *name, vectors *v) {
  char path[256], command[1024];
  snprintf(path, sizeof path, "vectors/hyper_layout/%s.jsonl", name);
  const char *file = test_data(path), *hyper = getenv("HYPER");
  char *bytes;
  size_t n;
  *v = (vectors){0};
  CHECK_OK(file_read(file, 0, &bytes, &n));
  read_lines(file, bytes, n, v, false);
  mem_free(bytes);
  snprintf(command, sizeof command, "%s layout --batch %s > %s/answers",
           hyper ? hyper : "build/hyper", file, test_dir());
  CHECK_EQ(system(command), 0);
  snprintf(path, sizeof path, "%s/answers", test_dir());
  CHECK_OK(file_read(path, 0, &bytes, &n));
  read_lines(path, bytes, n, v, true);
  mem_free(bytes);
  CHECK_EQ(v->answer.len, v->question.len);
}

static void vectors_free(vectors *v) {
  for (size_t i = 0; i < v->question.len; i++) tree_free(&v->question.at[i]);
  for (size_t i = 0; i < v->answer.len; i++) tree_free(&v->answer.at[i]);
  vec_free(&v->question);
  vec_free(&v->answer);
}

static const char *as_text(const tree_node *n, str *out) {
  json_writer w = {.out = out};
  str_clear(out);
  if (n) json_put_tree(&w, n);
  return out->at ? out->at : "";
}

/* Key by key; `slices` of the vectors names some of the ranks of large meshes. */
static void check_layout_answer(const tree_node *q, const tree_node *a) {
  static const char *const keys[] = {"tensor_map", "shard_shape", "repeat_num", "placements"};
  str want = {0}, got = {0};
  for (int i = 0; i < 4; i++) {
    as_text(tree_get(q, keys[i]), &want);
    as_text(tree_get(a, keys[i]), &got);
    if (strcmp(want.at, got.at))
      test_fail(__FILE__, __LINE__, "%s: %s is %s, want %s", tree_get(q, "id")->string, keys[i],
                got.at, want.at);
  }
  const tree_node *some = tree_get(q, "slices"), *all = tree_get(a, "slices");
  for (uint32_t i = 0, k = 0; i < some->len; i++, k++) {
    while (k < all->len && all->child[k]->child[0]->integer != some->child[i]->child[0]->integer)
      k++;
    CHECK(k < all->len);
    CHECK_STR(as_text(all->child[k], &got), as_text(some->child[i], &want));
  }
  str_free(&want);
  str_free(&got);
}

TEST(every_layout_of_the_vectors_is_answered_as_the_original_does) {
  vectors v;
  int answers = 0, refusals = 0;
  ask("layouts", &v);
  for (size_t i = 0; i < v.question.len; i++) {
    const tree_node *q = v.question.at[i].root, *a = v.answer.at[i].root;
    const tree_node *action = tree_get(q, "action");
    if (!action) {
      check_layout_answer(q, a);
      answers++;
    } else if (!strcmp(action->string, "construct") || !strcmp(action->string, "call")) {
      if (!tree_get(a, "error"))
        test_fail(__FILE__, __LINE__, "%s: %s is accepted", tree_get(q, "id")->string,
                  tree_get(q, "why")->string);
      refusals++;
    }
  }
  CHECK(answers > 0 && refusals > 0);
  vectors_free(&v);
}

TEST(no_redistribution_of_the_vectors_is_dearer_than_need_be) {
  vectors v;
  int64_t ours, theirs;
  ask("redistribute", &v);
  for (size_t i = 0; i < v.question.len; i++) {
    const tree_node *q = v.question.at[i].root, *a = v.answer.at[i].root;
    CHECK_OK(tree_need_int(a, "bytes_per_rank", &ours));
    CHECK_OK(tree_need_int(q, "bytes_per_rank", &theirs));
    CHECK_OK(tree_opt_int(q, "least_bytes", theirs, &theirs));
    if (tree_get(q, "least_bytes") ? ours != theirs : ours > theirs)
      test_fail(__FILE__, __LINE__, "%s: %lld bytes, want %lld", tree_get(q, "id")->string,
                (long long)ours, (long long)theirs);
    CHECK_OK(tree_need_int(q, "local_elements", &theirs));
    CHECK_OK(tree_need_int(a, "local_elements", &ours));
    CHECK_EQ(ours, theirs);
  }
  vectors_free(&v);
}

/* Where the original is right and we refuse: the index of a maximum over a dim that is cut. */
static bool is_refused(const tree_node *q) { return !strcmp(tree_get(q, "op")->string, "max_dim"); }

TEST(every_derivation_of_the_vectors_has_the_original_s_results) {
  static const char *const keys[] = {"outputs", "slice_inputs", "local"};
  vectors v;
  int answers = 0;
  str want = {0}, got = {0};
  ask("derive", &v);
  for (size_t i = 0; i < v.question.len; i++) {
    const tree_node *q = v.question.at[i].root, *a = v.answer.at[i].root;
    if (tree_get(q, "error") || (tree_get(a, "error") && is_refused(q))) continue;
    answers++;
    for (int k = 0; k < 3; k++) {
      as_text(tree_get(q, keys[k]), &want);
      as_text(tree_get(a, keys[k]), &got);
      if (strcmp(want.at ? want.at : "", got.at ? got.at : ""))
        test_fail(__FILE__, __LINE__, "%s: %s are %s, want %s", tree_get(q, "id")->string, keys[k],
                  got.at ? got.at : as_text(a, &got), want.at);
    }
  }
  CHECK(answers > 0);
  str_free(&want);
  str_free(&got);
  vectors_free(&v);
}
