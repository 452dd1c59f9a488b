/* Engines of products, as checkpoints and the cache keep them: what is read prints as it reads, and
 * of what is refused nothing is taken. */
#include "fuzz.h"

#include "backend/cpu/engine/engine_picks.h"
#include "base/mem.h"

#include <string.h>

static char *print(const engine_picks *p) {
  str s = {0};
  engine_picks_print(p, &s);
  return str_take(&s);
}

static void check_text(const engine_picks *p) {
  engine_picks again = {0};
  char *one = print(p);
  HP_ASSERT(one && !engine_picks_parse(&again, one, strlen(one), "again"));
  char *two = print(&again);
  HP_ASSERT(two && !strcmp(one, two) && again.at.len == p->at.len);
  for (size_t i = 0; i < p->at.len; i++)
    HP_ASSERT(engine_picks_find(&again, p->at.at[i].product) == p->at.at[i].engine);
  mem_free(one);
  mem_free(two);
  engine_picks_free(&again);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n) {
  engine_picks p = {0};
  if (engine_picks_parse(&p, (const char *)bytes, n, "fuzz")) HP_ASSERT(!p.at.len);
  else check_text(&p);
  engine_picks_free(&p);
  err_clear();
  return 0;
}
