#include "rt/stage_meshes.h"

#include "base/str.h"
#include "sched/pipe_generate.h"
#include "shard/layout_text.h"

#include <stdio.h>
#include <string.h>

/* --- opening ---------------------------------------------------------------------------------- */

/* The next of the meshes in a text, into *out, without spaces around it; false: there is none. */
static bool next_mesh(const char **text, str *out) {
  if (!*text) return false;
  *text += strspn(*text, " ");
  size_t length = strcspn(*text, ";"), n = length;
  while (n && (*text)[n - 1] == ' ') n--;
  str_clear(out);
  str_add_n(out, *text, n);
  *text = (*text)[length] ? *text + length + 1 : NULL;
  return true;
}

static int count_meshes(const char *text) {
  int n = 1;
  for (; (text = strchr(text, ';')); text++) n++;
  return n;
}

static hp_status count_devices(const str *text, int64_t *out) {
  mesh m;
  layout l;
  bool called;
  HP_TRY(str_status(text));
  HP_TRY(layout_parse(text->at ? text->at : "", &m, &l, &called));
  *out = m.devices;
  mesh_free(&m);
  return HP_OK;
}

/* "(2)(dp)" gets the ranks from `first` on, if it has none. */
static hp_status add_ranks(str *text, int64_t first, int64_t *devices) {
  HP_TRY(count_devices(text, devices));
  bool has_ranks = strchr(text->at, '@') != NULL;
  for (int64_t i = 0; !has_ranks && i < *devices; i++)
    str_printf(text, i ? ",%lld" : "@%lld", (long long)(first + i));
  return str_status(text);
}

/* No rank is on two meshes, or on none. */
static hp_status check_ranks(const device_mesh *dm) {
  for (int64_t rank = 0; rank < dm->n; rank++) {
    int on = 0;
    for (int i = 0; i < dm->meshes; i++) on += mesh_position(&dm->stage_mesh[i]->m, rank) >= 0;
    if (on != 1)
      HP_FAIL(HP_ERR_LAYOUT,
              "rank %lld is on %d of the pipeline's meshes; expected each of the %d devices on one",
              (long long)rank, on, dm->n);
  }
  return HP_OK;
}

static hp_status open_meshes(const hp_device_options *o, device_mesh *dm) {
  const char *at = o->mesh;
  str text = {0};
  int64_t first = 0, devices = 0;
  hp_status st = HP_OK;
  for (; !st && next_mesh(&at, &text); first += devices) {
    hp_device_options each = *o;
    st = add_ranks(&text, first, &devices);
    each.mesh = text.at;
    if (!st) st = device_mesh_open_stage(dm->job, &each, &dm->stage_mesh[dm->meshes]);
    if (!st) dm->meshes++;
  }
  str_free(&text);
  return st ? st : check_ranks(dm);
}

/* --- stages ----------------------------------------------------------------------------------- */

static hp_status make(const char *pipeline, const pipe_request *q, pipe_rows *out) {
  if (pipe_is_rows(pipeline))
    return pipe_rows_parse(pipeline, "pipeline", (pipe_shape){q->stages, q->microbatches}, out);
  return pipe_generate(pipeline, q, out);
}

hp_status stage_meshes_check_microbatches(const device_mesh *dm, int64_t n) {
  pipe_rows rows;
  pipe_request q = {.stages = (uint32_t)dm->stages, .devices = (uint32_t)dm->meshes};
  if (n < 1) HP_FAIL(HP_ERR_ARG, "%lld micro-batches; expected 1 or more", (long long)n);
  if (!is_pipeline(dm) || (n == 1 && !pipe_is_rows(dm->pipeline))) return HP_OK;
  q.microbatches = n < UINT32_MAX ? (uint32_t)n : UINT32_MAX;
  HP_TRY(make(dm->pipeline, &q, &rows));
  pipe_rows_free(&rows);
  return HP_OK;
}

/* The placement of a schedule's stages does not depend on the number of micro-batches. */
static hp_status make_rows(const hp_device_options *o, const char *pipeline, uint32_t meshes,
                           pipe_rows *out) {
  const bool rows = pipe_is_rows(pipeline);
  pipe_request q = {.devices = meshes, .microbatches = rows ? 0 : 2 * meshes};
  if (!rows) HP_TRY(pipe_schedule_stages(pipeline, meshes, &q.stages));
  if (o->stages) q.stages = (uint32_t)o->stages;
  return make(pipeline, &q, out);
}

static hp_status place_stages(const hp_device_options *o, device_mesh *dm) {
  const char *pipeline = o->pipeline ? o->pipeline : "1f1b";
  uint32_t meshes = (uint32_t)dm->meshes;
  pipe_rows rows;
  if (o->stages < 0) HP_FAIL(HP_ERR_ARG, "stages is %d; expected 0 or more", o->stages);
  HP_TRY(make_rows(o, pipeline, meshes, &rows));
  hp_status st = HP_OK;
  char file[PIPE_FILE_NAME];
  if (rows.devices != meshes)
    st = err_set(HP_ERR_INPUT, __FILE__, __LINE__,
                 "%s: the rows are for %u device%s, and the pipeline has %u; expected rows of %u",
                 pipe_rows_source(pipeline, file), rows.devices, rows.devices == 1 ? "" : "s",
                 meshes, meshes);
  dm->stages = (int)rows.stages;
  dm->mesh_of = mem_calloc(rows.stages, sizeof *dm->mesh_of);
  dm->pipeline = mem_calloc(strlen(pipeline) + 1, 1);
  if (!st && (!dm->mesh_of || !dm->pipeline)) st = HP_ERR_OOM;
  for (uint32_t s = 0; !st && s < rows.stages; s++) dm->mesh_of[s] = (uint16_t)rows.placement[s];
  if (!st) memcpy(dm->pipeline, pipeline, strlen(pipeline));
  pipe_rows_free(&rows);
  return st;
}

static hp_status count_all(const hp_device_options *o, int64_t *out) {
  const char *at = o->mesh;
  str text = {0};
  int64_t devices;
  hp_status st = HP_OK;
  for (*out = 0; !st && next_mesh(&at, &text); *out += st ? 0 : devices)
    st = count_devices(&text, &devices);
  str_free(&text);
  return st;
}

static hp_status open_pipeline(const hp_device_options *o, device_mesh **out) {
  char all[48];
  int64_t devices;
  device_mesh *dm;
  hp_device_options whole = *o;
  HP_TRY(count_all(o, &devices));
  snprintf(all, sizeof all, "(%lld)(device)", (long long)devices);
  whole.mesh = all;
  whole.n_layouts = 0;
  HP_TRY(device_mesh_open_on(o->job ? o->job->job : NULL, &whole, &dm));
  dm->stage_mesh = mem_calloc((size_t)count_meshes(o->mesh), sizeof(device_mesh *));
  hp_status st = dm->stage_mesh ? HP_OK : HP_ERR_OOM;
  if (!st) st = open_meshes(o, dm);
  if (!st) st = place_stages(o, dm);
  if (st) stage_meshes_close(dm);
  else *out = dm;
  return st;
}

hp_status stage_meshes_open(const hp_device_options *o, device_mesh **out) {
  bool several = o->mesh && strchr(o->mesh, ';');
  return several ? open_pipeline(o, out) : device_mesh_open(o, out);
}

void stage_meshes_close(device_mesh *dm) {
  if (!dm) return;
  for (int i = 0; i < dm->meshes; i++) device_mesh_close(dm->stage_mesh[i]);
  map_free(&dm->stage_of);
  mem_free(dm->stage_mesh);
  mem_free(dm->mesh_of);
  mem_free(dm->pipeline);
  device_mesh_close(dm);
}

/* --- named tensors ---------------------------------------------------------------------------- */

hp_status stage_meshes_rule(device_mesh *dm, const char *name, int stage) {
  if (stage < STAGE_ALL || stage >= dm->stages)
    HP_FAIL(HP_ERR_ARG, "\"%s\" is of stage %d; the pipeline has stages 0 to %d, and %d is all",
            name, stage, dm->stages - 1, STAGE_ALL);
  return map_set(&dm->stage_of, name, strlen(name), (uint32_t)(stage + 1));
}

int stage_meshes_find(const device_mesh *dm, const char *name) {
  uint32_t found;
  if (!map_get(&dm->stage_of, name, strlen(name), &found)) return STAGE_UNKNOWN;
  return (int)found - 1;
}

hp_status stage_meshes_holds(const device_mesh *dm, const char *name, int i, bool *out) {
  *out = true;
  if (!is_pipeline(dm)) return HP_OK;
  int stage = stage_meshes_find(dm, name);
  if (stage == STAGE_UNKNOWN)
    HP_FAIL(HP_ERR_ARG,
            "param \"%s\" has no stage of the pipeline; call hp_device_stage before, or let the "
            "first program create it",
            name);
  *out = stage == STAGE_ALL || dm->mesh_of[stage] == i;
  return HP_OK;
}

int stage_meshes_where(const device_mesh *dm, const char *name, uint32_t *index) {
  for (int i = 0; i < stage_meshes_count(dm); i++)
    if (map_get(&stage_mesh(dm, i)->state_of, name, strlen(name), index)) return i;
  return -1;
}

/* Read by the mesh's own processes; the first of them sends it on, from memory of its own if it
 * does not want it itself. */
static hp_status read_and_send(const device_mesh *dm, const device_mesh *from, uint32_t index,
                               const char *wants, void *data) {
  int64_t first = mesh_rank(&from->m, 0), me = dm->member[0]->position;
  size_t bytes = (size_t)value_bytes(&from->states.at[index].type);
  char others[COMM_MAX];
  bool any = false;
  for (int i = 0; i < dm->n; i++) {
    others[i] = (char)(wants[i] && mesh_position(&from->m, i) < 0);
    any |= others[i];
  }
  char *own = any && me == first && !data && bytes ? mem_map(bytes) : NULL;
  void *to = own ? own : data;
  hp_status st = any && me == first && !to && bytes ? HP_ERR_OOM : HP_OK;
  if (!st && from->own) st = device_mesh_read(from, index, to);
  if (!st && any) st = device_mesh_send(dm, first, others, to, bytes);
  mem_unmap(own, bytes);
  return st;
}

hp_status stage_meshes_read(const device_mesh *dm, int on, uint32_t index, void *data) {
  const device_mesh *from = stage_mesh(dm, on);
  char mine = data != NULL, wants[COMM_MAX];
  if (dm->own == dm->n || !is_pipeline(dm)) return device_mesh_read(from, index, data);
  HP_TRY(device_mesh_gather(dm, &mine, 1, wants));
  return read_and_send(dm, from, index, wants, data);
}

int stage_meshes_params(const device_mesh *dm) {
  int n = 0;
  for (int m = 0; m < stage_meshes_count(dm); m++) {
    const device_mesh *d = stage_mesh(dm, m);
    for (size_t i = 0; i < d->states.len; i++) {
      uint32_t index;
      const char *name = intern_get(&d->names, d->states.at[i].name, NULL);
      n += stage_meshes_where(dm, name, &index) == m;
    }
  }
  return n;
}

bool stage_meshes_param(const device_mesh *dm, int i, int *on, uint32_t *index) {
  for (*on = 0; *on < stage_meshes_count(dm); ++*on) {
    const device_mesh *d = stage_mesh(dm, *on);
    for (*index = 0; *index < d->states.len; ++*index) {
      uint32_t other;
      const char *name = intern_get(&d->names, d->states.at[*index].name, NULL);
      if (stage_meshes_where(dm, name, &other) == *on && !i--) return true;
    }
  }
  return false;
}
