/* The contents of work memory: by class, by layer, and the largest buffers by name. */
#include "base/units.h"
#include "rt/explain_memory.h"
#include "rt/explain_moved.h"
#include "rt/explain_schedule.h"
#include "rt/inst_name.h"
#include "rt/memory_use.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LARGEST = 16, LAYERS_SHOWN = 8 };

/* Live bytes of one layer. */
typedef struct {
  char name[PLACE_LAYER]; /* "": no layer */
  uint64_t bytes;
} layer_sum;

/* The contents of both forms, at the peak. */
typedef struct {
  const program *p;
  const mesh *on;
  timeline_span *span; /* by buffer */
  uint32_t *maker;
  timeline t;
  uint32_t at; /* the instruction */
  layer_sum *layer;
  size_t layers;
  uint32_t largest[LARGEST];
  size_t n;
} work_view;

static int most_first(const void *a, const void *b) {
  const layer_sum *x = a, *y = b;
  if (x->bytes != y->bytes) return x->bytes < y->bytes ? 1 : -1;
  return strcmp(x->name, y->name);
}

static void add_to_layer(work_view *v, const char *name, uint64_t bytes) {
  size_t k = 0;
  while (k < v->layers && strcmp(v->layer[k].name, name)) k++;
  if (k == v->layers) memcpy(v->layer[v->layers++].name, name, PLACE_LAYER);
  v->layer[k].bytes += bytes;
}

static hp_status sum_layers(work_view *v) {
  size_t live = 0;
  for (int pass = 0; pass < 2; pass++) {
    for (uint32_t b = 0; b < v->p->buffers.len; b++) {
      const timeline_span *s = &v->span[b];
      char name[PLACE_LAYER];
      if (!s->bytes || s->tier != TIER_DEVICE || s->first > v->at || s->last < v->at) continue;
      if (!pass) live++;
      if (!pass) continue;
      buffer_name_layer(v->p, v->maker, b, name);
      add_to_layer(v, name, s->bytes);
    }
    if (!pass) HP_TRY_MEM(v->layer = mem_calloc(live, sizeof *v->layer));
  }
  qsort(v->layer, v->layers, sizeof *v->layer, most_first);
  return HP_OK;
}

static void work_end(work_view *v) {
  timeline_free(&v->t);
  mem_free(v->span);
  mem_free(v->maker);
  mem_free(v->layer);
}

static hp_status work_look(const program *p, const mesh *on, work_view *v) {
  *v = (work_view){.p = p, .on = on};
  HP_TRY(memory_spans(p, &v->span));
  size_t positions = p->insts.len ? p->insts.len : 1;
  HP_TRY(timeline_build(v->span, p->buffers.len, positions, TIER_COUNT, &v->t));
  HP_TRY(buffer_makers(p, &v->maker));
  v->at = v->t.peak_at[TIER_DEVICE];
  v->n = timeline_largest(v->span, p->buffers.len, TIER_DEVICE, v->at, v->largest, LARGEST);
  return sum_layers(v);
}

/* --- text ------------------------------------------------------------------------------------- */

static void print_plan(const work_view *v, str *out) {
  uint64_t planned = v->p->arena[TIER_DEVICE], bound = v->p->bound[TIER_DEVICE];
  str_add(out, "work memory: planned ");
  units_add_bytes(out, (double)planned);
  str_add(out, ", lower bound ");
  units_add_bytes(out, (double)bound);
  str_printf(out, ", gap %.2f %%\n",
             bound ? 100.0 * ((double)planned - (double)bound) / (double)bound : 0.0);
  if (v->p->order) str_printf(out, "order, to stay under the memory limit: %s\n", v->p->order);
  str_printf(out, "peak at instruction %u of %zu: ", v->at, v->p->insts.len);
  units_add_bytes(out, (double)v->t.peak[TIER_DEVICE]);
  str_add(out, " live, by class:\n");
  for (int c = 0; c < MEM_CLASS_COUNT; c++) {
    if (!v->t.peak_by_class[TIER_DEVICE][c]) continue;
    str_printf(out, "  %-13s ", mem_class_name((mem_class)c));
    units_put_bytes(out, 10, (double)v->t.peak_by_class[TIER_DEVICE][c]);
    str_add_char(out, '\n');
  }
}

static void print_layer(const char *name, uint64_t bytes, str *out) {
  str_printf(out, "  %-13s ", name);
  units_put_bytes(out, 10, (double)bytes);
  str_add_char(out, '\n');
}

static void print_layers(const work_view *v, str *out) {
  uint64_t rest = 0;
  if (v->layers < 2) return;
  str_add(out, "by layer:\n");
  for (size_t k = 0; k < v->layers; k++) {
    const layer_sum *l = &v->layer[k];
    if (k >= LAYERS_SHOWN && v->layers > LAYERS_SHOWN + 1) rest += l->bytes;
    else print_layer(*l->name ? l->name : "no layer", l->bytes, out);
  }
  if (rest) {
    char others[32];
    snprintf(others, sizeof others, "%zu others", v->layers - LAYERS_SHOWN);
    print_layer(others, rest, out);
  }
}

static void print_buffer(const work_view *v, uint32_t b, str *out) {
  const prog_buffer *f = &v->p->buffers.at[b];
  char lives[32], layer[PLACE_LAYER];
  str type = {0};
  value_print(&f->type, &type);
  buffer_name_layer(v->p, v->maker, b, layer);
  snprintf(lives, sizeof lives, "%u..%u", v->span[b].first, v->span[b].last);
  str_printf(out, "  b%-6u ", b);
  units_put_bytes(out, 10, (double)v->span[b].bytes);
  str_printf(out, "  %-24s  %12s  %-13s  %-10s  ", type.at ? type.at : "?", lives,
             mem_class_name((mem_class)f->class), layer);
  buffer_print_name(v->p, v->on, v->maker, b, out);
  str_add_char(out, '\n');
  out->failed |= type.failed;
  str_free(&type);
}

hp_status explain_memory(const program *p, const mesh *on, const hp_memory *m, str *out) {
  work_view v;
  if (m) memory_print(m, 0, out);
  hp_status st = work_look(p, on, &v);
  if (!st) {
    print_plan(&v, out);
    print_layers(&v, out);
    str_printf(out, "largest there:\n  %-7s %10s  %-24s  %12s  %-13s  %-10s  name\n", "buffer",
               "size", "type", "instructions", "class", "layer");
    for (size_t i = 0; i < v.n; i++) print_buffer(&v, v.largest[i], out);
    if (p->notes.len) str_printf(out, "large values:\n%s", p->notes.at);
  }
  work_end(&v);
  return st ? st : str_status(out);
}

/* --- JSON ------------------------------------------------------------------------------------- */

static void put_work(json_writer *w, const work_view *v) {
  json_key_int(w, "live_at_instruction", v->at);
  json_put_key(w, "live_by_layer");
  json_open_list(w);
  for (size_t k = 0; k < v->layers; k++) {
    json_open_map(w);
    json_key_string(w, "layer", v->layer[k].name);
    json_key_int(w, "live_bytes", (int64_t)v->layer[k].bytes);
    json_close(w);
  }
  json_close(w);
  json_put_key(w, "largest");
  json_open_list(w);
  for (size_t i = 0; i < v->n; i++) buffer_put(w, v->p, v->on, v->maker, v->largest[i]);
  json_close(w);
}

hp_status explain_memory_json(const program *p, const device *d, const hp_memory *m,
                              const inst_times *t, str *out) {
  json_writer w = {.out = out};
  work_view v;
  hp_status st = work_look(p, d->mesh, &v);
  if (!st) {
    json_open_map(&w);
    if (m) memory_put(&w, m);
    put_work(&w, &v);
    st = put_moved(&w, p, d, t);
    json_close(&w);
    str_add_char(out, '\n');
  }
  work_end(&v);
  return st ? st : str_status(out);
}
