#include "rt/explain_pipeline.h"

#include "base/json.h"
#include "base/units.h"
#include "rt/pipeline_timeline.h"

#include <stdio.h>
#include <string.h>

const char *explain_pipeline_name(const pipeline_plan *p, const char *schedule) {
  if (p->rows.microbatches == 1) return "one micro-batch, stage by stage";
  return pipe_is_rows(schedule) ? "rows of a file" : schedule;
}

/* --- text ------------------------------------------------------------------------------------- */

static void add_seconds(str *out, double s) {
  str cell = {0};
  units_add_seconds(&cell, s);
  str_printf(out, "  %10s", cell.at ? cell.at : "");
  out->failed |= cell.failed;
  str_free(&cell);
}

static void add_bytes(str *out, uint64_t bytes) {
  str cell = {0};
  units_add_bytes(&cell, (double)bytes);
  str_printf(out, "  %10s", cell.at ? cell.at : "");
  out->failed |= cell.failed;
  str_free(&cell);
}

static void print_devices(const pipeline_plan *p, const pipeline_told *told, str *out) {
  str_add(out, "\ndevice  stages        busy        idle     warm-up   imbalance   transfers  "
               "in flight      memory\n");
  for (uint32_t d = 0; d < p->rows.devices; d++) {
    const pipe_device *x = &p->times.device[d];
    str stages = {0};
    for (uint32_t s = 0; s < p->rows.stages; s++)
      if (p->rows.placement[s] == d) str_printf(&stages, "%s%u", stages.len ? "," : "", s);
    str_printf(out, "%6u  %-6s", d, stages.at ? stages.at : "");
    str_free(&stages);
    const double cells[] = {x->busy_s, x->idle_s, x->warmup_s, x->imbalance_s, x->transfer_s};
    for (size_t i = 0; i < sizeof cells / sizeof *cells; i++) add_seconds(out, cells[i]);
    str_printf(out, "  %9u", x->peak_in_flight);
    add_bytes(out, told->planned_bytes[d]);
    str_add_char(out, '\n');
  }
}

static int count_layers(const block_costs *blocks, uint32_t stage) {
  int n = 0;
  for (size_t i = 0; i < blocks->len; i++) n += blocks->at[i].stage == stage && blocks->at[i].block;
  return n;
}

static void print_stages(const pipeline_plan *p, const pipeline_told *told, str *out) {
  str_add(out, "\nstage  layers     forward    backward     weights      update  to the next\n");
  for (uint32_t s = 0; s < p->rows.stages; s++) {
    str_printf(out, "%5u  %6d", s, count_layers(&told->blocks, s));
    const double cells[] = {p->forward_s[s], p->backward_s[s], p->weights_s[s], p->update_s[s],
                            pipeline_plan_sent_s(p, s)};
    for (size_t i = 0; i < sizeof cells / sizeof *cells; i++) add_seconds(out, cells[i]);
    str_add_char(out, '\n');
  }
}

/* What runs before the update, and what that is for. */
static void print_ahead(const pipeline_plan *p, str *out) {
  if (!p->ahead.micros) return;
  str_add(out, "ahead          forwards of the next step before the update, on each device:");
  for (uint32_t d = 0; d < p->rows.devices; d++) str_printf(out, " %u", p->ahead.rows[d]);
  str_add(out, "; from step to step ");
  units_add_seconds(out, pipeline_plan_seconds(p));
  str_add(out, ", without them ");
  units_add_seconds(out, p->ahead.alone_s + p->once_s);
  str_add_char(out, '\n');
}

/* A tied embedding, mostly. */
static void print_once(const pipeline_plan *p, str *out) {
  const double least = 1e-3; /* of the step */
  if (p->once_s < least * p->times.step_s) return;
  str_add(out, "once a step    ");
  units_add_seconds(out, p->once_s);
  str_add(out, " more, in which devices wait for params and gradients of other stages\n");
}

static hp_status print_text(const pipeline_plan *p, const pipeline_told *told, str *out) {
  str_printf(out, "schedule       %s; %u stages on %u devices of the pipeline, %u micro-batches\n",
             explain_pipeline_name(p, told->schedule), p->rows.stages, p->rows.devices,
             p->rows.microbatches);
  str_add(out, "step           predicted ");
  units_add_seconds(out, p->times.step_s);
  str_add(out, ", with the update ");
  units_add_seconds(out, pipeline_plan_alone_s(p));
  str_printf(out, "; before it devices are idle %.1f %% (%.1f %% between steps)\n",
             100 * p->times.bubble, 100 * p->times.steady_bubble);
  print_once(p, out);
  print_ahead(p, out);
  print_devices(p, told, out);
  print_stages(p, told, out);
  str_add(out, "\nrows of each device, `stage action microbatch`:\n");
  pipe_rows_print(&p->rows, out);
  return str_status(out);
}

/* --- JSON ------------------------------------------------------------------------------------- */

static void put_device(const pipeline_plan *p, const pipeline_told *told, uint32_t d,
                       json_writer *w) {
  const pipe_device *x = &p->times.device[d];
  json_open_map(w);
  json_put_key(w, "stages");
  json_open_list(w);
  for (uint32_t s = 0; s < p->rows.stages; s++)
    if (p->rows.placement[s] == d) json_put_int(w, s);
  json_close(w);
  json_key_double(w, "busy_s", x->busy_s);
  json_key_double(w, "idle_s", x->idle_s);
  json_key_double(w, "warmup_s", x->warmup_s);
  json_key_double(w, "imbalance_s", x->imbalance_s);
  json_key_double(w, "transfer_s", x->transfer_s);
  json_key_int(w, "in_flight", x->peak_in_flight);
  json_key_int(w, "planned_bytes", (int64_t)told->planned_bytes[d]);
  json_key_int(w, "state_bytes", (int64_t)told->state_bytes[d]);
  json_close(w);
}

static void put_block(const block_cost *b, json_writer *w) {
  json_open_map(w);
  json_key_int(w, "stage", b->stage);
  json_key_int(w, "block", b->block);
  json_key_double(w, "forward_s", b->forward_s);
  json_key_double(w, "backward_s", b->backward_s);
  json_key_int(w, "param_bytes", (int64_t)b->param_bytes);
  json_key_int(w, "stored_bytes", (int64_t)b->stored_bytes);
  json_close(w);
}

static void put_stage(const pipeline_plan *p, uint32_t s, json_writer *w) {
  json_open_map(w);
  json_key_double(w, "forward_s", p->forward_s[s]);
  json_key_double(w, "backward_s", p->backward_s[s]);
  json_key_double(w, "weights_s", p->weights_s[s]);
  json_key_double(w, "update_s", p->update_s[s]);
  json_key_double(w, "transfer_s", pipeline_plan_sent_s(p, s));
  json_close(w);
}

static void put_rows(const pipeline_plan *p, uint32_t d, json_writer *w) {
  for (uint32_t i = p->rows.row0[d]; i < p->rows.row0[d + 1]; i++) {
    const pipe_row *row = &p->rows.row[i];
    json_open_map(w);
    json_key_int(w, "device", d);
    json_key_int(w, "stage", row->stage);
    json_key_string(w, "action", pipe_action_name(row->actions));
    json_key_int(w, "microbatch", row->microbatch);
    json_key_double(w, "start_s", p->times.start_s[i]);
    json_key_double(w, "end_s", p->times.end_s[i]);
    json_close(w);
  }
}

static void put_ahead(const pipeline_plan *p, json_writer *w) {
  if (!p->ahead.micros) return;
  json_put_key(w, "ahead");
  json_open_map(w);
  json_key_int(w, "microbatches", p->ahead.micros);
  json_key_double(w, "step_s", pipeline_plan_seconds(p));
  json_key_double(w, "alone_s", p->ahead.alone_s + p->once_s);
  json_put_key(w, "rows");
  json_open_list(w);
  for (uint32_t d = 0; d < p->rows.devices; d++) json_put_int(w, p->ahead.rows[d]);
  json_close(w);
  json_close(w);
}

static hp_status print_json(const pipeline_plan *p, const pipeline_told *told, str *out) {
  json_writer w = {.out = out};
  json_open_map(&w);
  json_key_string(&w, "schedule", explain_pipeline_name(p, told->schedule));
  json_key_int(&w, "microbatches", p->rows.microbatches);
  json_key_double(&w, "step_s", pipeline_plan_seconds(p));
  json_key_double(&w, "rows_s", p->times.step_s);
  json_key_double(&w, "once_s", p->once_s);
  json_key_double(&w, "bubble", p->times.bubble);
  json_key_double(&w, "steady_bubble", p->times.steady_bubble);
  put_ahead(p, &w);
  json_put_key(&w, "devices");
  json_open_list(&w);
  for (uint32_t d = 0; d < p->rows.devices; d++) put_device(p, told, d, &w);
  json_close(&w);
  json_put_key(&w, "stages");
  json_open_list(&w);
  for (uint32_t s = 0; s < p->rows.stages; s++) put_stage(p, s, &w);
  json_close(&w);
  json_put_key(&w, "blocks");
  json_open_list(&w);
  for (size_t i = 0; i < told->blocks.len; i++) put_block(&told->blocks.at[i], &w);
  json_close(&w);
  json_put_key(&w, "rows");
  json_open_list(&w);
  for (uint32_t d = 0; d < p->rows.devices; d++) put_rows(p, d, &w);
  json_close(&w);
  json_close(&w);
  str_add_char(out, '\n');
  return str_status(out);
}

hp_status explain_pipeline(const pipeline_plan *p, const pipeline_told *told, const char *what,
                           str *out) {
  if (strstr(what, ".json")) return print_json(p, told, out);
  if (!strcmp(what, "pipeline.svg"))
    return pipeline_timeline_svg(p, explain_pipeline_name(p, told->schedule), NULL, false, out);
  return print_text(p, told, out);
}
