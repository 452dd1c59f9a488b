/* Hashes of files that all processes of a job have: alone, and, where tests/cli/test_agree.sh
 * starts several, as one of them. */
#include "train/file_digests.h"

#include "base/hash.h"
#include "base/io.h"
#include "base/milestone.h"
#include "base/sealed.h"
#include "ckpt/manifest.h"
#include "hyperparallel.h"
#include "test.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

/* OWN: MiB of a file of one process.  Other files that are read meanwhile are a few KiB. */
enum { MIB = 1 << 20, OWN = 8, HASHED = OWN - 1, OTHER = 4 };

static void hash_of(const char *path, char hex[33], uint64_t *bytes) {
  file_map m;
  CHECK_OK(file_map_open(path, &m));
  hash_hex(hash_bytes128(m.at, m.len), hex);
  *bytes = m.len;
  file_map_close(&m);
}

static void check_digest(const file_digest *f) {
  char hex[33];
  uint64_t bytes;
  hash_of(f->path, hex, &bytes);
  CHECK_STR(f->hex, hex);
  CHECK_EQ(f->bytes, bytes);
}

/* MiB that were hashed for it. */
static uint64_t share(const char *dir, file_digest *file, size_t n) {
  uint64_t before = milestone_get_work();
  CHECK_OK(file_digests_share(dir, file, n));
  return milestone_get_work() - before;
}

/* A name in this test's folder, where a failure leaves nothing behind. */
typedef struct {
  char text[PATH_MAX];
} own_path;
static own_path in_dir(const char *name) {
  own_path p;
  CHECK(snprintf(p.text, sizeof p.text, "%s/%s", test_dir(), name) < (int)sizeof p.text);
  return p;
}

/* rank: a number in the file, so that it is this process's. */
static void write_own(const char *path, int rank) {
  char *bytes = mem_calloc(OWN, MIB);
  CHECK(bytes);
  bytes[5] = (char)(1 + rank);
  CHECK_OK(file_write(path, bytes, (size_t)OWN * MIB));
  mem_free(bytes);
}

TEST(several_processes_read_a_file_once_a_machine) {
  int rank, size;
  char program[PATH_MAX] = "";
  own_path own = in_dir("own.bin");
  CHECK(readlink("/proc/self/exe", program, sizeof program - 1) > 0);
  CHECK_OK(hp_world(&rank, &size));
  write_own(own.text, rank);
  file_digest both[] = {{.path = program}, {.path = own.text}}, second = {.path = own.text};
  uint64_t read = share(test_dir(), both, 2);
  uint64_t large = both[0].bytes / MIB;
  CHECK(large > HASHED + OTHER);
  if (rank) CHECK(read >= HASHED && read < large); /* process 0 has the first of them */
  else CHECK(read >= large + HASHED);
  check_digest(&both[0]);
  check_digest(&both[1]);
  /* each has another number of files, and one of them none */
  if (rank) {
    CHECK(share(test_dir(), &second, 1) >= HASHED);
    check_digest(&second);
  } else {
    CHECK(share(test_dir(), NULL, 0) < OTHER);
  }
}

TEST(a_hash_that_a_manifest_has_is_not_made_again) {
  char hex[33], text_hex[33] = "0123456789abcdef0123456789abcdef";
  uint64_t bytes;
  str text = {0};
  own_path first = in_dir("a.safetensors"), second = in_dir("b.safetensors");
  own_path manifest = in_dir(MANIFEST_NAME), shards = in_dir("model.parts.json");
  write_own(first.text, 1);
  write_own(second.text, 2);
  hash_of(second.text, hex, &bytes);
  str_printf(&text,
             "{\"files\": {\"a.safetensors\": {\"bytes\": %llu, \"xxh3_128\": \"%s\"},"
             " \"b.safetensors\": {\"bytes\": 7, \"xxh3_128\": \"%s\"}}}\n",
             (unsigned long long)bytes, text_hex, text_hex);
  sealed_close(&text);
  CHECK_OK(file_write(manifest.text, text.at, text.len));
  file_digest file[] = {{.path = first.text}, {.path = second.text}};
  CHECK(share(test_dir(), file, 1) < OTHER);
  CHECK_STR(file[0].hex, text_hex);
  CHECK(share(test_dir(), file, 2) >= HASHED); /* of another size: it is read */
  CHECK_STR(file[1].hex, hex);
  /* shards of several devices are not verified by each process that loads them */
  CHECK_OK(file_write(shards.text, "{}", 2));
  file[0].hex[0] = file[1].hex[0] = 0;
  CHECK(share(test_dir(), file, 2) >= 2 * HASHED);
  check_digest(&file[0]);
  unlink(shards.text);
  text.at[12] ^= 1; /* one that is damaged says nothing */
  CHECK_OK(file_write(manifest.text, text.at, text.len));
  file[0].hex[0] = file[1].hex[0] = 0;
  CHECK(share(test_dir(), file, 2) >= 2 * HASHED);
  str_free(&text);
}

TEST(a_file_that_is_gone_is_named) {
  file_digest file = {.path = "nowhere.safetensors"};
  CHECK_FAILS(file_digests_share(test_dir(), &file, 1), "nowhere.safetensors");
}
