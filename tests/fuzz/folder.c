#include "folder.h"

#include "base/io.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char path[64];

static void remove_folder(void) {
  if (dir_remove(path)) err_clear();
}

const char *folder_fresh(void) {
  if (!*path) {
    const char *memory = access("/dev/shm", W_OK) ? "/tmp" : "/dev/shm";
    snprintf(path, sizeof path, "%s/hyper-fuzz-%ld", memory, (long)getpid());
    atexit(remove_folder);
  }
  HP_ASSERT(!dir_remove(path) && !dir_create(path));
  return path;
}

void folder_write(const char *name, const void *bytes, size_t n) {
  char file[256];
  snprintf(file, sizeof file, "%s/%s", path, name);
  FILE *f = fopen(file, "wb");
  HP_ASSERT(f && fwrite(bytes, 1, n, f) == n && !fclose(f));
}

str folder_part(const uint8_t **at, const uint8_t *end) {
  const uint8_t *stop = *at < end ? memchr(*at, 0xFF, (size_t)(end - *at)) : NULL;
  str s = {0};
  str_add_n(&s, (const char *)*at, (size_t)((stop ? stop : end) - *at));
  *at = stop ? stop + 1 : end;
  return s;
}
