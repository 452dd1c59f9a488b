/* Data sets: the first byte chooses kind and columns, the rest is the file.  What is read are texts
 * that lie in the memory of the data set, and a split of them loses none. */
#include "fuzz.h"

#include "base/log.h"
#include "dataset/dataset.h"

#include <string.h>

static hp_status read_bytes(unsigned kind, const char *bytes, size_t n, dataset *d) {
  dataset_columns c = {.guess = true};
  if (kind & 4) c = (dataset_columns){.prompt = "a", .query = "b", .history = "h", .response = "r"};
  int64_t max = kind & 8 ? 3 : -1;
  if (kind % 4 == 0) return dataset_read_lines(bytes, n, "f.txt", max, d);
  if (kind % 4 == 1) return dataset_read_csv(bytes, n, "f.csv", &c, max, d);
  return dataset_read_json(bytes, n, "f.json", &c, max, d);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n) {
  dataset d = {0}, taken = {0};
  size_t sum = 0;
  if (!n) return 0;
  log_set_level(LOG_ERROR);
  if (!read_bytes(bytes[0], (const char *)bytes + 1, n - 1, &d)) {
    size_t before = d.sample.len;
    for (size_t i = 0; i < before; i++)
      for (size_t k = 0; k < d.sample.at[i].text.len; k++)
        sum += (unsigned char)d.sample.at[i].text.at[k];
    if (!dataset_split(&d, 0, 0.3, 7, &taken)) HP_ASSERT(d.sample.len + taken.sample.len == before);
    HP_ASSERT(sum <= 255 * n + before);
  }
  err_clear();
  dataset_free(&taken);
  dataset_free(&d);
  return 0;
}
