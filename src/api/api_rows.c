#include "api/api_rows.h"

#include "base/hash.h"
#include "base/str.h"
#include "sched/step_rows.h"

#include <stdio.h>
#include <string.h>

typedef struct {
  const char *const *name; /* of pieces */
  const program *const *lowered;
  int n;
  step_rows text;
  map run_of; /* piece and micro-batch -> index in out->run */
  api_rows *out;
} reader;

static int piece_called(const reader *r, const char *name) {
  for (int i = 0; i < r->n; i++)
    if (!strcmp(r->name[i], name)) return i;
  return -1;
}

/* "NAME" of a piece, or "NAME:FB" for some of its actions. */
static hp_status read_action(const reader *r, const step_row *row, link_row *out) {
  char name[STEP_ACTION];
  int piece = piece_called(r, row->action);
  out->actions = ACTION_ALL;
  snprintf(name, sizeof name, "%s", row->action);
  char *colon = strrchr(name, ':');
  if (piece < 0 && colon) {
    *colon = '\0';
    out->actions = actions_parse(colon + 1);
    piece = piece_called(r, name);
    if (piece >= 0 && !out->actions)
      HP_FAIL(
          HP_ERR_ARG,
          "rows:%d: action \"%s\": expected letters of F, B, W and U after the colon, each once",
          row->line, row->action);
  }
  out->piece = (uint32_t)piece;
  if (piece >= 0) return HP_OK;
  const char *near = str_nearest(name, r->name, r->n);
  HP_FAIL(HP_ERR_ARG, "rows:%d: no piece is called \"%s\"%s%s%s", row->line, name,
          near ? "; did you mean \"" : "", near ? near : "", near ? "\"?" : "");
}

static hp_status find_run(reader *r, const step_row *row, const link_row *link, piece_run **out) {
  const int32_t stage = row->all || r->lowered ? -1 : row->stage;
  const uint32_t key[] = {link->piece, link->microbatch, (uint32_t)stage};
  uint32_t i = (uint32_t)r->out->run.len;
  if (!map_get(&r->run_of, key, sizeof key, &i)) {
    HP_TRY(map_set(&r->run_of, key, sizeof key, i));
    piece_run made = {.piece = link->piece, .microbatch = link->microbatch, .stage = stage};
    if (!vec_push(&r->out->run, made)) return HP_ERR_OOM;
  }
  *out = &r->out->run.at[i];
  return HP_OK;
}

static uint8_t first_of(uint8_t actions) { return (uint8_t)(actions & (0u - actions)); }

/* An action comes once, after those that it needs. */
static hp_status add_row(reader *r, const step_row *row, const link_row *link) {
  piece_run *run;
  HP_TRY(find_run(r, row, link, &run));
  if (run->actions & link->actions)
    HP_FAIL(HP_ERR_ARG, "rows:%d: %s of micro-batch %u is in line %d, too", row->line, row->action,
            row->microbatch, run->line);
  if (run->actions > first_of(link->actions))
    HP_FAIL(HP_ERR_ARG,
            "rows:%d: %s of micro-batch %u comes after line %d, which needs it; expected the order "
            "F, B, W, U",
            row->line, row->action, row->microbatch, run->line);
  run->actions |= link->actions;
  run->line = row->line;
  return HP_OK;
}

static hp_status read_rows(reader *r, const char *text) {
  HP_TRY(step_rows_parse(text, "rows", &r->text));
  r->out->link = mem_calloc(r->text.len, sizeof *r->out->link);
  HP_TRY_MEM(r->out->link);
  for (size_t i = 0; i < r->text.len; i++) {
    const step_row *row = &r->text.at[i];
    link_row *link = &r->out->link[r->out->n++];
    *link = (link_row){.stage = row->stage, .microbatch = row->microbatch};
    if (row->stage && r->lowered)
      HP_FAIL(HP_ERR_UNSUPPORTED, "rows:%d: stage %u: a step has one stage, 0", row->line,
              row->stage);
    HP_TRY(read_action(r, row, link));
    HP_TRY(add_row(r, row, link));
  }
  return HP_OK;
}

/* For each micro-batch a piece runs to its end. */
static hp_status check_complete(const reader *r, const uint8_t *has) {
  for (size_t i = 0; i < r->out->run.len; i++) {
    const piece_run *run = &r->out->run.at[i];
    uint8_t missing = has[run->piece] & (uint8_t)~run->actions;
    if (missing)
      HP_FAIL(HP_ERR_ARG,
              "rows: there is no row %s:%c of micro-batch %u, whose last row is line %d",
              r->name[run->piece], action_letter(first_of(missing)), run->microbatch, run->line);
  }
  return HP_OK;
}

static bool runs_in_parts(const api_rows *rows) {
  for (size_t i = 0; i < rows->n; i++)
    if (rows->link[i].actions != ACTION_ALL) return true;
  return false;
}

static hp_status check_parts(const reader *r) {
  uint8_t *has = mem_calloc((size_t)r->n, 1);
  hp_status st = has ? HP_OK : HP_ERR_OOM;
  for (int i = 0; !st && i < r->n; i++) st = program_all_actions(r->lowered[i], &has[i]);
  if (!st) st = check_complete(r, has);
  mem_free(has);
  return st;
}

hp_status api_rows_read(const char *text, const char *const *name, const program *const *lowered,
                        int n, api_rows *out) {
  reader r = {.name = name, .lowered = lowered, .n = n, .out = out};
  *out = (api_rows){.n = 0};
  hp_status st = read_rows(&r, text);
  if (!st && lowered && runs_in_parts(out)) st = check_parts(&r);
  vec_free(&r.text);
  map_free(&r.run_of);
  return st;
}

void api_rows_free(api_rows *r) {
  vec_free(&r->run);
  mem_free(r->link);
}
