#include "sched/pipe_rows.h"

#include "base/vec.h"
#include "sched/row_reader.h"

#include <stdio.h>
#include <string.h>

typedef struct {
  pipe_row row;
  uint32_t device; /* UINT32_MAX: that of the stage */
} placed_row;

typedef struct {
  row_reader r;
  uint32_t stages, microbatches;      /* 0: not known yet */
  int stages_line, microbatches_line; /* of the header; 0: there is none */
  int placement_line;
  VEC(uint32_t) placement;
  VEC(placed_row) row;
  uint32_t device; /* of the section; UINT32_MAX: none */
} parser;

static const struct {
  uint8_t actions;
  const char *name;
} action_names[] = {{PIPE_F, "F"},
                    {PIPE_B, "B"},
                    {PIPE_W, "W"},
                    {PIPE_B | PIPE_W, "BW"},
                    {PIPE_U, "U"}};
enum { ACTION_NAMES = sizeof action_names / sizeof *action_names };

bool pipe_is_rows(const char *text) { return strchr(text, '\n') != NULL; }

const char *pipe_action_name(uint8_t actions) {
  for (int i = 0; i < ACTION_NAMES; i++)
    if (action_names[i].actions == actions) return action_names[i].name;
  return "?";
}

const char *pipe_row_name(const pipe_row *row, char text[PIPE_ROW_NAME]) {
  int n = snprintf(text, PIPE_ROW_NAME, "stage %u %s %u", row->stage,
                   pipe_action_name(row->actions), row->microbatch);
  if (row->line) snprintf(text + n, (size_t)(PIPE_ROW_NAME - n), " (line %d)", row->line);
  return text;
}

hp_status pipe_rows_create(uint32_t stages, uint32_t devices, uint32_t microbatches, size_t rows,
                           pipe_rows *out) {
  HP_ASSERT(devices);
  pipe_rows p = {.stages = stages, .devices = devices, .microbatches = microbatches};
  p.placement = mem_calloc(stages, sizeof *p.placement);
  p.row0 = mem_calloc((size_t)devices + 1, sizeof *p.row0);
  p.row = mem_calloc(rows, sizeof *p.row);
  if (!p.placement || !p.row0 || !p.row) {
    pipe_rows_free(&p);
    return HP_ERR_OOM;
  }
  for (uint32_t s = 0; s < stages; s++) p.placement[s] = s % devices;
  *out = p;
  return HP_OK;
}

void pipe_rows_free(pipe_rows *p) {
  if (!p) return;
  mem_free(p->placement);
  mem_free(p->row0);
  mem_free(p->row);
  *p = (pipe_rows){0};
}

/* --- parse ------------------------------------------------------------------------------------ */

static hp_status read_actions(row_reader *r, uint8_t *out) {
  const char *word;
  size_t n = row_reader_word(r, &word);
  for (int i = 0; i < ACTION_NAMES; i++)
    if (strlen(action_names[i].name) == n && !memcmp(action_names[i].name, word, n)) {
      *out = action_names[i].actions;
      return HP_OK;
    }
  HP_FAIL(HP_ERR_INPUT, "%s:%d: action \"%.*s\": expected F, B, W, BW or U (%s)", r->source,
          r->line, row_reader_shown(n), word, r->form);
}

static hp_status read_row(parser *p) {
  row_reader *r = &p->r;
  pipe_row row = {.line = r->line};
  uint32_t stage;
  HP_TRY(row_reader_number(r, "stage", p->stages ? p->stages : PIPE_STAGES, &stage));
  row.stage = (uint16_t)stage;
  if (p->row.len == PIPE_ROWS)
    HP_FAIL(HP_ERR_INPUT, "%s:%d: more than %d rows, and no schedule has as many", r->source,
            r->line, PIPE_ROWS);
  HP_TRY(read_actions(r, &row.actions));
  HP_TRY(row_reader_number(r, "microbatch", p->microbatches ? p->microbatches : PIPE_MICROBATCHES,
                           &row.microbatch));
  placed_row placed = {row, p->device};
  return vec_push(&p->row, placed) ? HP_OK : HP_ERR_OOM;
}

static hp_status end_line(row_reader *r) {
  const char *word;
  size_t n = row_reader_word(r, &word);
  if (!n) return HP_OK;
  HP_FAIL(HP_ERR_INPUT, "%s:%d: \"%.*s\" at the end of the line: expected no more words (%s)",
          r->source, r->line, row_reader_shown(n), word, r->form);
}

/* A row, or two that overlap: a forward and a backward. */
static hp_status read_rows(parser *p) {
  row_reader *r = &p->r;
  HP_TRY(read_row(p));
  row_reader ahead = *r;
  const char *word;
  if (row_reader_word(&ahead, &word) != 1 || *word != '+') return end_line(r);
  *r = ahead;
  HP_TRY(read_row(p));
  pipe_row *one = &p->row.at[p->row.len - 2].row, *two = &p->row.at[p->row.len - 1].row;
  if (!pipe_rows_can_overlap(one, two))
    HP_FAIL(HP_ERR_INPUT,
            "%s:%d: %s + %s: rows that overlap are one F and one B or BW; write others on lines of "
            "their own",
            r->source, r->line, pipe_action_name(one->actions), pipe_action_name(two->actions));
  one->with_next = true;
  return end_line(r);
}

/* `stages N` or `microbatches N`; *count is what was asked for, if not 0. */
static hp_status read_count(row_reader *r, const char *what, uint32_t most, int *line,
                            uint32_t *count) {
  uint32_t n;
  if (*line)
    HP_FAIL(HP_ERR_INPUT, "%s:%d: %s is in line %d, too; expected it once", r->source, r->line,
            what, *line);
  HP_TRY(row_reader_number(r, what, most + 1, &n));
  if (!n) HP_FAIL(HP_ERR_INPUT, "%s:%d: %s 0: expected at least 1", r->source, r->line, what);
  if (*count && n != *count)
    HP_FAIL(HP_ERR_INPUT,
            "%s:%d: the schedule has %s %u, but %u are asked for; generate it for %u, or leave the "
            "schedule to its name",
            r->source, r->line, what, n, *count, *count);
  *count = n;
  *line = r->line;
  return end_line(r);
}

static hp_status read_placement(parser *p) {
  row_reader *r = &p->r;
  const char *word;
  if (p->placement_line)
    HP_FAIL(HP_ERR_INPUT, "%s:%d: placement is in line %d, too; expected it once", r->source,
            r->line, p->placement_line);
  p->placement_line = r->line;
  for (row_reader ahead = *r; row_reader_word(&ahead, &word); ahead = *r) {
    uint32_t device;
    HP_TRY(row_reader_number(r, "device of a stage", PIPE_STAGES, &device));
    if (p->placement.len == PIPE_STAGES)
      HP_FAIL(HP_ERR_INPUT, "%s:%d: placement has more than %d stages", r->source, r->line,
              PIPE_STAGES);
    if (!vec_push(&p->placement, device)) return HP_ERR_OOM;
  }
  return HP_OK;
}

static hp_status read_line(parser *p) {
  row_reader *r = &p->r, ahead = *r;
  const char *word;
  size_t n = row_reader_word(&ahead, &word);
  if (*word >= '0' && *word <= '9') return read_rows(p);
  *r = ahead;
  if (n == 6 && !memcmp(word, "device", n)) {
    HP_TRY(row_reader_number(r, "device", PIPE_STAGES, &p->device));
    return end_line(r);
  }
  const bool stages = n == 6 && !memcmp(word, "stages", n);
  const bool micros = n == 12 && !memcmp(word, "microbatches", n);
  const bool placement = n == 9 && !memcmp(word, "placement", n);
  if (!stages && !micros && !placement)
    HP_FAIL(HP_ERR_INPUT,
            "%s:%d: \"%.*s\": expected stages, microbatches, placement, device or a row (%s)",
            r->source, r->line, row_reader_shown(n), word, r->form);
  if (p->row.len)
    HP_FAIL(HP_ERR_INPUT, "%s:%d: %.*s comes after the first row; expected it above all rows",
            r->source, r->line, (int)n, word);
  if (stages) return read_count(r, "stages", PIPE_STAGES, &p->stages_line, &p->stages);
  if (micros)
    return read_count(r, "microbatches", PIPE_MICROBATCHES, &p->microbatches_line,
                      &p->microbatches);
  return read_placement(p);
}

/* What the header does not say: as many as the rows have. */
static hp_status find_counts(parser *p) {
  const char *source = p->r.source;
  uint32_t stages = 0, microbatches = 0;
  if (!p->row.len)
    HP_FAIL(HP_ERR_INPUT, "%s: no row; expected lines of: stage action microbatch", source);
  for (size_t i = 0; i < p->row.len; i++) {
    const pipe_row *row = &p->row.at[i].row;
    if (row->stage >= stages) stages = row->stage + 1u;
    if (row->microbatch >= microbatches) microbatches = row->microbatch + 1;
  }
  if (!p->stages) p->stages = p->placement.len > stages ? (uint32_t)p->placement.len : stages;
  if (!p->microbatches) p->microbatches = microbatches;
  if ((uint64_t)p->stages * p->microbatches > PIPE_CELLS)
    HP_FAIL(HP_ERR_INPUT,
            "%s: %u stages with %u micro-batches: expected at most %d of both together", source,
            p->stages, p->microbatches, PIPE_CELLS);
  if (p->placement_line && p->placement.len != p->stages)
    HP_FAIL(HP_ERR_INPUT, "%s:%d: placement has %zu devices; expected one for each of %u stages",
            source, p->placement_line, p->placement.len, p->stages);
  for (uint32_t s = (uint32_t)p->placement.len; s < p->stages; s++)
    if (!vec_push(&p->placement, s)) return HP_ERR_OOM;
  return HP_OK;
}

/* Each device from 0 up to the last has a stage. */
static hp_status count_devices(const parser *p, uint32_t *devices) {
  bool has[PIPE_STAGES] = {0};
  *devices = 0;
  for (uint32_t s = 0; s < p->stages; s++) {
    const uint32_t d = p->placement.at[s];
    has[d] = true;
    if (d >= *devices) *devices = d + 1;
  }
  for (uint32_t d = 0; d < *devices; d++)
    if (!has[d])
      HP_FAIL(HP_ERR_INPUT,
              "%s:%d: placement leaves device %u without a stage; number the devices "
              "from 0 without gaps",
              p->r.source, p->placement_line, d);
  return HP_OK;
}

static hp_status find_devices(parser *p, uint32_t devices) {
  for (size_t i = 0; i < p->row.len; i++) {
    placed_row *at = &p->row.at[i];
    if (at->device == UINT32_MAX) at->device = p->placement.at[at->row.stage];
    if (at->device >= devices)
      HP_FAIL(HP_ERR_INPUT,
              "%s:%d: rows of device %u, but the stages are placed on devices 0 to %u", p->r.source,
              at->row.line, at->device, devices - 1);
    if (i && at[-1].row.with_next && at[-1].device != at->device)
      HP_FAIL(HP_ERR_INPUT,
              "%s:%d: rows overlap on one device, but stage %u is on device %u and stage %u on "
              "device %u",
              p->r.source, at->row.line, at[-1].row.stage, at[-1].device, at->row.stage,
              at->device);
  }
  return HP_OK;
}

static hp_status group_by_device(const parser *p, uint32_t devices, pipe_rows *out) {
  pipe_rows made;
  HP_TRY(pipe_rows_create(p->stages, devices, p->microbatches, p->row.len, &made));
  memcpy(made.placement, p->placement.at, p->stages * sizeof *made.placement);
  for (size_t i = 0; i < p->row.len; i++) made.row0[p->row.at[i].device + 1]++;
  for (uint32_t d = 0; d < devices; d++) made.row0[d + 1] += made.row0[d];
  for (size_t i = 0; i < p->row.len; i++)
    made.row[made.row0[p->row.at[i].device]++] = p->row.at[i].row;
  memmove(made.row0 + 1, made.row0, devices * sizeof *made.row0);
  made.row0[0] = 0;
  *out = made;
  return HP_OK;
}

/* The text after a first line `# file NAME`, and the name in file[]; the text as it is if it has
 * none. */
static const char *read_file_name(const char *text, char file[PIPE_FILE_NAME]) {
  static const char start[] = "# file ";
  *file = 0;
  if (strncmp(text, start, sizeof start - 1) != 0) return text;
  text += sizeof start - 1;
  size_t n = strcspn(text, "\n");
  snprintf(file, PIPE_FILE_NAME, "%.*s", (int)(n < PIPE_FILE_NAME ? n : PIPE_FILE_NAME - 1), text);
  return text[n] ? text + n + 1 : text + n;
}

const char *pipe_rows_source(const char *text, char file[PIPE_FILE_NAME]) {
  read_file_name(text, file);
  return *file ? file : "pipeline";
}

hp_status pipe_rows_parse(const char *text, const char *source, pipe_shape want, pipe_rows *out) {
  hp_status st = HP_OK;
  uint32_t devices;
  char file[PIPE_FILE_NAME];
  text = read_file_name(text, file);
  if (*file) source = file;
  parser p = {.r = {text, source, "a row is: stage action microbatch", 0},
              .stages = want.stages,
              .microbatches = want.microbatches,
              .device = UINT32_MAX};
  while (row_reader_line(&p.r)) HP_TRY_GOTO(read_line(&p), st);
  HP_TRY_GOTO(find_counts(&p), st);
  HP_TRY_GOTO(count_devices(&p, &devices), st);
  HP_TRY_GOTO(find_devices(&p, devices), st);
  HP_TRY_GOTO(group_by_device(&p, devices, out), st);
done:
  vec_free(&p.placement);
  vec_free(&p.row);
  return st;
}

/* --- print ------------------------------------------------------------------------------------ */

void pipe_rows_print(const pipe_rows *p, str *out) {
  str_printf(out, "stages %u\nmicrobatches %u\nplacement", p->stages, p->microbatches);
  for (uint32_t s = 0; s < p->stages; s++) str_printf(out, " %u", p->placement[s]);
  for (uint32_t d = 0; d < p->devices; d++) {
    str_printf(out, "\ndevice %u\n", d);
    for (uint32_t i = p->row0[d]; i < p->row0[d + 1]; i++) {
      const pipe_row *row = &p->row[i];
      str_printf(out, "%u %s %u%s", row->stage, pipe_action_name(row->actions), row->microbatch,
                 row->with_next           ? " + "
                 : i + 1 < p->row0[d + 1] ? "\n"
                                          : "");
    }
  }
  str_add_char(out, '\n');
}
