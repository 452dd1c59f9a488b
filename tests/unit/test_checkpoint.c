/* Checkpoints that several processes save together; here threads stand for them. */
#include "base/io.h"
#include "test.h"
#include "train/checkpoint.h"

#include <dirent.h>
#include <pthread.h>

enum { PROCESSES = 3 };

typedef struct {
  pthread_barrier_t all;
  hp_status said[PROCESSES];
  int fails, when; /* who fails, when it is asked so many times; -1: nobody */
} job;

typedef struct {
  job *j;
  int number, asked;
  hp_status result;
  pthread_t thread;
} process;

static hp_status agree(void *context, hp_status mine) {
  process *p = context;
  if (p->number == p->j->fails && p->asked++ == p->j->when)
    mine = err_set(HP_ERR_IO, __FILE__, __LINE__, "a disk is full");
  p->j->said[p->number] = mine;
  pthread_barrier_wait(&p->j->all);
  hp_status first = HP_OK;
  for (int i = 0; i < PROCESSES && !first; i++) first = p->j->said[i];
  pthread_barrier_wait(&p->j->all);
  if (first && !mine) err_set(first, __FILE__, __LINE__, "another process has failed");
  return first;
}

static hp_status write_part(void *context, const char *dir) {
  const process *p = context;
  str path = {0};
  char name[16];
  snprintf(name, sizeof name, "part-%d", p->number);
  hp_status st = path_join(&path, dir, name);
  if (!st) st = file_write(path.at, name, strlen(name));
  str_free(&path);
  return st;
}

static void *save(void *context) {
  process *p = context;
  checkpoint_text text = {"state.json", "{}", 2};
  checkpoint_content c = {.write = write_part,
                          .agree = agree,
                          .ctx = p,
                          .follows = p->number != 1,
                          .text = &text,
                          .n_text = p->number == 1,
                          .step = 4,
                          .state = "{}",
                          .run = 99};
  p->result = checkpoint_save(test_dir(), &c);
  return NULL;
}

static void save_together(int fails, int when, hp_status want) {
  job j = {.fails = fails, .when = when};
  process p[PROCESSES];
  pthread_barrier_init(&j.all, NULL, PROCESSES);
  for (int i = 0; i < PROCESSES; i++) {
    p[i] = (process){.j = &j, .number = i};
    CHECK(!pthread_create(&p[i].thread, NULL, save, &p[i]));
  }
  for (int i = 0; i < PROCESSES; i++) {
    pthread_join(p[i].thread, NULL);
    CHECK_EQ(p[i].result, want);
  }
  pthread_barrier_destroy(&j.all);
}

static int files_in(const char *dir) {
  int n = 0;
  DIR *d = opendir(dir);
  CHECK(d != NULL);
  while (readdir(d)) n++;
  closedir(d);
  return n - 2;
}

TEST(a_checkpoint_of_several_processes_has_the_parts_of_all) {
  char dir[512];
  checkpoint c;
  save_together(-1, 0, HP_OK);
  save_together(-1, 0, HP_OK);
  snprintf(dir, sizeof dir, "%s/checkpoint-4", test_dir());
  CHECK_OK(checkpoint_verify(dir, &c));
  CHECK_EQ(tree_get(c.manifest.root, "files")->len, PROCESSES + 1);
  checkpoint_free(&c);
  CHECK_EQ(files_in(test_dir()), 1);
}

TEST(where_one_process_fails_all_do_and_nothing_is_left) {
  for (int fails = 0; fails < PROCESSES; fails++)
    for (int when = 0; when < 2; when++) {
      save_together(fails, when, HP_ERR_IO);
      CHECK_EQ(files_in(test_dir()), 0);
    }
}
