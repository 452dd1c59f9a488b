/* A folder with a manifest is verified while its tensors are loaded. */
#include "ckpt/manifest.h"
#include "base/io.h"
#include "base/sealed.h"
#include "ckpt/weights.h"
#include "test.h"

#include <sys/stat.h>
#include <unistd.h>

enum { LARGE = 20 << 20 };

static const char *at(const char *name) {
  static str text[8];
  static int next;
  str *t = &text[next++ % 8];
  CHECK_OK(path_join(t, test_dir(), name));
  return t->at;
}

static void change_byte(const char *path, long offset) {
  unsigned char c;
  FILE *f = fopen(path, "r+b");
  CHECK(f && !fseek(f, offset, offset < 0 ? SEEK_END : SEEK_SET) && fread(&c, 1, 1, f) == 1);
  c ^= 1;
  CHECK(!fseek(f, -1, SEEK_CUR) && fwrite(&c, 1, 1, f) == 1 && !fclose(f));
}

static const char *const files[] = {"model-00001-of-00002.safetensors",
                                    "model-00002-of-00002.safetensors",
                                    "model.safetensors.index.json", "optimizer.safetensors",
                                    "config.json"};
enum { FILES = sizeof files / sizeof *files };

static void write_manifest(void) {
  str text = {0};
  str_add(&text, "{\"files\": {");
  for (int i = 0; i < FILES; i++) {
    file_map m;
    char hex[33];
    CHECK_OK(file_map_open(at(files[i]), &m));
    hash_hex(hash_bytes128(m.at, m.len), hex);
    str_printf(&text, "%s\"%s\": {\"bytes\": %zu, \"xxh3_128\": \"%s\"}", i ? "," : "", files[i],
               m.len, hex);
    file_map_close(&m);
  }
  str_add(&text, "}}\n");
  sealed_close(&text);
  CHECK_OK(str_status(&text));
  CHECK_OK(file_write(at(MANIFEST_NAME), text.at, text.len));
  str_free(&text);
}

static void make_folder(void) {
  static unsigned char byte[2][LARGE];
  static const int64_t large[] = {LARGE};
  st_tensor two[] = {{"a", large, byte[0], LARGE, 1, ST_U8},
                     {"b", large, byte[1], LARGE, 1, ST_U8}};
  weights_options o = {.max_shard_bytes = LARGE + LARGE / 2};
  memset(byte, 1, sizeof byte);
  CHECK_OK(weights_save(test_dir(), two, 2, &o));
  CHECK_OK(st_save(at("optimizer.safetensors"), two, 1, NULL, 0));
  CHECK_OK(file_write(at("config.json"), "{}", 2));
  write_manifest();
}

/* As a model loads: `made` bytes are made of the files, `ahead` says whether they are read ahead.
 */
static hp_status load(uint64_t made, bool ahead) {
  manifest_check *c;
  weights *w;
  HP_TRY(manifest_check_begin(test_dir(), &c));
  CHECK(c != NULL);
  hp_status st = weights_open(test_dir(), &w);
  if (!st) {
    weights_claim(w, c);
    CHECK_OK(manifest_check_start(c));
    if (ahead) weights_read_ahead(w, made);
    for (size_t i = 0; i < weights_count(w) && i < 1; i++) { /* some of it, not all */
      const st_tensor *t = weights_get(w, i);
      uint64_t begin = weights_place(w, t), end = begin + t->bytes;
      weights_move(w, begin, end);
      weights_wait(w, end);
    }
    st = weights_give(w, c);
    weights_free(w);
  }
  return manifest_check_end(c, st);
}

TEST(a_flipped_byte_in_any_file_is_found_while_weights_are_loaded) {
  make_folder();
  CHECK_OK(load(0, true));
  CHECK_OK(load(UINT64_MAX, true)); /* what is passed leaves memory at once */
  CHECK_OK(load(0, false));
  static const long place[] = {0, 9, 100, -1};
  for (int i = 0; i < FILES; i++)
    for (int k = 0; k < 4; k++) {
      long offset = i == FILES - 1 && k ? -1 : place[k];
      change_byte(at(files[i]), offset);
      CHECK_FAILS(load(0, true), files[i]);
      if (k == 3) CHECK_FAILS(load(UINT64_MAX, true), "its hash does not match the manifest");
      if (k == 3) CHECK_FAILS(load(0, false), "restore it from a copy");
      change_byte(at(files[i]), offset);
    }
  CHECK_OK(load(0, true));
}

TEST(a_folder_is_what_its_manifest_says) {
  make_folder();
  CHECK_OK(manifest_verify_texts(test_dir()));
  CHECK_OK(dir_create(at("folder"))); /* these are not looked at */
  CHECK_OK(file_write(at(".hidden"), "x", 1));
  CHECK_OK(manifest_verify_texts(test_dir()));
  CHECK_OK(file_write(at("more.json"), "x", 1));
  CHECK_FAILS(manifest_verify_texts(test_dir()), "more.json: is not in the manifest");
  CHECK(!unlink(at("more.json")));
  CHECK(!symlink(at("config.json"), at("link")));
  CHECK_FAILS(manifest_verify_texts(test_dir()), "link: is not in the manifest");
  CHECK(!unlink(at("link")));
  for (int i = 0; i < FILES; i++) {
    CHECK(!rename(at(files[i]), at(".away")));
    CHECK_FAILS(manifest_verify_texts(test_dir()), "is missing, the manifest names it");
    CHECK(!rename(at(".away"), at(files[i])));
    struct stat s;
    CHECK(!stat(at(files[i]), &s) && !truncate(at(files[i]), s.st_size + 1));
    CHECK_FAILS(manifest_verify_texts(test_dir()), files[i]);
    CHECK(!truncate(at(files[i]), s.st_size));
  }
  CHECK_OK(manifest_verify_texts(test_dir()));
  change_byte(at(MANIFEST_NAME), 3);
  CHECK_FAILS(manifest_verify_texts(test_dir()), "MANIFEST.json: its hash does not match");
  CHECK(!truncate(at(MANIFEST_NAME), 20));
  CHECK_FAILS(manifest_verify_texts(test_dir()), "MANIFEST.json: is truncated");
}
