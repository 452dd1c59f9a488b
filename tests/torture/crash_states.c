/* What a loss of power may leave of a run's folder, and whether a run still finds a checkpoint
 * there.
 *
 * usage: crash-states LOG OUT WORK [EVERY [lying | KEEP]]      crash-states save OUT STEP TEXT
 *   LOG    what a run has done to its files (preload_record.c)
 *   OUT    its folder, below the recorded one
 *   WORK   a folder to make states in
 *   EVERY  looks at every so many instants only
 *   lying  the disk keeps nothing of a file that it says it has synced: states must be bad then
 *   KEEP   leaves one in so many states as WORK/kept-N-STEP, STEP the one that is found or -1: for
 *          who starts a real run there
 *
 * The model is that of ALICE (Pillai et al., OSDI 2014): a write to a file is sure once the file
 * has been synced after it, a change of a folder once that folder has been.  At each instant of the
 * log, of what is not sure any part may be missing: all of it, all but one, one, two, what came
 * before or after an instant, and of few every subset; of a write that is missing its first half
 * may be there, or zeros.  Each state is made on the disk, and a run's own start looks for its
 * checkpoint there. It must find one that it would also have found at some instant since the last
 * commit, as it was written; the exported model must be one that was written, or be refused. */
#include "fs_log.h"

#include "base/hash.h"
#include "base/io.h"
#include "base/log.h"
#include "base/vec.h"
#include "ckpt/weights.h"
#include "ckpt/checkpoint.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SUBSETS = 6, NOT_FOUND = -1, MANY = 48, BLOCK = 64 << 10 };
typedef enum { APPLIED, MISSING, HALF, ZEROS, FATES } fate;

/* --- the log ---------------------------------------------------------------------------------- */

typedef struct {
  fs_record r;
  str name, name2, data;
  size_t object, object2, dir, dir2; /* numbers that are not used again; 0: none */
  bool sure;                         /* at the instant that is looked at */
  bool aside;                        /* no checkpoint depends on it: it is there always */
} op;

typedef struct {
  VEC(op) ops;
  VEC(uint64_t) inode; /* of objects, newest last; object 1 is the root */
  const char *out, *work;
  fate *fate;           /* of each op */
  map seen;             /* states -> what was found, and 2 */
  VEC(hash128) written; /* manifests and models as they were meant */
  VEC(int64_t) found;   /* by the run that lost nothing, at each instant */
  size_t states, looked, bad, instants;
  int64_t keep, kept; /* one in so many states is left; so many are */
  bool lying;
} replay;

static size_t object_of(replay *p, uint64_t inode, bool fresh) {
  if (!inode) return 0;
  for (size_t i = p->inode.len; !fresh && i-- > 0;)
    if (p->inode.at[i] == inode) return i + 1;
  HP_ASSERT(vec_push(&p->inode, inode));
  return p->inode.len;
}

static bool is_aside(const char *name) {
  static const char *const names[] = {"run.lock", "trainer_log.jsonl"};
  for (size_t i = 0; i < sizeof names / sizeof *names; i++)
    if (!strncmp(name, names[i], strlen(names[i]))) return true;
  return strstr(name, "tfevents") != NULL;
}

/* Adds a write to the one before it, as the system does with pages; true when it has. */
static bool join_write(replay *p, const op *o, const unsigned char *data) {
  op *last = p->ops.len ? &p->ops.at[p->ops.len - 1] : NULL;
  if (!last || last->r.kind != FS_WRITE || last->object != o->object) return false;
  if (last->r.offset + last->r.bytes != o->r.offset || last->r.bytes + o->r.bytes > BLOCK)
    return false;
  str_add_n(&last->data, (const char *)data, o->r.bytes);
  last->r.bytes += o->r.bytes;
  return true;
}

/* Files that nothing depends on, by the name that they were given first. */
static void set_aside(replay *p) {
  bool *aside = mem_calloc(p->inode.len + 1, sizeof *aside);
  HP_ASSERT(aside != NULL);
  for (size_t i = 0; i < p->ops.len; i++) {
    op *o = &p->ops.at[i];
    if (o->r.kind == FS_CREATE && is_aside(o->name.at)) aside[o->object] = true;
    o->aside = aside[o->object] && o->r.kind != FS_SYNC;
  }
  mem_free(aside);
}

static void read_log(replay *p, const unsigned char *at, size_t len) {
  for (size_t i = 0; i < len;) {
    op o = {.r = {0}};
    HP_ASSERT(len - i >= sizeof o.r);
    memcpy(&o.r, at + i, sizeof o.r);
    i += sizeof o.r;
    str_add_n(&o.name, (const char *)at + i, o.r.name_len);
    str_add_n(&o.name2, (const char *)at + i + o.r.name_len, o.r.name2_len);
    i += o.r.name_len + o.r.name2_len;
    const unsigned char *data = at + i;
    if (o.r.kind == FS_WRITE) i += o.r.bytes;
    if (o.r.kind == FS_ROOT && p->inode.len) continue;
    o.object = object_of(p, o.r.object, o.r.kind == FS_CREATE);
    o.object2 = object_of(p, o.r.object2, false);
    o.dir = object_of(p, o.r.dir, false);
    o.dir2 = object_of(p, o.r.dir2, false);
    if (o.r.kind == FS_ROOT || (o.r.kind == FS_WRITE && join_write(p, &o, data))) continue;
    if (o.r.kind == FS_WRITE) str_add_n(&o.data, (const char *)data, o.r.bytes);
    HP_ASSERT(vec_push(&p->ops, o));
  }
  set_aside(p);
}

/* --- a state ---------------------------------------------------------------------------------- */

typedef struct {
  size_t dir, object;
  const char *name;
} entry;

typedef struct {
  VEC(entry) entries;
} tree_state;

static void remove_entry(tree_state *t, size_t dir, const char *name, size_t object) {
  for (size_t i = 0; i < t->entries.len; i++) {
    const entry *e = &t->entries.at[i];
    if (e->dir != dir || strcmp(e->name, name) || (object && e->object != object)) continue;
    t->entries.at[i] = t->entries.at[--t->entries.len];
    return;
  }
}

static void put_entry(tree_state *t, size_t dir, const char *name, size_t object) {
  entry e = {dir, object, name};
  remove_entry(t, dir, name, 0);
  HP_ASSERT(vec_push(&t->entries, e));
}

static void apply_names(const replay *p, size_t instants, tree_state *t) {
  t->entries.len = 0;
  for (size_t i = 0; i < instants; i++) {
    const op *o = &p->ops.at[i];
    if (p->fate[i] != APPLIED) continue;
    switch ((fs_kind)o->r.kind) {
    case FS_CREATE: put_entry(t, o->dir, o->name.at, o->object); break;
    case FS_REMOVE: remove_entry(t, o->dir, o->name.at, o->object); break;
    case FS_RENAME:
    case FS_SWAP:
      remove_entry(t, o->dir, o->name.at, o->object);
      put_entry(t, o->dir2, o->name2.at, o->object);
      if (o->r.kind == FS_SWAP) put_entry(t, o->dir, o->name.at, o->object2);
      break;
    default: break;
    }
  }
}

/* Makes the content so many bytes long, with zeros where there were none. */
static void set_length(str *text, uint64_t n) {
  static const char zeros[1 << 16];
  while (text->len < n)
    str_add_n(text, zeros, n - text->len < sizeof zeros ? n - text->len : sizeof zeros);
  text->len = n;
}

/* from NULL: zeros. */
static void write_range(str *text, uint64_t at, const char *from, uint64_t n) {
  if (text->len < at + n) set_length(text, at + n);
  if (from && n) memcpy(text->at + at, from, n);
}

static void content_of(const replay *p, size_t instants, size_t object, str *out) {
  str_clear(out);
  for (size_t i = 0; i < instants; i++) {
    const op *o = &p->ops.at[i];
    if (o->object != object || p->fate[i] == MISSING) continue;
    if (o->r.kind == FS_SIZE) {
      set_length(out, o->r.bytes);
    } else if (o->r.kind == FS_WRITE) {
      uint64_t n = p->fate[i] == HALF ? o->r.bytes / 2 : o->r.bytes;
      write_range(out, o->r.offset, p->fate[i] == ZEROS ? NULL : o->data.at, n);
    }
  }
  HP_ASSERT(!str_status(out));
}

static bool is_folder(const replay *p, size_t object) {
  for (size_t i = 0; i < p->ops.len; i++)
    if (p->ops.at[i].r.kind == FS_CREATE && p->ops.at[i].object == object)
      return p->ops.at[i].r.is_dir;
  return object == 1;
}

/* A text that says what a folder holds: names, and which writes of each file are there. */
static void print_folder(const replay *p, const tree_state *t, size_t instants, size_t dir,
                         str *out) {
  for (size_t i = 0; i < t->entries.len; i++) {
    const entry *e = &t->entries.at[i];
    if (e->dir != dir) continue;
    str_printf(out, "%s{", e->name);
    if (is_folder(p, e->object)) print_folder(p, t, instants, e->object, out);
    for (size_t k = 0; k < instants; k++) {
      const op *o = &p->ops.at[k];
      bool content = o->r.kind == FS_WRITE || o->r.kind == FS_SIZE;
      if (content && o->object == e->object) str_printf(out, "%zu.%d ", k, (int)p->fate[k]);
    }
    str_add_char(out, '}');
  }
}

/* Made for a moment: neither synced nor renamed, so that a state costs little. */
static void make_file(const char *path, const str *text) {
  FILE *f = fopen(path, "we");
  HP_ASSERT(f && fwrite(text->at ? text->at : "", 1, text->len, f) == text->len && !fclose(f));
}

static void make_folder(const replay *p, const tree_state *t, size_t instants, size_t dir,
                        const char *path) {
  str text = {0}, full = {0};
  HP_ASSERT(!dir_create_new(path));
  for (size_t i = 0; i < t->entries.len; i++) {
    const entry *e = &t->entries.at[i];
    if (e->dir != dir) continue;
    HP_ASSERT(!path_join(&full, path, e->name));
    if (is_folder(p, e->object)) {
      make_folder(p, t, instants, e->object, full.at);
    } else {
      content_of(p, instants, e->object, &text);
      make_file(full.at, &text);
    }
  }
  str_free(&text);
  str_free(&full);
}

/* --- looking at it ---------------------------------------------------------------------------- */

static bool was_written(const replay *p, const char *path) {
  char *text;
  size_t n;
  HP_ASSERT(!file_read(path, 0, &text, &n));
  hash128 h = hash_bytes128(text, n);
  mem_free(text);
  for (size_t i = 0; i < p->written.len; i++)
    if (p->written.at[i].lo == h.lo && p->written.at[i].hi == h.hi) return true;
  return false;
}

/* What a run finds that begins there: the step, or NOT_FOUND; what is wrong in `why`. */
static int64_t begin_run(const replay *p, const char *out, str *why) {
  run_lock *lock;
  run_line line = {0};
  checkpoint c;
  str skipped = {0}, manifest = {0};
  bool there = false, found = false;
  int64_t step = NOT_FOUND;
  if (!dir_exists(out)) return NOT_FOUND;
  hp_status st = run_lock_take(out, &lock);
  HP_ASSERT(!st);
  st = checkpoint_clean(out);
  if (!st && run_line_load(out, &line, &there)) err_clear();
  if (!st) st = checkpoint_newest(out, there ? &line : NULL, NULL, &c, &found, &skipped);
  if (st) str_printf(why, "the start fails: %s", err_message());
  if (found) {
    step = c.step;
    HP_ASSERT(!path_join(&manifest, c.path, "MANIFEST.json"));
    if (!was_written(p, manifest.at)) str_printf(why, "%s was never written so", manifest.at);
    checkpoint_free(&c);
  }
  err_clear();
  run_line_free(&line);
  run_lock_free(lock);
  str_free(&skipped);
  str_free(&manifest);
  return step;
}

/* A model that opens is one that was written. */
static void open_export(const replay *p, const char *out, str *why) {
  weights *w;
  str path = {0};
  HP_ASSERT(!path_join(&path, out, "model.safetensors"));
  if (file_exists(path.at) && !weights_open(out, &w)) {
    weights_free(w);
    if (!was_written(p, path.at)) str_printf(why, "%s was never written so", path.at);
  }
  err_clear();
  str_free(&path);
}

/* Leaves a state as it was before it was looked at. */
static void keep_state(replay *p, const tree_state *t, size_t instants, int64_t found) {
  str path = {0};
  str_printf(&path, "%s/kept-%lld-%lld", p->work, (long long)p->kept++, (long long)found);
  HP_ASSERT(!str_status(&path));
  make_folder(p, t, instants, 1, path.at);
  str_free(&path);
}

/* Makes the state and looks at it, unless an equal one was looked at. */
static int64_t look(replay *p, size_t instants, str *why) {
  tree_state t = {0};
  str text = {0}, root = {0}, out = {0};
  uint32_t known;
  int64_t found;
  apply_names(p, instants, &t);
  print_folder(p, &t, instants, 1, &text);
  p->states++;
  HP_ASSERT(!str_status(&text));
  if (map_get(&p->seen, text.at ? text.at : "", text.len, &known)) {
    found = (int64_t)known - 2;
  } else {
    HP_ASSERT(!path_join(&root, p->work, "state") && !path_join(&out, root.at, p->out));
    HP_ASSERT(!dir_remove(root.at));
    make_folder(p, &t, instants, 1, root.at);
    found = begin_run(p, out.at, why);
    open_export(p, out.at, why);
    if (p->keep && p->looked % (size_t)p->keep == 0) keep_state(p, &t, instants, found);
    p->looked++;
    /* one that is wrong is looked at, and told, again */
    if (!why->len)
      HP_ASSERT(!map_set(&p->seen, text.at ? text.at : "", text.len, (uint32_t)(found + 2)));
  }
  vec_free(&t.entries);
  str_free(&text);
  str_free(&root);
  str_free(&out);
  return found;
}

/* --- what may be missing ---------------------------------------------------------------------- */

static bool is_sure(const replay *p, size_t i, size_t instants);

/* Is the folder itself gone for good? */
static bool is_folder_gone(const replay *p, size_t dir, size_t i, size_t instants) {
  for (size_t k = i + 1; k < instants; k++)
    if (p->ops.at[k].r.kind == FS_REMOVE && p->ops.at[k].object == dir)
      return is_sure(p, k, instants);
  return false;
}

static bool is_sure(const replay *p, size_t i, size_t instants) {
  const op *o = &p->ops.at[i];
  bool content = o->r.kind == FS_WRITE || o->r.kind == FS_SIZE, first = false, second = false;
  if (o->aside || o->r.kind == FS_SYNC) return true;
  if (content && p->lying) return false;
  for (size_t k = i + 1; k < instants; k++) {
    const op *s = &p->ops.at[k];
    if (s->r.kind != FS_SYNC) continue;
    first |= s->object == (content ? o->object : o->dir);
    second |= content || !o->dir2 || s->object == o->dir2;
  }
  if (!first && !content) return is_folder_gone(p, o->dir, i, instants);
  return first && second;
}

static void tell(const replay *p, size_t instants, const char *what, int64_t found) {
  static const char *const kinds[] = {"root", "create", "write", "size",
                                      "sync", "rename", "swap",  "remove"};
  static const char *const fates[] = {"", "missing", "half there", "zeros"};
  printf("  after operation %zu of %zu: %s (found: %lld)\n", instants, p->ops.len, what,
         (long long)found);
  for (size_t i = 0; i < instants; i++)
    if (p->fate[i] != APPLIED)
      printf("    %s: operation %zu, %s %s %s\n", fates[p->fate[i]], i, kinds[p->ops.at[i].r.kind],
             p->ops.at[i].name.len ? p->ops.at[i].name.at : "",
             p->ops.at[i].name2.len ? p->ops.at[i].name2.at : "");
}

/* The last commit before this instant: the sync of OUT that followed the rename of a checkpoint. */
static size_t last_commit(const replay *p, size_t instants) {
  size_t last = 0, dir = 0;
  for (size_t i = 0; i < instants; i++) {
    const op *o = &p->ops.at[i];
    bool renames = o->r.kind == FS_RENAME || o->r.kind == FS_SWAP;
    if (renames && !strncmp(o->name.at, ".tmp-checkpoint-", 16) &&
        !strncmp(o->name2.at, "checkpoint-", 11))
      dir = o->dir2;
    if (o->r.kind != FS_SYNC || o->object != dir) continue;
    last = i + 1;
    dir = 0;
  }
  return last;
}

/* A run that begins anew, in a line of its own, has no checkpoint until it commits one; the line
 * comes first.  Nobody else is without. */
static size_t next_line(const replay *p, size_t since, size_t instants) {
  for (size_t i = since; i < instants; i++)
    if (p->ops.at[i].r.kind == FS_RENAME && !strcmp(p->ops.at[i].name2.at, "run.line"))
      return i + 1;
  return instants + 1;
}

static bool is_allowed(const replay *p, size_t instants, int64_t found) {
  size_t since = last_commit(p, instants);
  if (found == NOT_FOUND && !since) return true;
  if (found == NOT_FOUND) since = next_line(p, since, instants);
  for (size_t k = since; k <= instants; k++)
    if (p->found.at[k] == found) return true;
  return false;
}

static void try_state(replay *p, size_t instants) {
  str why = {0};
  int64_t found = look(p, instants, &why);
  if (!why.len && !is_allowed(p, instants, found))
    str_add(&why, found == NOT_FOUND ? "the committed checkpoint is not found"
                                     : "an older checkpoint is found than was committed");
  if (why.len && p->bad++ < 10) tell(p, instants, why.at, found);
  str_free(&why);
}

typedef VEC(size_t) op_list;

static void set_all(replay *p, const op_list *open, fate f) {
  for (size_t i = 0; i < open->len; i++) p->fate[open->at[i]] = f;
}

static void try_subsets(replay *p, size_t instants, const op_list *open) {
  for (unsigned set = 0; set < 1u << open->len; set++) {
    for (size_t i = 0; i < open->len; i++) p->fate[open->at[i]] = set >> i & 1 ? MISSING : APPLIED;
    try_state(p, instants);
  }
}

/* All, all but one, pairs (of very many some), and what came first or last. */
static void try_many(replay *p, size_t instants, const op_list *open) {
  size_t stride = 1 + open->len / MANY;
  for (size_t i = 0; i < open->len; i++) {
    set_all(p, open, MISSING);
    p->fate[open->at[i]] = APPLIED;
    try_state(p, instants);
    for (size_t k = i; k < open->len; k += stride) {
      set_all(p, open, APPLIED);
      p->fate[open->at[i]] = p->fate[open->at[k]] = MISSING;
      try_state(p, instants);
    }
    for (size_t k = 0; k < open->len; k++) p->fate[open->at[k]] = k < i ? APPLIED : MISSING;
    try_state(p, instants);
    for (size_t k = 0; k < open->len; k++) p->fate[open->at[k]] = k < i ? MISSING : APPLIED;
    try_state(p, instants);
  }
}

/* Writes that are there in part: each by itself, with all else there or missing. */
static void try_torn(replay *p, size_t instants, const op_list *open) {
  for (size_t i = 0; i < open->len; i++)
    for (int f = HALF; f < FATES && p->ops.at[open->at[i]].r.kind == FS_WRITE; f++)
      for (int others = APPLIED; others <= MISSING; others++) {
        set_all(p, open, (fate)others);
        p->fate[open->at[i]] = (fate)f;
        try_state(p, instants);
      }
}

static void try_instant(replay *p, size_t instants) {
  op_list open = {0};
  for (size_t i = 0; i < instants; i++)
    if (!is_sure(p, i, instants)) HP_ASSERT(vec_push(&open, i));
  if (open.len <= SUBSETS) try_subsets(p, instants, &open);
  else try_many(p, instants, &open);
  try_torn(p, instants, &open);
  set_all(p, &open, APPLIED);
  vec_free(&open);
  p->instants++;
}

/* Every content that a manifest or model had when it got its name. */
static void note_written(replay *p) {
  str text = {0};
  for (size_t i = 0; i < p->ops.len; i++) {
    const op *o = &p->ops.at[i];
    if (o->r.kind != FS_RENAME) continue;
    if (strcmp(o->name2.at, "MANIFEST.json") && strcmp(o->name2.at, "model.safetensors")) continue;
    content_of(p, i, o->object, &text);
    hash128 h = hash_bytes128(text.at, text.len);
    HP_ASSERT(vec_push(&p->written, h));
  }
  str_free(&text);
}

/* Can what a run finds be another after this operation?  Not while a file has its temporary name.
 */
static bool can_matter(const replay *p, const op *o) {
  if (o->r.kind == FS_SYNC || o->aside) return false;
  if (o->r.kind == FS_RENAME || o->r.kind == FS_SWAP || o->r.kind == FS_REMOVE) return true;
  for (size_t i = 0; i < p->ops.len; i++)
    if (p->ops.at[i].r.kind == FS_CREATE && p->ops.at[i].object == o->object)
      return !strstr(p->ops.at[i].name.at, ".tmp.");
  return true;
}

static void note_found(replay *p) {
  for (size_t k = 0; k <= p->ops.len; k++) {
    str why = {0};
    bool same = k && !can_matter(p, &p->ops.at[k - 1]);
    int64_t found = same ? p->found.at[k - 1] : look(p, k, &why);
    if (why.len) printf("  nothing lost, after operation %zu: %s\n", k, why.at);
    p->bad += why.len != 0;
    HP_ASSERT(vec_push(&p->found, found));
    str_free(&why);
  }
}

/* Something to record: a small checkpoint with this text in it. */
static int save_text(const char *out, const char *step, const char *text) {
  checkpoint_text file = {"text", text, strlen(text)};
  checkpoint_content c = {.text = &file, .n_text = 1, .state = "{}", .run = 1};
  hp_status st = str_to_i64(step, &c.step) ? dir_create(out) : HP_ERR_ARG;
  if (!st) st = checkpoint_save(out, &c);
  if (st) fprintf(stderr, "crash-states: %s\n", err_message());
  return st ? 1 : 0;
}

int main(int argc, char **argv) {
  replay p = {0};
  char *log;
  size_t n;
  int64_t every = 1, keep = 0;
  if (argc == 5 && !strcmp(argv[1], "save")) return save_text(argv[2], argv[3], argv[4]);
  p.lying = argc == 6 && !strcmp(argv[5], "lying");
  bool keeps = argc == 6 && !p.lying;
  if (argc < 4 || argc > 6 || (argc > 4 && (!str_to_i64(argv[4], &every) || every < 1)) ||
      (keeps && (!str_to_i64(argv[5], &keep) || keep < 1))) {
    fputs("usage: crash-states LOG OUT WORK [EVERY [lying | KEEP]]\n", stderr);
    return 2;
  }
  p.keep = keep;
  log_set_level(LOG_QUIET);
  p.out = argv[2];
  p.work = argv[3];
  HP_ASSERT(!file_read(argv[1], 0, &log, &n));
  read_log(&p, (unsigned char *)log, n);
  p.fate = mem_calloc(p.ops.len + 1, sizeof *p.fate);
  HP_ASSERT(p.fate != NULL);
  note_written(&p);
  note_found(&p);
  for (size_t k = 0; k <= p.ops.len && !(p.lying && p.bad); k++)
    if ((int64_t)k % every == 0 || k == p.ops.len) try_instant(&p, k);
  printf("%zu operations, %zu instants, %zu states, %zu of them different, %zu bad\n", p.ops.len,
         p.instants, p.states, p.looked, p.bad);
  return p.bad ? 1 : 0;
}
