/* A folder of checkpoints: its manifest, the names in it, and the states of schedule and log.
 *
 * The input is a manifest, then behind bytes 0xFF names of folders, one a line, and the text of a
 * file to save.  Bit 0 of the first byte puts the right hash under the manifest.  Whatever lies
 * there: a checkpoint that verifies has the files it names, what was saved verifies until a byte of
 * it is changed, and the folder can be cleaned. */
#include "folder.h"
#include "fuzz.h"

#include "base/hash.h"
#include "base/io.h"
#include "base/json.h"
#include "base/log.h"
#include "ckpt/checkpoint.h"
#include "train/run_log.h"
#include "train/schedule.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

/* The states that a manifest carries, as a resume reads them. */
static void read_states(const tree_node *root) {
  static const train_flow flow = {.steps = 100};
  const char *text;
  const tree_node *state;
  if (tree_need_map(root, "state", &state)) return;
  for (int kind = 0; kind < SCHEDULE_COUNT; kind++) {
    schedule s = {0};
    if (!tree_need_string(state, "schedule", &text) &&
        !schedule_create((schedule_kind)kind, 0.1, 0, 100, NULL, 0, &s) &&
        !schedule_parse_state(&s, text)) {
      str again = {0};
      schedule_observe(&s, 1);
      (void)schedule_lr(&s, 3);
      schedule_print_state(&s, &again);
      HP_ASSERT(!schedule_parse_state(&s, again.at));
      str_free(&again);
    }
    schedule_free(&s);
    err_clear();
  }
  run_log log;
  run_log_create(NULL, &flow, NULL, &log);
  if (!run_log_parse_state(&log, state) && !tree_need_string(state, "loss_sums", &text))
    (void)run_log_parse_sums(&log, text);
  run_log_free(&log);
  err_clear();
}

/* The line of a manifest; what is read is printed and read again. */
static bool read_line(const tree_node *root) {
  run_line l, again;
  tree t;
  str text = {0};
  if (run_line_parse(root, &l)) return false;
  str_add_char(&text, '{');
  run_line_print(&l, &text);
  str_add(&text, "\"step\": 3}");
  HP_ASSERT(!json_parse(text.at, text.len, "line", &t) && !run_line_parse(t.root, &again));
  HP_ASSERT(!strcmp(l.id, again.id) && l.parents.len == again.parents.len);
  HP_ASSERT(run_line_has(&l, again.id, 1 << 20));
  tree_free(&t);
  run_line_free(&again);
  run_line_free(&l);
  str_free(&text);
  return true;
}

static void check_manifest(const char *out_dir, const str *manifest, bool right_hash) {
  checkpoint c;
  char path[128], hex[34];
  str text = {0}, skipped = {0};
  bool found;
  snprintf(path, sizeof path, "%s/checkpoint-3", out_dir);
  HP_ASSERT(!dir_create(path));
  folder_write("checkpoint-3/a", "hello", 5);
  folder_write("checkpoint-3/b", "", 0);
  str_add_n(&text, manifest->at ? manifest->at : "", manifest->len);
  if (right_hash) {
    hash_hex(hash_bytes128(text.at ? text.at : "", text.len), hex);
    str_printf(&text, "%s\n", hex);
  }
  folder_write("checkpoint-3/MANIFEST.json", text.at ? text.at : "", text.len);
  bool good = !checkpoint_verify(path, &c);
  if (good) {
    HP_ASSERT(tree_get(c.manifest.root, "files"));
    read_states(c.manifest.root);
    good = c.step == 3 && read_line(c.manifest.root);
    checkpoint_free(&c);
  }
  err_clear();
  HP_ASSERT(!checkpoint_newest(out_dir, NULL, NULL, &c, &found, &skipped));
  HP_ASSERT(found == good && (good || skipped.len));
  if (found) checkpoint_free(&c);
  str_free(&text);
  str_free(&skipped);
}

/* What is saved verifies, and no longer after a byte has been changed. */
static void check_save(const char *out_dir, const str *content) {
  char path[128];
  checkpoint c;
  checkpoint_text text = {"state.json", content->at ? content->at : "", content->len};
  checkpoint_content all = {.text = &text, .n_text = 1, .step = 7, .state = "{}"};
  snprintf(path, sizeof path, "%s/checkpoint-7", out_dir);
  HP_ASSERT(!checkpoint_save(out_dir, &all) && !checkpoint_save(out_dir, &all));
  HP_ASSERT(!checkpoint_verify(path, &c) && c.step == 7);
  checkpoint_free(&c);
  if (!content->len) return;
  content->at[content->len / 2] ^= 1;
  folder_write("checkpoint-7/state.json", content->at, content->len);
  HP_ASSERT(checkpoint_verify(path, &c));
  err_clear();
}

static void make_folders(const char *out_dir, const str *names) {
  int made = 0;
  for (const char *at = names->at; at && *at && made < 8; made++) {
    size_t n = strcspn(at, "\n");
    char path[192];
    bool plain = n && n < 60 && !memchr(at, '/', n) && at[0] != '.';
    if (n > 16 && n < 60 && !memchr(at, '/', n)) plain |= !strncmp(at, ".tmp-checkpoint-", 16);
    snprintf(path, sizeof path, "%s/%.*s", out_dir, (int)n, at);
    if (plain && mkdir(path, 0700)) { /* there already */
    }
    at += n + (at[n] != 0);
  }
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n) {
  if (!n) return 0;
  log_set_level(LOG_ERROR);
  const uint8_t *at = bytes + 1, *end = bytes + n;
  str manifest = folder_part(&at, end), names = folder_part(&at, end);
  str content = folder_part(&at, end), left = {0};
  const char *out_dir = folder_fresh();
  check_manifest(out_dir, &manifest, bytes[0] & 1);
  make_folders(out_dir, &names);
  if (content.len || bytes[0] & 2) check_save(out_dir, &content);
  HP_ASSERT(!checkpoint_clean(out_dir));
  checkpoint_memo memo = {0};
  run_line line;
  HP_ASSERT(!run_line_create(&line));
  checkpoint_limit limit = {.line = &line, .keep = 1, .saved = 7, .best = 3, .memo = &memo};
  HP_ASSERT(!checkpoint_prune(out_dir, &limit) && !checkpoint_set_aside(out_dir, &line));
  HP_ASSERT(!checkpoint_forget(out_dir, &line));
  checkpoint_memo_free(&memo);
  run_line_free(&line);
  HP_ASSERT(!path_join(&left, out_dir, "checkpoint-3") && !dir_exists(left.at));
  str_free(&manifest);
  str_free(&names);
  str_free(&content);
  str_free(&left);
  err_clear();
  return 0;
}
