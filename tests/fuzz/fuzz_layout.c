/* Layouts: a byte for the shape, a line with one, perhaps a second line with another on its mesh.
 * What is read prints to a text that reads back the same; the slices of all devices make up the
 * tensor as often as it is held; and there is a way from one to the other. */
#include "fuzz.h"

#include "shard/layout_text.h"
#include "shard/path.h"

#include <string.h>

enum { DEVICES_MAX = 64, AXES_MAX = 4, DIMS_MAX = 4 };

static void check_round_trip(const mesh *m, const layout *l, bool called) {
  str one = {0}, two = {0};
  mesh again = {0};
  layout same;
  bool also;
  for (int k = 0; k < 2; k++) {
    str *s = k ? &two : &one;
    const mesh *from = k ? &again : m;
    if (k) HP_ASSERT(!layout_parse(one.at, &again, &same, &also) && also == called);
    if (called) layout_print(from, k ? &same : l, s);
    else mesh_print(from, s), mesh_print_ranks(from, s);
    HP_ASSERT(!str_status(s));
  }
  HP_ASSERT(!strcmp(one.at, two.at) && layout_equal(l, &same));
  mesh_free(&again);
  str_free(&one);
  str_free(&two);
}

/* Every element is held layout_repeat times, unless parts of a given length are too short for a
 * dim.
 */
static void check_slices(const mesh *m, const layout *l, const int64_t *shape) {
  if (layout_short_dim(m, l, shape) >= 0) return;
  int64_t held = 0, all = layout_repeat(m, l);
  for (int d = 0; d < l->rank; d++) all *= shape[d];
  for (int64_t p = 0; p < m->devices; p++) {
    int64_t start[LAYOUT_DIMS], stop[LAYOUT_DIMS], part = 1;
    layout_slice(m, l, shape, p, start, stop);
    for (int d = 0; d < l->rank; d++) {
      HP_ASSERT(0 <= start[d] && start[d] <= stop[d] && stop[d] <= shape[d]);
      part *= stop[d] - start[d];
    }
    held += part;
  }
  HP_ASSERT(held == all);
}

static void check_path(const mesh *m, const layout *from, const char *text, const int64_t *shape) {
  layout to;
  path way;
  path_request q = {.mesh = m, .shape = shape, .element_bytes = 4};
  if (layout_parse_on(text, m, &to) || to.rank != from->rank) return;
  if (path_find(&q, from, &to, &way)) return;
  HP_ASSERT(way.n >= 0 && way.n <= PATH_MOVES && way.bytes >= 0 && way.peak >= way.local);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n) {
  str text = {0};
  mesh m;
  layout l;
  bool called;
  if (!n || memchr(bytes, 0, n)) return 0;
  str_add_n(&text, (const char *)bytes + 1, n - 1);
  str_add(&text, "\n");
  char *second = strchr(text.at, '\n');
  *second++ = 0;
  if (!layout_parse(text.at, &m, &l, &called)) {
    int64_t shape[LAYOUT_DIMS];
    for (int d = 0; d < LAYOUT_DIMS; d++) shape[d] = (bytes[0] >> d) % 8 + d % 3;
    check_round_trip(&m, &l, called);
    if (m.devices <= DEVICES_MAX) check_slices(&m, &l, shape);
    if (m.devices <= DEVICES_MAX && m.axes <= AXES_MAX && l.rank <= DIMS_MAX)
      check_path(&m, &l, second, shape);
    mesh_free(&m);
  }
  str_free(&text);
  err_clear();
  return 0;
}
