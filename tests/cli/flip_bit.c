/* flip_bit PID FILE.safetensors TENSOR ALL|ONE: flips a bit of what a process has of a tensor in
 * its memory, found by the bytes in the file; prints how many copies it found.  As bad memory does.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { PATTERN = 64, FROM = 256 };

/* PATTERN bytes of the tensor; the header is searched for its name and data_offsets. */
static int read_pattern(const char *path, const char *tensor, unsigned char *out) {
  FILE *f = fopen(path, "rb");
  uint64_t n, begin;
  char name[256], *header = NULL, *at;
  if (!f || fread(&n, 8, 1, f) != 1 || n > 1 << 24 || !(header = calloc(n + 1, 1))) return 0;
  if (fread(header, 1, n, f) != n) return 0;
  snprintf(name, sizeof name, "\"%s\"", tensor);
  at = strstr(header, name);
  at = at ? strstr(at, "data_offsets") : NULL;
  at = at ? strchr(at, '[') : NULL;
  if (!at || sscanf(at + 1, "%" SCNu64, &begin) != 1) return 0;
  if (fseek(f, (long)(8 + n + begin + FROM), SEEK_SET)) return 0;
  int read = fread(out, PATTERN, 1, f) == 1;
  fclose(f);
  free(header);
  return read;
}

/* Flips it in [begin, end); how often it was found. */
static int flip_in(int mem, uint64_t begin, uint64_t end, const unsigned char *pattern, int all) {
  size_t n = end - begin;
  unsigned char *room = malloc(n), *at = room;
  int found = 0;
  ssize_t got = room ? pread(mem, room, n, (off_t)begin) : -1;
  while (got > 0 && (all || !found) &&
         (at = memmem(at, (size_t)got - (size_t)(at - room), pattern, PATTERN))) {
    unsigned char flipped = at[1] ^ 1;
    if (pwrite(mem, &flipped, 1, (off_t)(begin + (uint64_t)(at - room) + 1)) == 1) found++;
    at += PATTERN;
  }
  free(room);
  return found;
}

int main(int argc, char **argv) {
  unsigned char pattern[PATTERN];
  char path[64], line[512], rights[8];
  int found = 0, all;
  if (argc != 5 || !read_pattern(argv[2], argv[3], pattern)) {
    fprintf(stderr, "flip_bit: no such tensor\n");
    return 2;
  }
  all = !strcmp(argv[4], "ALL");
  snprintf(path, sizeof path, "/proc/%s/mem", argv[1]);
  int mem = open(path, O_RDWR);
  snprintf(path, sizeof path, "/proc/%s/maps", argv[1]);
  FILE *maps = fopen(path, "r");
  if (mem < 0 || !maps) {
    fprintf(stderr, "flip_bit: the memory of process %s cannot be written\n", argv[1]);
    return 3;
  }
  while (fgets(line, sizeof line, maps) && (all || !found)) {
    uint64_t begin, end;
    if (sscanf(line, "%" SCNx64 "-%" SCNx64 " %7s", &begin, &end, rights) != 3) continue;
    if (!strncmp(rights, "rw", 2)) found += flip_in(mem, begin, end, pattern, all);
  }
  printf("%d\n", found);
  return found ? 0 : 1;
}
