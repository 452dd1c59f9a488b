#include "rt/explain_chain.h"

#include "base/dtype.h"
#include "base/tier.h"
#include "base/units.h"
#include "ir/print.h"
#include "mem/timeline.h"
#include "rt/inst_name.h"

#include <fnmatch.h>
#include <stdio.h>
#include <string.h>

enum { CHAINS_SHOWN = 20 };

/* --- names --------------------------------------------------------------------------------------
 */

hp_status chain_view_make(const program *p, const mesh *on, const inst_times *t, chain_view *out) {
  *out = (chain_view){.p = p, .on = on, .t = t};
  HP_TRY(buffer_makers(p, &out->writer));
  return value_chains_make(p, t, &out->c);
}

void chain_view_free(chain_view *v) {
  mem_free(v->writer);
  value_chains_free(&v->c);
}

void chain_print_name(const chain_view *v, const value_chain *c, str *out) {
  buffer_print_name(v->p, v->on, v->writer, c->buffer, out);
}

void chain_print_decision(const chain_view *v, const value_chain *c, str *out) {
  uint32_t gaps = value_gaps(c), away = value_gaps_away(&v->c, c);
  if (c->tier == TIER_DEVICE) str_add(out, "stays on the device");
  else if (!c->stays) str_printf(out, "on %s", tier_name(c->tier));
  else if (!away) str_printf(out, "home is %s, stays on the device", tier_name(c->tier));
  else if (away > gaps) str_printf(out, "on %s before its use", tier_name(c->tier));
  else str_printf(out, "on %s in %u of %u gaps", tier_name(c->tier), away, gaps);
}

static bool is_name(const char *pattern, const char *name) { return !strcmp(pattern, name); }

/* A pattern matches the name of a value, or its place in the model: what follows the kind of work
 * in the name. */
static bool is_like(const char *pattern, const char *name) {
  const char *place = strrchr(name, ' ');
  if (!fnmatch(pattern, name, 0)) return true;
  return place && (is_name(pattern, place + 1) || !fnmatch(pattern, place + 1, 0));
}

/* Values that match, in the order in which they are made or used first. */
typedef struct {
  VEC(uint32_t) value;
} matching;

static hp_status no_match(const char *pattern, const str *name, size_t n) {
  const char **list = mem_calloc(n, sizeof *list);
  HP_TRY_MEM(list);
  for (size_t i = 0; i < n; i++) list[i] = name[i].at;
  const char *near = str_nearest(pattern, list, n);
  hp_status st = err_set(
      HP_ERR_ARG, __FILE__, __LINE__,
      "no value of the step is called \"%.100s\"%s%.100s%s; expected the name of a parameter, an "
      "input or an output, or the place of an instruction in the model, with * for any text",
      pattern, near ? " (did you mean \"" : "", near ? near : "", near ? "\"?)" : "");
  mem_free(list);
  return st;
}

static hp_status add_matching(const str *name, size_t n,
                              bool (*matches)(const char *, const char *), const char *pattern,
                              matching *out) {
  for (uint32_t i = 0; i < n; i++)
    if (matches(pattern, name[i].at) && !vec_push(&out->value, i)) return HP_ERR_OOM;
  return HP_OK;
}

static hp_status find_matching(const chain_view *v, const char *pattern, matching *out) {
  size_t n = v->c.values;
  str *name = mem_calloc(n, sizeof *name);
  HP_TRY_MEM(name);
  hp_status st = HP_OK;
  for (size_t i = 0; i < n && !st; i++) {
    str_add(&name[i], ""); /* text in any case */
    chain_print_name(v, &v->c.value[i], &name[i]);
    st = str_status(&name[i]);
  }
  if (!st) st = add_matching(name, n, is_name, pattern, out);
  if (!st && !out->value.len) st = add_matching(name, n, is_like, pattern, out);
  if (!st && !out->value.len) st = no_match(pattern, name, n);
  for (size_t i = 0; i < n; i++) str_free(&name[i]);
  mem_free(name);
  return st;
}

static const char *touch_word(uint8_t what) {
  if (what & TOUCH_FETCH) return "fetch";
  if (what & TOUCH_OFFLOAD) return "offload";
  if (what == (TOUCH_READ | TOUCH_WRITE)) return "update";
  return what & TOUCH_WRITE ? "write" : "read";
}

static const chain_stay *stays_of(const chain_view *v, const value_chain *c) {
  return v->c.stay + c->stay0;
}

/* --- text ---------------------------------------------------------------------------------------
 */

static void put_seconds(const char *before, double s, str *out) {
  str_add(out, before);
  units_add_seconds(out, s);
}

static void put_bytes(const char *before, uint64_t bytes, str *out) {
  str_add(out, before);
  units_add_bytes(out, (double)bytes);
}

static void print_head(const chain_view *v, const value_chain *c, str *out) {
  const prog_buffer *f = &v->p->buffers.at[c->buffer];
  chain_print_name(v, c, out);
  str_add(out, "\n  ");
  value_print(&f->type, out);
  put_bytes(", ", f->bytes, out);
  str_printf(out, ", %s, ", mem_class_name((mem_class)f->class));
  chain_print_decision(v, c, out);
  str_printf(out, "\n  %u uses, %u stays on the device, %u fetches, %u offloads", c->uses, c->stays,
             c->fetches, c->offloads);
  if (c->fetches + c->offloads) {
    put_bytes(": ", c->moved_bytes, out);
    put_seconds(" in ", c->copy_s, out);
    put_seconds(", of which ", c->exposed_s, out);
    str_add(out, " exposed");
  }
  if (c->make_s >= 0) put_seconds("; to recompute it would take ", c->make_s, out);
  str_add_char(out, '\n');
}

static void print_interval(const char *where, double from_s, double to_s, str *out) {
  str_printf(out, "  %s from ", where);
  units_add_seconds(out, from_s);
  put_seconds(" to ", to_s, out);
}

static void print_stay(const chain_view *v, const chain_stay *s, str *out) {
  const prog_buffer *f = &v->p->buffers.at[s->buffer];
  print_interval("on the device", s->start_s, s->end_s, out);
  str_printf(out, ", b%u", s->buffer);
  if (f->place == PLACE_WORK) str_printf(out, " at offset %llu", (unsigned long long)f->offset);
  put_bytes(", ", f->bytes, out);
  bool given = f->flags & BUFFER_INPUT;
  if (s->at_start) str_add(out, given ? ", from the caller" : ", left there by the run before");
  if (s->at_end) str_add(out, s->at_start && !given ? " and for the next" : ", kept at the end");
  str_add_char(out, '\n');
}

/* Between two stays, before the first and after the last. */
static void print_away(const chain_view *v, const value_chain *c, double from_s, double to_s,
                       str *out) {
  str where = {0};
  if (c->tier == TIER_DEVICE || to_s <= from_s) return;
  str_printf(&where, "on %s", tier_name(c->tier));
  print_interval(where.at ? where.at : "", from_s, to_s, out);
  put_bytes(", ", v->p->buffers.at[c->buffer].bytes, out);
  str_add_char(out, '\n');
  out->failed |= where.failed;
  str_free(&where);
}

static void print_touch(const chain_view *v, const chain_touch *t, str *out) {
  const prog_inst *n = program_inst(v->p, t->inst);
  bool copies = t->what & (TOUCH_FETCH | TOUCH_OFFLOAD);
  str_printf(out, "    %6u ", t->inst);
  units_put_seconds(out, 10, v->t[t->inst].start_s);
  units_put_seconds(out, 11, v->t[t->inst].end_s);
  str_printf(out, "  %-7s  ", touch_word(t->what));
  if (n->micro && n->phase != PHASE_UPDATE) str_printf(out, "%5u", n->micro - 1);
  else str_add(out, "     ");
  str_add(out, "  ");
  if (copies) str_printf(out, "%s: ", stream_name(n->stream));
  inst_print_name(v->p, v->on, n, out);
  if (v->c.exposed[t->inst] > 0) put_seconds(", exposed ", v->c.exposed[t->inst], out);
  str_add_char(out, '\n');
}

static void print_chain(const chain_view *v, const value_chain *c, str *out) {
  const chain_stay *stay = stays_of(v, c);
  double from_s = 0;
  bool kept = c->is_state || c->is_io;
  print_head(v, c, out);
  str_add(out,
          "    instr.      start        end  what     micro  kind of work, place in the model\n");
  for (uint32_t s = 0; s < c->stays; s++) {
    if (s || kept) print_away(v, c, from_s, stay[s].start_s, out);
    print_stay(v, &stay[s], out);
    for (uint32_t k = 0; k < c->touches; k++) {
      const chain_touch *t = &v->c.touch[c->touch0 + k];
      if (t->stay == s) print_touch(v, t, out);
    }
    from_s = stay[s].end_s;
  }
  if (kept) print_away(v, c, from_s, v->c.run_s, out);
  for (uint32_t k = 0; k < c->touches; k++) /* between two slower tiers */
    if (v->c.touch[c->touch0 + k].stay == PROG_NONE)
      print_touch(v, &v->c.touch[c->touch0 + k], out);
}

hp_status explain_chains(const program *p, const mesh *on, const inst_times *t, const char *pattern,
                         str *out) {
  chain_view v;
  matching m = {0};
  hp_status st = chain_view_make(p, on, t, &v);
  if (!st) st = find_matching(&v, pattern, &m);
  for (size_t i = 0; !st && i < m.value.len && i < CHAINS_SHOWN; i++) {
    if (i) str_add_char(out, '\n');
    print_chain(&v, &v.c.value[m.value.at[i]], out);
  }
  if (!st && m.value.len > CHAINS_SHOWN)
    str_printf(out, "\n%zu more match; --json has them all\n", m.value.len - CHAINS_SHOWN);
  vec_free(&m.value);
  chain_view_free(&v);
  return st ? st : str_status(out);
}

/* --- JSON ---------------------------------------------------------------------------------------
 */

static void put_str(json_writer *w, const char *key, str *text) {
  w->out->failed |= text->failed;
  json_key_string(w, key, text->at ? text->at : "");
  str_free(text);
}

static void put_touch(json_writer *w, const chain_view *v, const chain_touch *t) {
  static const char *const phase[] = {"forward", "backward", "update"};
  const prog_inst *n = program_inst(v->p, t->inst);
  str name = {0};
  inst_print_name(v->p, v->on, n, &name);
  json_open_map(w);
  json_key_int(w, "instruction", t->inst);
  json_key_string(w, "what", touch_word(t->what));
  json_key_string(w, "stream", stream_name(n->stream));
  put_str(w, "name", &name);
  json_key_string(w, "at", program_str(v->p, n->loc));
  json_key_string(w, "phase", phase[n->phase]);
  if (n->micro) json_key_int(w, "micro_batch", n->micro - 1);
  json_key_double(w, "start_s", v->t[t->inst].start_s);
  json_key_double(w, "end_s", v->t[t->inst].end_s);
  if (t->what & (TOUCH_FETCH | TOUCH_OFFLOAD))
    json_key_double(w, "exposed_copy_s", v->c.exposed[t->inst]);
  json_close(w);
}

static void put_stay(json_writer *w, const chain_view *v, const value_chain *c, uint32_t s) {
  const chain_stay *stay = &stays_of(v, c)[s];
  json_open_map(w);
  json_key_int(w, "buffer", stay->buffer);
  json_key_double(w, "start_s", stay->start_s);
  json_key_double(w, "end_s", stay->end_s);
  json_key_bool(w, "at_start", stay->at_start);
  json_key_bool(w, "at_end", stay->at_end);
  json_put_key(w, "touches");
  json_open_list(w);
  for (uint32_t k = 0; k < c->touches; k++)
    if (v->c.touch[c->touch0 + k].stay == s) put_touch(w, v, &v->c.touch[c->touch0 + k]);
  json_close(w);
  json_close(w);
}

static void put_chain(json_writer *w, const chain_view *v, const value_chain *c) {
  const prog_buffer *f = &v->p->buffers.at[c->buffer];
  str name = {0};
  chain_print_name(v, c, &name);
  json_open_map(w);
  put_str(w, "name", &name);
  json_key_string(w, "dtype", dtype_name((hp_dtype)f->type.dtype));
  json_put_key(w, "shape");
  json_open_list(w);
  for (int i = 0; i < f->type.rank; i++) json_put_int(w, f->type.dim[i]);
  json_close(w);
  json_key_string(w, "class", mem_class_name((mem_class)f->class));
  json_key_int(w, "size_bytes", (int64_t)f->bytes);
  json_key_string(w, "tier", tier_name(c->tier));
  json_key_int(w, "uses", c->uses);
  json_key_int(w, "moved_bytes", (int64_t)c->moved_bytes);
  json_key_double(w, "copy_s", c->copy_s);
  json_key_double(w, "exposed_copy_s", c->exposed_s);
  json_put_key(w, "recompute_s");
  if (c->make_s >= 0) json_put_double(w, c->make_s);
  else json_put_null(w);
  json_put_key(w, "stays");
  json_open_list(w);
  for (uint32_t s = 0; s < c->stays; s++) put_stay(w, v, c, s);
  json_close(w);
  json_close(w);
}

hp_status explain_chains_json(const program *p, const mesh *on, const inst_times *t,
                              const char *pattern, str *out) {
  chain_view v;
  matching m = {0};
  json_writer w = {.out = out};
  hp_status st = chain_view_make(p, on, t, &v);
  if (!st) st = find_matching(&v, pattern, &m);
  if (!st) {
    json_open_map(&w);
    json_key_double(&w, "run_s", v.c.run_s);
    json_put_key(&w, "values");
    json_open_list(&w);
    for (size_t i = 0; i < m.value.len; i++) put_chain(&w, &v, &v.c.value[m.value.at[i]]);
    json_close(&w);
    json_close(&w);
    str_add_char(out, '\n');
  }
  vec_free(&m.value);
  chain_view_free(&v);
  return st ? st : str_status(out);
}
