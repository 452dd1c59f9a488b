#include "rt/explain_schedule.h"

#include "base/dtype.h"
#include "mem/timeline.h"
#include "rt/inst_name.h"

#include <stdlib.h>
#include <string.h>

/* --- text ------------------------------------------------------------------------------------- */

/* Comments after the line of a buffer (its name) and of a loop (what it computes). */
static void name_line(const program *p, const mesh *m, const uint32_t *maker, const char *line,
                      size_t *inst, str *out) {
  char *end;
  uint32_t b = *line == 'b' ? (uint32_t)strtoul(line + 1, &end, 10) : 0;
  if (!strncmp(line, "arena ", 6)) return;
  if (*line == 'b' && end > line + 1 && b < p->buffers.len) {
    if (p->buffers.at[b].name) return; /* the line has it already */
    str_add(out, "  # ");
    buffer_print_name(p, m, maker, b, out);
    return;
  }
  const prog_inst *n = *inst < p->insts.len ? program_inst(p, (*inst)++) : NULL;
  if (!n || n->op != OP_FUSED) return;
  str_add(out, "  # ");
  inst_print_name(p, m, n, out);
}

hp_status explain_schedule(const program *p, const mesh *m, str *out) {
  uint32_t *maker;
  str text = {0};
  size_t inst = 0;
  HP_TRY(buffer_makers(p, &maker));
  hp_status st = program_print(p, &text);
  for (const char *line = text.at; !st && line && *line;) {
    size_t n = strcspn(line, "\n");
    str_add_n(out, line, n);
    name_line(p, m, maker, line, &inst, out);
    str_add_char(out, '\n');
    line += n + (line[n] == '\n');
  }
  str_free(&text);
  mem_free(maker);
  return st ? st : str_status(out);
}

/* --- JSON ------------------------------------------------------------------------------------- */

static void put_str(json_writer *w, const char *key, str *text) {
  w->out->failed |= text->failed;
  json_key_string(w, key, text->at ? text->at : "");
  str_free(text);
}

static void put_type(json_writer *w, const ir_value *v) {
  json_key_string(w, "dtype", dtype_name((hp_dtype)v->dtype));
  json_put_key(w, "shape");
  json_open_list(w);
  for (int i = 0; i < v->rank; i++) json_put_int(w, v->dim[i]);
  json_close(w);
}

void buffer_put(json_writer *w, const program *p, const mesh *m, const uint32_t *maker,
                uint32_t buffer) {
  const prog_buffer *f = &p->buffers.at[buffer];
  char layer[PLACE_LAYER];
  str name = {0};
  buffer_print_name(p, m, maker, buffer, &name);
  buffer_name_layer(p, maker, buffer, layer);
  json_open_map(w);
  json_key_int(w, "buffer", buffer);
  put_str(w, "name", &name);
  json_key_string(w, "layer", layer);
  json_key_string(w, "class", mem_class_name((mem_class)f->class));
  json_key_string(w, "place", f->place == PLACE_STATE ? "state" : "work");
  json_key_string(w, "tier", tier_name(f->tier));
  put_type(w, &f->type);
  json_key_int(w, "size_bytes", (int64_t)f->bytes);
  if (f->root != buffer) {
    json_key_int(w, "view_of", f->root);
    json_key_int(w, "view_offset_bytes", (int64_t)f->at);
  } else if (f->place == PLACE_WORK) {
    json_key_int(w, "offset_bytes", (int64_t)f->offset);
  }
  json_close(w);
}

static void put_ids(json_writer *w, const char *key, const uint32_t *id, int n) {
  json_put_key(w, key);
  json_open_list(w);
  for (int i = 0; i < n; i++) json_put_int(w, id[i]);
  json_close(w);
}

static void put_waits(json_writer *w, const program *p, const prog_inst *n) {
  json_put_key(w, "waits");
  json_open_list(w);
  for (uint32_t k = n->wait0; k < n->wait0 + n->n_wait; k++) {
    json_open_map(w);
    json_key_string(w, "stream", stream_name(p->waits.at[k].stream));
    json_key_int(w, "position", p->waits.at[k].position);
    json_close(w);
  }
  json_close(w);
}

static void put_inst(json_writer *w, const program *p, const mesh *m, const inst_times *t,
                     size_t i) {
  static const char *const phase[] = {"forward", "backward", "update"};
  const prog_inst *n = program_inst(p, i);
  const uint32_t *arg = program_args(p, n);
  char layer[PLACE_LAYER];
  str name = {0};
  inst_print_name(p, m, n, &name);
  inst_name_layer(p, n, layer);
  json_open_map(w);
  json_key_int(w, "instruction", (int64_t)i);
  json_key_string(w, "stream", stream_name(n->stream));
  json_key_string(w, "op", op_table[n->op].name);
  put_str(w, "name", &name);
  json_key_string(w, "at", program_str(p, n->loc));
  json_key_string(w, "layer", layer);
  json_key_string(w, "phase", phase[n->phase]);
  put_ids(w, "inputs", arg, n->n_in);
  put_ids(w, "outputs", arg + n->n_in, n->n_out);
  if (n->workspace != PROG_NONE) json_key_int(w, "workspace", n->workspace);
  put_waits(w, p, n);
  if (n->engine) json_key_string(w, "engine", program_str(p, n->engine));
  json_key_double(w, "work_flop", n->flops);
  json_key_double(w, "moved_bytes", n->bytes);
  json_key_double(w, "start_s", t[i].start_s);
  json_key_double(w, "end_s", t[i].end_s);
  json_close(w);
}

static void put_arenas(json_writer *w, const program *p) {
  json_put_key(w, "arenas");
  json_open_map(w);
  for (int t = 0; t < TIER_COUNT; t++) {
    if (!p->arena[t]) continue;
    json_put_key(w, tier_name(t));
    json_open_map(w);
    json_key_int(w, "planned_bytes", (int64_t)p->arena[t]);
    json_key_int(w, "lower_bound_bytes", (int64_t)p->bound[t]);
    json_close(w);
  }
  json_close(w);
}

hp_status explain_schedule_json(const program *p, const mesh *m, const inst_times *t, bool measured,
                                str *out) {
  json_writer w = {.out = out};
  uint32_t *maker;
  HP_TRY(buffer_makers(p, &maker));
  json_open_map(&w);
  json_key_bool(&w, "measured", measured);
  json_key_double(&w, "run_s", inst_times_end(t, p->insts.len));
  put_arenas(&w, p);
  json_put_key(&w, "buffers");
  json_open_list(&w);
  for (uint32_t b = 0; b < p->buffers.len; b++) buffer_put(&w, p, m, maker, b);
  json_close(&w);
  json_put_key(&w, "instructions");
  json_open_list(&w);
  for (size_t i = 0; i < p->insts.len; i++) put_inst(&w, p, m, t, i);
  json_close(&w);
  json_close(&w);
  str_add_char(out, '\n');
  mem_free(maker);
  return str_status(out);
}
