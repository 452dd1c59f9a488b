/* Engines of products, as checkpoints and the cache keep them: what is read prints as it reads, and
 * of what is refused nothing is taken. */
#include "fuzz.h"

#include "backend/cpu/engine/tuning_record.h"
#include "base/mem.h"

#include <string.h>

static char *print(const tuning_record *p) {
  str s = {0};
  tuning_record_print(p, &s);
  return str_take(&s);
}

static void check_text(const tuning_record *p) {
  tuning_record again = {0};
  char *one = print(p);
  HP_ASSERT(one && !tuning_record_parse(&again, one, strlen(one), "again"));
  char *two = print(&again);
  HP_ASSERT(two && !strcmp(one, two) && again.at.len == p->at.len);
  for (size_t i = 0; i < p->at.len; i++)
    HP_ASSERT(tuning_record_find(&again, p->at.at[i].product) == p->at.at[i].engine);
  mem_free(one);
  mem_free(two);
  tuning_record_free(&again);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n) {
  tuning_record p = {0};
  if (tuning_record_parse(&p, (const char *)bytes, n, "fuzz")) HP_ASSERT(!p.at.len);
  else check_text(&p);
  tuning_record_free(&p);
  err_clear();
  return 0;
}
