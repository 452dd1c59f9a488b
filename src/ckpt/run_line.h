/* The line of a run: the identity shared by its checkpoints, but not by those of an abandoned
 * branch.
 *
 * Resuming from the newest checkpoint keeps the line, and so does resuming at step 0 if none of
 * its checkpoints is left.  A new run, or one from a checkpoint that the user names, begins a
 * new line, which records the line and step from which it began, and that line's own parents.
 * OUT/run.line holds the current line of a folder.  It is replaced in one write before anything
 * else of a new line, so after a death at any instant a restart resumes the line that was begun
 * last. */
#ifndef CKPT_RUN_LINE_H
#define CKPT_RUN_LINE_H

#include "base/str.h"
#include "base/tree.h"
#include "base/vec.h"

enum { RUN_LINE_DIGITS = 32, RUN_LINE_JOB = 64 };

typedef struct {
  char id[RUN_LINE_DIGITS + 1];
  int64_t step; /* the newest step of that line that belongs to this one, too */
} run_line_parent;

typedef struct {
  char id[RUN_LINE_DIGITS + 1]; /* 128 random bits in hex */
  VEC(run_line_parent) parents; /* the line from which it began comes first */
  /* The checkpoint from which it began: a name in OUT, or an absolute path; NULL: at step 0. */
  char *from;
  char job[RUN_LINE_JOB + 1]; /* the job of `hyper launch` that runs it, "": none */
} run_line;

/* A new line that begins at step 0. */
hp_status run_line_create(run_line *out);
/* A new line that begins from a checkpoint of `of`, at path; `here`: one of the same folder. */
hp_status run_line_branch(const run_line *of, int64_t step, const char *path, bool here,
                          run_line *out);
void run_line_free(run_line *l);

/* Does the checkpoint of that line and step belong to l? */
bool run_line_has(const run_line *l, const char *id, int64_t step);

/* The members "line" and "parents" of a JSON object, a comma after each. */
void run_line_print(const run_line *l, str *out);
/* The same, read back.  A manifest without them (of an older version) belongs to a line of
 * zeros. */
hp_status run_line_parse(const tree_node *manifest, run_line *out);

/* OUT/run.line.  *found false if there is none; HP_ERR_INPUT says how it is damaged. */
hp_status run_line_load(const char *out_dir, run_line *out, bool *found);
hp_status run_line_save(const char *out_dir, const run_line *l);

#endif
