#include "topo/cluster.h"

#include "base/io.h"
#include "base/yaml.h"

#include <string.h>

/* --- by name ---------------------------------------------------------------------------------- */

/* `this` has the round figures of a server's CPU and an SSD.  Bandwidths of the others are their
 * makers'; where no latency is published it is that of comparable links.  The host's memory of
 * cloudmatrix384 is that of four CPUs a node with 160 GB/s each, here the share that a device has
 * while all eight copy. */
static const struct {
  const char *name, *text;
} built_in[] = {{"this", "name: this\n"
                         "device: {flops: 1e11, bandwidth_gb_s: 30}\n"
                         "links: [{name: memory, bandwidth_gb_s: 10, latency_us: 1}]\n"
                         "tiers: [{name: flash, latency_us: 100}]\n"},
                {"dgx-h100", "name: dgx-h100\n"
                             "devices_per_node: 8\n"
                             "device: {flops: 989e12, bandwidth_gb_s: 3350, memory_gb: 80}\n"
                             "links:\n"
                             "- {name: nvlink, devices: 8, bandwidth_gb_s: 450, latency_us: 2}\n"
                             "- {name: infiniband, bandwidth_gb_s: 50, latency_us: 5}\n"
                             "tiers:\n"
                             "- {name: host, read_gb_s: 64, write_gb_s: 64, latency_us: 10}\n"},
                {"cloudmatrix384",
                 "name: cloudmatrix384\n"
                 "nodes: 48\n"
                 "devices_per_node: 8\n"
                 "device: {flops: 752e12, bandwidth_gb_s: 3200, memory_gb: 128}\n"
                 "links:\n"
                 "- {name: node, devices: 8, bandwidth_gb_s: 392, latency_us: 1.2}\n"
                 "- {name: bus, bandwidth_gb_s: 380, latency_us: 1.9}\n"
                 "tiers:\n"
                 "- {name: host, read_gb_s: 80, write_gb_s: 80, latency_us: 1.5}\n"}};
enum { BUILT_IN = sizeof built_in / sizeof *built_in, TEXT_MAX = 1 << 20 };

/* --- reading ---------------------------------------------------------------------------------- */

static hp_status read_name(const tree_node *m, const char *absent, char out[CLUSTER_NAME]) {
  const char *name;
  HP_TRY(tree_opt_string(m, "name", absent, &name));
  size_t n = strlen(name);
  if (!n || n >= CLUSTER_NAME)
    TREE_FAIL(tree_get(m, "name"), "expected a name of 1 to %d bytes", CLUSTER_NAME - 1);
  for (const char *s = name; *s; s++)
    if ((unsigned char)*s <= ' ' || strchr("\"'{}[],:#", *s))
      TREE_FAIL(tree_get(m, "name"), "\"%s\": no blank or any of \" ' { } [ ] , : # may be in it",
                name);
  memcpy(out, name, n + 1);
  return HP_OK;
}

static hp_status read_count(const tree_node *m, const char *key, int64_t absent, int64_t *out) {
  const tree_node *n = tree_get(m, key);
  HP_TRY(tree_opt_int(m, key, absent, out));
  if (n && n->kind != TREE_NULL && (*out < 1 || *out > 1 << 24))
    TREE_FAIL(n, "%lld is out of range; expected a whole number from 1 to %d", (long long)*out,
              1 << 24);
  return HP_OK;
}

static const double SMALL = 1e-30;

static hp_status read_device(const tree_node *m, cluster *c) {
  static const char *const keys[] = {"flops", "bandwidth_gb_s", "memory_gb"};
  HP_TRY(tree_expect(m, TREE_MAP));
  HP_TRY(tree_check_keys(m, keys, sizeof keys / sizeof *keys));
  HP_TRY(tree_need_number(m, "flops", SMALL, &c->flops));
  HP_TRY(tree_need_number(m, "bandwidth_gb_s", SMALL, &c->gb_s));
  return tree_get(m, "memory_gb") ? tree_need_number(m, "memory_gb", SMALL, &c->memory_gb) : HP_OK;
}

static hp_status read_kernel_names(const tree_node *m, capabilities *can) {
  const tree_node *ops = tree_get(m, "ops");
  if (!ops) return HP_OK;
  HP_TRY(tree_expect(ops, TREE_LIST));
  if (ops->len > CAPABILITY_KERNELS)
    TREE_FAIL(ops, "%u names; at most %d are possible", ops->len, CAPABILITY_KERNELS);
  for (uint32_t i = 0; i < ops->len; i++) {
    const tree_node *name = ops->child[i];
    HP_TRY(tree_expect(name, TREE_STRING));
    if (strlen(name->string) >= CAPABILITY_NAME) TREE_FAIL(name, "is not the name of an op");
    memcpy(can->kernel[i], name->string, strlen(name->string) + 1);
  }
  can->kernels = (int)ops->len;
  return HP_OK;
}

static hp_status read_kernels(const tree_node *m, capabilities *can) {
  static const char *const keys[] = {"ops", "one_type", "chunk_bytes", "flops_per_byte",
                                     "horizontal_rows"};
  double bytes, rows;
  *can = capabilities_usual();
  if (!m) return HP_OK;
  HP_TRY(tree_expect(m, TREE_MAP));
  HP_TRY(tree_check_keys(m, keys, sizeof keys / sizeof *keys));
  HP_TRY(read_kernel_names(m, can));
  HP_TRY(tree_opt_bool(m, "one_type", can->one_type, &can->one_type));
  bytes = (double)can->chunk_bytes, rows = (double)can->horizontal_rows;
  if (tree_get(m, "chunk_bytes")) HP_TRY(tree_need_number(m, "chunk_bytes", 0, &bytes));
  if (tree_get(m, "flops_per_byte"))
    HP_TRY(tree_need_number(m, "flops_per_byte", 0, &can->flops_per_byte));
  if (tree_get(m, "horizontal_rows")) HP_TRY(tree_need_number(m, "horizontal_rows", 0, &rows));
  can->chunk_bytes = bytes < 9e18 ? (uint64_t)bytes : UINT64_MAX / 2;
  can->horizontal_rows = rows < 1e9 ? (int64_t)rows : 1000000000;
  return HP_OK;
}

static hp_status read_link(const tree_node *m, const cluster_link *below, bool last,
                           cluster_link *out) {
  static const char *const keys[] = {"name", "devices", "bandwidth_gb_s", "latency_us"};
  HP_TRY(tree_expect(m, TREE_MAP));
  HP_TRY(tree_check_keys(m, keys, sizeof keys / sizeof *keys));
  HP_TRY(read_name(m, "link", out->name));
  HP_TRY(read_count(m, "devices", 0, &out->devices));
  if (last && out->devices)
    TREE_FAIL(tree_get(m, "devices"), "the last link joins all devices; leave it out");
  if (!last && !out->devices)
    TREE_FAIL(m, "needs devices: how many ranks in a row this link joins; only the last joins all");
  if (below && !last && (out->devices <= below->devices || out->devices % below->devices))
    TREE_FAIL(tree_get(m, "devices"), "%lld is no multiple of the %lld devices of the link before",
              (long long)out->devices, (long long)below->devices);
  HP_TRY(tree_need_number(m, "bandwidth_gb_s", SMALL, &out->gb_s));
  return tree_need_number(m, "latency_us", 0, &out->latency_us);
}

static hp_status read_cluster(const tree_node *root, cluster *c) {
  static const char *const keys[] = {"name",           "nodes",   "devices_per_node",
                                     "device",         "kernels", "costs",
                                     "links",          "tiers",   "emulate",
                                     "emulate_compute"};
  const tree_node *device, *links;
  HP_TRY(tree_expect(root, TREE_MAP));
  HP_TRY(tree_check_keys(root, keys, sizeof keys / sizeof *keys));
  HP_TRY(read_name(root, "cluster", c->name));
  HP_TRY(read_count(root, "nodes", 0, &c->nodes));
  HP_TRY(read_count(root, "devices_per_node", 1, &c->per_node));
  HP_TRY(tree_need_map(root, "device", &device));
  HP_TRY(read_device(device, c));
  HP_TRY(read_kernels(tree_get(root, "kernels"), &c->can));
  HP_TRY(cost_table_read(tree_get(root, "costs"), &c->costs));
  HP_TRY(tree_need_list(root, "links", &links));
  if (links->len < 1 || links->len > CLUSTER_LINKS)
    TREE_FAIL(links, "expected 1 to %d links, from the nearest, found %u", CLUSTER_LINKS,
              links->len);
  c->links = (int)links->len;
  for (int i = 0; i < c->links; i++)
    HP_TRY(read_link(links->child[i], i ? &c->link[i - 1] : NULL, i == c->links - 1, &c->link[i]));
  HP_TRY(tiers_read(tree_get(root, "tiers"), c->per_node, c->tier));
  HP_TRY(tree_opt_bool(root, "emulate", false, &c->emulate));
  return tree_opt_bool(root, "emulate_compute", false, &c->emulate_compute);
}

hp_status cluster_parse(const char *text, size_t n, const char *source, cluster *out) {
  tree t;
  cluster c = {.links = 0};
  HP_TRY(yaml_parse(text, n, source, &t));
  hp_status st = read_cluster(t.root, &c);
  tree_free(&t);
  if (!st) *out = c;
  return st;
}

static hp_status not_found(const char *name) {
  const char *known[BUILT_IN];
  for (int i = 0; i < BUILT_IN; i++) known[i] = built_in[i].name;
  const char *near = str_nearest(name, known, BUILT_IN);
  HP_FAIL(
      HP_ERR_INPUT,
      "cluster \"%.200s\": no such file, and none is built in under that name%s%s%s; expected a "
      "file, this, dgx-h100 or cloudmatrix384",
      name, near ? " (did you mean \"" : "", near ? near : "", near ? "\"?)" : "");
}

hp_status cluster_load(const char *name, cluster *out) {
  char *text;
  size_t n;
  for (int i = 0; i < BUILT_IN; i++)
    if (!strcmp(name, built_in[i].name))
      return cluster_parse(built_in[i].text, strlen(built_in[i].text), name, out);
  if (!file_exists(name)) return not_found(name);
  HP_TRY(file_read(name, TEXT_MAX, &text, &n));
  hp_status st = cluster_parse(text, n, name, out);
  mem_free(text);
  return st;
}

/* --- printing --------------------------------------------------------------------------------- */

static void print_number(str *out, const char *key, double x) {
  str_printf(out, "%s: ", key);
  str_add_double(out, x);
}

static void print_kernels(const capabilities *can, str *out) {
  str_add(out, "kernels: {ops: [");
  for (int i = 0; i < can->kernels; i++) str_printf(out, "%s%s", i ? ", " : "", can->kernel[i]);
  str_printf(out, "], one_type: %s", can->one_type ? "true" : "false");
  print_number(out, ", chunk_bytes", (double)can->chunk_bytes);
  print_number(out, ", flops_per_byte", can->flops_per_byte);
  print_number(out, ", horizontal_rows", (double)can->horizontal_rows);
  str_add(out, "}\n");
}

void cluster_print(const cluster *c, str *out) {
  str_printf(out, "name: %s\n", c->name);
  if (c->nodes) str_printf(out, "nodes: %lld\n", (long long)c->nodes);
  str_printf(out, "devices_per_node: %lld\ndevice: {", (long long)c->per_node);
  print_number(out, "flops", c->flops);
  print_number(out, ", bandwidth_gb_s", c->gb_s);
  if (c->memory_gb > 0) print_number(out, ", memory_gb", c->memory_gb);
  str_add(out, "}\n");
  print_kernels(&c->can, out);
  cost_table_print(&c->costs, out);
  str_add(out, "links:\n");
  for (int i = 0; i < c->links; i++) {
    str_printf(out, "- {name: %s, ", c->link[i].name);
    if (c->link[i].devices) str_printf(out, "devices: %lld, ", (long long)c->link[i].devices);
    print_number(out, "bandwidth_gb_s", c->link[i].gb_s);
    print_number(out, ", latency_us", c->link[i].latency_us);
    str_add(out, "}\n");
  }
  tiers_print(c->tier, out);
  str_printf(out, "emulate: %s\n", c->emulate ? "true" : "false");
  str_printf(out, "emulate_compute: %s\n", c->emulate_compute ? "true" : "false");
}

/* --- what things cost ------------------------------------------------------------------------- */

hp_status cluster_check(const cluster *c, const mesh *m) {
  if (!c->nodes || m->devices <= c->nodes * c->per_node) return HP_OK;
  HP_FAIL(HP_ERR_LAYOUT, "cluster %s: has %lld devices, and %lld are needed", c->name,
          (long long)(c->nodes * c->per_node), (long long)m->devices);
}

/* Does every group of ranks that differ in these axes stay within a block of so many? */
static bool within(const mesh *m, const uint8_t *axis, int n, int64_t block) {
  int64_t span = 1; /* ranks in a row that hold a group, when the axes are the grid's own */
  for (int i = 0; i < n; i++) {
    int64_t own = m->size[axis[i]] * mesh_stride(m, axis[i]);
    if (m->size[axis[i]] > 1 && own > span) span = own;
  }
  if (!m->rank) return block % span == 0;
  if (m->consecutive && block % span == 0 && m->rank[0] % span == 0) return true;
  for (int64_t p = 0; p < m->devices; p++) {
    int64_t first = p;
    for (int i = 0; i < n; i++) first -= mesh_coordinate(m, p, axis[i]) * mesh_stride(m, axis[i]);
    if (mesh_rank(m, p) / block != mesh_rank(m, first) / block) return false;
  }
  return true;
}

const cluster_link *cluster_link_of(const cluster *c, const mesh *m, const uint8_t *axis, int n) {
  int i = 0;
  while (i < c->links - 1 && !within(m, axis, n, c->link[i].devices)) i++;
  return &c->link[i];
}

double cluster_comm_s(const cluster *c, const mesh *m, const uint8_t *axis, int n, double bytes,
                      int rounds) {
  const cluster_link *l = cluster_link_of(c, m, axis, n);
  int64_t devices = 1;
  int steps = 0;
  for (int i = 0; i < n; i++) devices *= m->size[axis[i]];
  while ((int64_t)1 << steps < devices) steps++;
  return l->latency_us * 1e-6 * steps * rounds + bytes / (l->gb_s * 1e9);
}

double cluster_rows_s(const cluster *c, const mesh *m, const uint8_t *axis, int n, double bytes) {
  const double copies = 4; /* both are read and written */
  return cluster_comm_s(c, m, axis, n, bytes, 1) + copies * bytes / (c->gb_s * 1e9);
}

double cluster_transfer_s(const cluster *c, int64_t from, int64_t to, double bytes) {
  int i = 0;
  while (i < c->links - 1 && from / c->link[i].devices != to / c->link[i].devices) i++;
  return c->link[i].latency_us * 1e-6 + bytes / (c->link[i].gb_s * 1e9);
}

static const double FLASH_GB_S = 1;

cluster_tier cluster_get_tier(const cluster *c, int tier) {
  cluster_tier t = c->tier[tier];
  double usual = tier == TIER_DEVICE ? c->gb_s : tier == TIER_HOST ? c->gb_s / 2 : FLASH_GB_S;
  if (tier == TIER_DEVICE) t.memory_gb = c->memory_gb;
  if (!(t.read_gb_s > 0)) t.read_gb_s = usual;
  if (!(t.write_gb_s > 0)) t.write_gb_s = usual;
  if (!(t.update_gb_s > 0)) t.update_gb_s = usual;
  if (!t.shared_by) t.shared_by = 1;
  return t;
}

double cluster_copy_s(const cluster *c, int from, int to, double bytes, int64_t devices) {
  const cluster_tier t = cluster_get_tier(c, from > to ? from : to);
  int64_t sharers = devices < t.shared_by ? devices : t.shared_by;
  double per_byte = 0; /* a copy within a tier reads and writes there */
  if (from >= to) per_byte += 1e-9 / t.read_gb_s;
  if (to >= from) per_byte += 1e-9 / t.write_gb_s;
  return t.latency_us * 1e-6 + bytes * per_byte * (double)(sharers > 1 ? sharers : 1);
}

double cluster_host_update_s(const cluster *c, double bytes, int64_t devices) {
  const cluster_tier t = cluster_get_tier(c, TIER_HOST);
  int64_t sharers = devices < t.shared_by ? devices : t.shared_by;
  return bytes * 1e-9 / t.update_gb_s * (double)(sharers > 1 ? sharers : 1);
}

/* A peak counts a multiply-add as two operations; a loop's operations are no multiply-adds. */
static const double LOOP_SHARE = 0.5;

static double peak_flops(const cluster *c, const cost_work *w) {
  double peak = w->bf16 && c->costs.flops_bf16 > 0 ? c->costs.flops_bf16 : c->flops;
  bool loop = w->op == COST_LOOP_MAP || w->op == COST_LOOP_ROW || w->op == COST_LOOP_COL;
  if (!loop) return peak;
  return LOOP_SHARE * c->flops; /* in f32, whatever is stored */
}

static double bytes_per_s(const cluster *c, const cost_work *w) {
  const cost_table *t = &c->costs;
  return (w->bytes < t->cache_mb * 1e6 ? t->cache_gb_s : c->gb_s) * 1e9;
}

double cluster_limit_s(const cluster *c, const cost_work *w) {
  if (w->op == COST_TRANSFER || w->op == COST_FLASH)
    return cluster_copy_s(c, w->from, w->to, w->bytes, w->devices);
  double f = w->flops / peak_flops(c, w), b = w->bytes / bytes_per_s(c, w);
  return f > b ? f : b;
}

double cluster_work_s(const cluster *c, const cost_work *w) {
  return c->costs.launch_us * 1e-6 + cluster_limit_s(c, w) / cost_table_find(&c->costs, w);
}
