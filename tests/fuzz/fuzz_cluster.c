/* Cluster files: what is read prints as a file that reads back as the same, and every collective on
 * it takes some time. */
#include "fuzz.h"

#include "topo/cluster.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n) {
  static const char *const name[] = {"a", "b"};
  cluster c, same;
  if (!cluster_parse((const char *)bytes, n, "fuzz", &c)) {
    str one = {0}, two = {0};
    mesh m;
    uint8_t axis[] = {0, 1};
    cluster_print(&c, &one);
    HP_ASSERT(!str_status(&one) && !cluster_parse(one.at, one.len, "again", &same));
    cluster_print(&same, &two);
    HP_ASSERT(!str_status(&two) && !strcmp(one.at, two.at));
    HP_ASSERT(!mesh_init((int64_t[]){4, 6}, name, 2, NULL, 0, &m));
    for (int k = 1; k <= 2; k++) HP_ASSERT(cluster_comm_s(&c, &m, axis, k, 1, 2) > 0);
    str_free(&one);
    str_free(&two);
  }
  err_clear();
  return 0;
}
