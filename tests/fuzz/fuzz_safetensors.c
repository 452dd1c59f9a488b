/* safetensors: the views of what is accepted lie side by side inside the file.  The bytes are tried
 * as a file, and, behind a length that fits, as a header whose data has the size of the first two
 * bytes, so that mutations get past the first check. */
#include "fuzz.h"

#include "base/safetensors.h"

#include <stdlib.h>
#include <string.h>

static void check(const uint8_t *bytes, size_t n) {
  st_file f;
  if (!st_parse(bytes, n, "fuzz", &f)) {
    const unsigned char *at = f.n ? f.tensor[0].data : bytes + n;
    unsigned sum = 0;
    for (size_t i = 0; i < f.n; i++) {
      const st_tensor *t = &f.tensor[i];
      uint64_t size;
      HP_ASSERT(t->data == at && st_size(t->dtype, t->rank, t->dim, &size) && size == t->bytes);
      HP_ASSERT(st_find(&f, t->name) == t);
      for (size_t k = 0; k < t->bytes; k++) sum += t->data[k];
      at += t->bytes;
    }
    HP_ASSERT(at == bytes + n && sum <= 255 * n);
    for (size_t i = 0; i < f.n_metadata; i++) HP_ASSERT(f.metadata[i].key && f.metadata[i].value);
    st_close(&f);
  }
  err_clear();
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n) {
  check(bytes, n);
  if (n < 2) return 0;
  size_t data = bytes[0] | (size_t)bytes[1] << 8, header = n - 2;
  uint8_t *file = calloc(8 + header + data, 1);
  HP_ASSERT(file);
  for (int i = 0; i < 8; i++) file[i] = (uint8_t)((uint64_t)header >> (8 * i));
  memcpy(file + 8, bytes + 2, header);
  check(file, 8 + header + data);
  free(file);
  return 0;
}
