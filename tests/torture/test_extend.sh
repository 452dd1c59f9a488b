#!/bin/sh
# Adds an op, a pass, a model family, a loss and a target to a copy of the tree, as CONTRIBUTING.md
# tells, builds it and runs each of them.  How many files each takes is what that page says.
. "$(dirname "$0")/../cli/lib.sh"
. "$ROOT/tests/cli/train_lib.sh"

TREE=$WORK/tree
mkdir "$TREE"
for f in Makefile config.mk examples include src tests tools; do
  [ ! -e "$ROOT/$f" ] || cp -a "$ROOT/$f" "$TREE/"
done

# create KIND FILE: standard input is a new file
create() {
  mkdir -p "$(dirname "$TREE/$2")"
  cat > "$TREE/$2"
  echo "$2" >> "$WORK/$1.files"
}
# add KIND FILE TEXT: standard input goes below the first line that begins with the text
add() {
  cat > "$WORK/lines"
  awk -v text="$3" -v lines="$WORK/lines" '
    { print }
    !done && index($0, text) == 1 { while ((getline more < lines) > 0) print more; done = 1 }
    END { exit !done }' "$TREE/$2" > "$WORK/edited" || fail "$2 has no line \"$3\""
  cp "$WORK/edited" "$TREE/$2"
  echo "$2" >> "$WORK/$1.files"
}
# takes KIND N M: it took N files of src and M of tests
takes() {
  src=$(sort -u "$WORK/$1.files" | grep -c '^src/')
  tests=$(sort -u "$WORK/$1.files" | grep -c '^tests/')
  [ "$src.$tests" = "$2.$3" ] || fail "$src files of src and $tests of tests, not $2 and $3"
}

# --- what is added ------------------------------------------------------------------------------

it "an op takes 3 files, and 2 of tests"
add op src/ir/ops.def 'OP(SQUARE,' <<'END'
OP(CUBE, "cube", 1, 1, 1, "", float, cube, "...->...", NONE, map, "IE", "x * x * x")
END
add op src/codegen/expr.def 'EXPR(square, f,' <<'END'
EXPR(cube, f, 2, f, v, v, a * a * a)
END
add op src/ops/map.c 'void grad_square(' <<'END'

void grad_cube(grad_ctx *c) {
  c->din[0] = ops_scale(G, add_mul(c, DY, ops_unary(G, OP_SQUARE, X)), 3);
}
END
add op tests/ops/grid.def 'GRID1(SQUARE,' <<'END'
GRID1(CUBE, F, OF, -4, 4)
END
add op tests/ops/ref_map.c 'void ref_SQUARE(' <<'END'
static double f_cube(double x) { return x * x * x; }
void ref_CUBE(ref_ctx *c) { map1(c, f_cube, 2); }
END
takes op 3 2

it "a pass takes 2 files, and 1 of tests"
create pass src/pass/fold_neg.c <<'END'
/* fold_neg: the negative of a negative is the value itself. */
#include "pass/pass.h"

hp_status pass_fold_neg(const hp_graph *in, const pass_options *o, hp_graph **out) {
  rewrite r;
  (void)o;
  HP_TRY(rewrite_begin(&r, in));
  for (uint32_t i = 0; i < in->nodes.len; i++) {
    const ir_node *n = graph_node(in, i);
    const ir_node *of = n->op == OP_NEG ? graph_def(in, graph_in(in, n)[0]) : NULL;
    if (of && of->op == OP_NEG) r.map[n->out0] = r.map[graph_in(in, of)[0]];
    else rewrite_copy(&r, i);
  }
  return rewrite_end_live(&r, HP_OK, out);
}
END
add pass src/pass/pass.def 'PASS(decompose,' <<'END'
PASS(fold_neg, "the negative of a negative is the value itself")
END
create pass tests/ir/fold_neg.hp <<'END'
=== the negative of a negative is the value itself
run: fold_neg
%1:f32[4] = input {name="x", dtype=f32, shape=[4]}
%2:f32[4] = neg %1
%3:f32[4] = neg %2
%4:f32[4] = exp %3
output %4 {name="y"}
---
%1:f32[4] = input {name="x", dtype=f32, shape=[4]}
%2:f32[4] = exp %1
output %2 {name="y"}
END
takes pass 2 1

it "a model family takes 2 files"
create family src/model/toy.c <<'END'
/* Toy: a decoder of the Llama kind whose products have biases. */
#include "model/decoder.h"

static hp_tensor build_hidden(model_build *b) {
  return decoder_hidden(b, decoder_attention, decoder_mlp);
}

static double count_params(const model_config *c) {
  double layer = decoder_attention_params(c) + decoder_mlp_params(c, c->ffn);
  return decoder_frame_params(c) + (double)c->layers * layer;
}

static hp_status read_config(const tree_node *root, model_config *c) {
  c->qkv_bias = c->o_bias = c->mlp_bias = true;
  return config_read_llama(root, c);
}

extern const model_family family_toy;
const model_family family_toy = {.model_type = "toy",
                                 .architecture = "ToyForCausalLM",
                                 .absent = {.positions = 2048, .bos = 1, .eos = 2},
                                 .read = read_config,
                                 .hidden = build_hidden,
                                 .head_name = "lm_head.weight",
                                 .embedding_name = "model.embed_tokens.weight",
                                 .params = count_params,
                                 .cuts = decoder_cuts};
END
add family src/model/families.def 'FAMILY(llama)' <<'END'
FAMILY(toy)
END
takes family 2 0

it "a loss takes 2 files"
create loss src/train/loss_twice.c <<'END'
/* A loss for tests: twice that of pre-training. */
#include "train/losses.h"

hp_tensor twice_losses(model_build *b, hp_tensor hidden, hp_tensor labels) {
  return hp_scale(b->g, lm_token_losses(b, hidden, labels), 2);
}
END
add loss src/train/losses.def 'LOSS(pt,' <<'END'
LOSS(twice, DATASET_TEXTS, text_samples, twice_losses, NULL, NULL, "twice the loss of pt")
END
takes loss 2 0

it "a target takes a folder"
sed 's/sim/toy/g' "$ROOT/src/backend/sim/sim_backend.c" |
  create target src/backend/toy/toy_backend.c
takes target 1 0

it "nothing else was touched"
diff -rq "$ROOT/src" "$TREE/src" > differs
diff -rq "$ROOT/tests" "$TREE/tests" >> differs
for kind in op pass family loss target; do sort -u "$WORK/$kind.files"; done > touched
[ "$(wc -l < differs)" = "$(wc -l < touched)" ] || fail "files that differ: $(cat differs)"

# --- what it does -------------------------------------------------------------------------------

it "the tree builds"
create check examples/c/extended.c <<'END'
/* The cube of 3 and its gradient, and a plan for the target "toy". */
#include <hyperparallel.h>

#include <stdio.h>

static int fails(hp_status s) {
  if (s) fprintf(stderr, "%s\n", hp_last_error());
  return s != HP_OK;
}

static int run(const hp_graph *g) {
  hp_device *d;
  hp_program *p;
  float x = 3, y = 0, dx = 0;
  hp_io io[] = {{"x", &x, sizeof x}, {"y", &y, sizeof y}, {"dx", &dx, sizeof dx}};
  if (fails(hp_device_open(NULL, &d)) || fails(hp_compile(g, d, NULL, &p)) || fails(hp_run(p, io, 3)))
    return 1;
  printf("cube %g, gradient %g\n", (double)y, (double)dx);
  hp_program_free(p);
  hp_device_close(d);
  return 0;
}

static int plan(const hp_graph *g) {
  hp_device_options o = {.backend = "toy", .plan_only = true};
  hp_device *d;
  char *text;
  if (fails(hp_device_open(&o, &d)) || fails(hp_plan_explain(g, d, NULL, "schedule", &text))) return 1;
  printf("%s\n%s\n", hp_device_describe(d), text);
  hp_free(text);
  hp_device_close(d);
  return 0;
}

int main(void) {
  hp_graph *g;
  hp_tensor dx;
  if (fails(hp_graph_create(&g))) return 1;
  hp_tensor x = hp_input(g, "x", HP_F32, (hp_shape){0}), y = hp_map(g, "cube", x, HP_NONE, HP_NONE);
  hp_output(g, "y", y);
  if (fails(hp_grad(g, y, &x, 1, &dx))) return 1;
  hp_output(g, "dx", dx);
  int bad = run(g) || plan(g);
  hp_graph_free(g);
  return bad;
}
END
sources=$(cd "$TREE" && echo tests/*.c tests/ops/*.c tests/ir/*.c tests/unit/test_threads.c tests/unit/hazards.c tests/unit/far_memory.c)
began=$(date +%s)
if (cd "$TREE" && env -u MAKEFLAGS -u MFLAGS make -s -j"$(nproc)" B=build CFLAGS=-O0 ISA_OPT=-O0 SAN= TEST_SRC="$sources" \
  build/hyper build/test-unit build/examples/extended) > build.log 2>&1; then
  echo "built in $(($(date +%s) - began)) s"
else
  fail "$(grep -v '^  [a-z]* ' build.log | head -20)"
  exit 1
fi
HYPER=$TREE/build/hyper
unit() { (cd "$TREE" && build/test-unit "$@") > unit.log 2>&1 || fail "$(grep -v '^ok' unit.log)"; }

it "the op and its gradient are computed, cut over devices, and compared with the reference"
run_cmd "$TREE/build/examples/extended"
exit_is 0
out_has "cube 27, gradient 27"
unit row_cube shard_cube
grep -q '^[1-9][0-9]* passed' unit.log || fail "no test of the op ran"

it "the pass changes a graph"
unit passes_turn every_pass_has

it "the target plans a program"
out_has "toy, a device that is planned for"
out_has "cube"

it "a model of the family is trained with the loss, which the help names"
run train --help
out_has "twice: twice the loss of pt"
make_job plain </dev/null
sed -i 's/"model_type": "llama"/"model_type": "toy"/' plain/model/config.json
eval="max_steps=2 val_size=0.1 eval_strategy=steps eval_steps=1 eval_on_start=true"
run train plain/job.yaml $eval
exit_is 0
run train plain/job.yaml $eval stage=twice output_dir=twice
exit_is 0
loss_of() { sed -n "s/.*\"$2\": \([0-9.]*\).*/\1/p" "$1/trainer_log.jsonl" | head -1; }
for loss in loss eval_loss; do
  awk -v a="$(loss_of plain/out $loss)" -v b="$(loss_of twice $loss)" 'BEGIN { exit !(a > 1 && b / a > 1.999 && b / a < 2.001) }' ||
    fail "$loss $(loss_of plain/out $loss) and $(loss_of twice $loss)"
done
