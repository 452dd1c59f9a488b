#include "rt/explain_memory.h"

#include "base/units.h"
#include "mem/timeline.h"

/* --- what a device takes ---------------------------------------------------------------------- */

static void print_bytes(const char *name, uint64_t bytes, const char *behind, str *out) {
  str_printf(out, "%s ", name);
  units_add_bytes(out, (double)bytes);
  str_add(out, behind);
}

static void print_classes(const uint64_t *bytes, str *out) {
  for (int c = 0; c < HP_MEMORY_CLASSES; c++)
    if (bytes[c]) print_bytes(mem_class_name((mem_class)c), bytes[c], ", ", out);
}

static double percent(uint64_t part, uint64_t of) {
  return of ? 100 * (double)part / (double)of : 0;
}

/* Compared with the memory limit, which the plan keeps, and with the memory of a device of the
 * cluster. */
static void print_room(const hp_memory *m, int indent, str *out) {
  if (m->limit_bytes) {
    str_printf(out, "%*s", indent, "");
    print_bytes("memory_limit", m->limit_bytes, "", out);
    str_printf(out, ", of which %.1f %% is planned\n", percent(m->planned_bytes, m->limit_bytes));
  }
  str_printf(out, "%*s", indent, "");
  if (!m->device_bytes) {
    str_add(out, "whether it fits is not known: the cluster file has no memory_gb\n");
    return;
  }
  bool fits = m->planned_bytes <= m->device_bytes;
  print_bytes(fits ? "fits: a device has" : "DOES NOT FIT: a device has", m->device_bytes, "", out);
  str_printf(out, ", of which %.1f %% is planned\n", percent(m->planned_bytes, m->device_bytes));
}

/* Slower tiers, where the program uses them. */
static void print_tiers(const hp_memory *m, int indent, str *out) {
  for (int t = TIER_HOST; t < TIER_COUNT; t++) {
    if (!m->tier[t].planned_bytes && !m->tier[t].moved_bytes) continue;
    str_printf(out, "%*s%s: ", indent, "", tier_name(t));
    print_bytes("total", m->tier[t].planned_bytes, "", out);
    print_bytes("; copied from and to it in a run", m->tier[t].moved_bytes, "\n", out);
  }
}

void memory_print(const hp_memory *m, int indent, str *out) {
  str_add(out, "a device: ");
  print_classes(m->state, out);
  print_bytes("work", m->work_bytes, ", ", out);
  print_bytes("total", m->planned_bytes, "\n", out);
  if (m->devices > 1) {
    str_printf(out, "%*swhole model, on %d devices: ", indent, "", m->devices);
    size_t before = out->len;
    print_classes(m->model, out);
    if (out->at && out->len > before + 2) out->len -= 2; /* the last comma */
    str_add(out, "\n");
  }
  print_room(m, indent, out);
  print_tiers(m, indent, out);
}

/* --- as JSON ---------------------------------------------------------------------------------- */

static void put(json_writer *w, const char *key, uint64_t bytes) {
  json_put_key(w, key);
  json_put_int(w, (int64_t)bytes);
}

/* Tensors that outlive runs, of a device and of the global model; both are read back. */
static const struct {
  mem_class class;
  const char *key, *model_key;
} states[] = {{MEM_PARAM, "parameter_bytes", "model_parameter_bytes"},
              {MEM_GRAD, "gradient_bytes", "model_gradient_bytes"},
              {MEM_OPTIMIZER, "optimizer_bytes", "model_optimizer_bytes"},
              {MEM_OTHER, "other_bytes", "model_other_bytes"}};
enum { STATES = sizeof states / sizeof *states };

static void put_tiers(json_writer *w, const hp_memory *m) {
  json_put_key(w, "tiers");
  json_open_map(w);
  for (int t = 0; t < HP_TIERS; t++) {
    if (t && !m->tier[t].planned_bytes && !m->tier[t].moved_bytes) continue;
    json_put_key(w, m->tier[t].name);
    json_open_map(w);
    put(w, "planned_bytes", m->tier[t].planned_bytes);
    put(w, "moved_bytes", m->tier[t].moved_bytes);
    json_close(w);
  }
  json_close(w);
}

void memory_put(json_writer *w, const hp_memory *m) {
  put(w, "devices", (uint64_t)m->devices);
  put(w, "planned_bytes", m->planned_bytes);
  put(w, "lower_bound_bytes", m->state_bytes + m->work_bound);
  for (int i = 0; i < STATES; i++) put(w, states[i].key, m->state[states[i].class]);
  put(w, "work_bytes", m->work_bytes);
  put(w, "work_bound_bytes", m->work_bound);
  put(w, "work_live_bytes", m->live_bytes);
  json_put_key(w, "work_live");
  json_open_map(w);
  for (int c = 0; c < HP_MEMORY_CLASSES; c++)
    if (m->live[c]) put(w, mem_class_name((mem_class)c), m->live[c]);
  json_close(w);
  for (int i = 0; i < STATES; i++) put(w, states[i].model_key, m->model[states[i].class]);
  put(w, "limit_bytes", m->limit_bytes);
  put(w, "device_memory_bytes", m->device_bytes);
  json_put_key(w, "fits");
  if (m->device_bytes) json_put_bool(w, m->planned_bytes <= m->device_bytes);
  else json_put_null(w);
  put_tiers(w, m);
}

static hp_status read_bytes(const tree_node *of, const char *key, uint64_t *out) {
  int64_t x;
  HP_TRY(tree_need_int(of, key, &x));
  if (x < 0) TREE_FAIL(tree_get(of, key), "expected a number of bytes, found %lld", (long long)x);
  *out = (uint64_t)x;
  return HP_OK;
}

static hp_status read_tiers(const tree_node *from, hp_memory *m) {
  const tree_node *tiers = tree_get(from, "tiers");
  for (int t = 0; t < TIER_COUNT; t++) {
    const tree_node *one = tiers ? tree_get(tiers, tier_name(t)) : NULL;
    m->tier[t].name = tier_name(t);
    if (!one) continue; /* not used, or of a file from before there were tiers */
    HP_TRY(read_bytes(one, "planned_bytes", &m->tier[t].planned_bytes));
    HP_TRY(read_bytes(one, "moved_bytes", &m->tier[t].moved_bytes));
  }
  return HP_OK;
}

hp_status memory_read(const tree_node *from, hp_memory *out) {
  hp_memory m = {0};
  uint64_t devices;
  HP_TRY(tree_expect(from, TREE_MAP));
  HP_TRY(read_bytes(from, "devices", &devices));
  m.devices = devices > INT32_MAX ? INT32_MAX : (int)devices;
  for (int i = 0; i < STATES; i++) {
    HP_TRY(read_bytes(from, states[i].key, &m.state[states[i].class]));
    HP_TRY(read_bytes(from, states[i].model_key, &m.model[states[i].class]));
  }
  HP_TRY(read_bytes(from, "work_bytes", &m.work_bytes));
  HP_TRY(read_bytes(from, "planned_bytes", &m.planned_bytes));
  HP_TRY(read_bytes(from, "limit_bytes", &m.limit_bytes));
  HP_TRY(read_bytes(from, "device_memory_bytes", &m.device_bytes));
  HP_TRY(read_tiers(from, &m));
  *out = m;
  return HP_OK;
}
