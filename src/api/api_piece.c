/* hyperparallel.h: pieces of a step, made and freed. */
#include "api/api_piece.h"

#include <string.h>

static hp_status copy_graph(const hp_graph *g, hp_graph **out) {
  rewrite r;
  HP_TRY(graph_status(g));
  HP_TRY(rewrite_begin(&r, g));
  for (uint32_t i = 0; i < g->nodes.len; i++) rewrite_copy(&r, i);
  return rewrite_end(&r, HP_OK, out);
}

static hp_status copy_text(const char **text, arena *to) {
  if (!*text) return HP_OK;
  *text = arena_strdup(to, *text);
  return *text ? HP_OK : HP_ERR_OOM;
}

static hp_status copy_texts(const char *const **list, arena *to) {
  size_t n = 0;
  if (!*list) return HP_OK;
  while ((*list)[n]) n++;
  const char **copy = arena_alloc(to, n + 1, sizeof *copy);
  HP_TRY_MEM(copy);
  for (size_t i = 0; i < n; i++) {
    copy[i] = (*list)[i];
    HP_TRY(copy_text(&copy[i], to));
  }
  copy[n] = NULL;
  *list = copy;
  return HP_OK;
}

static hp_status copy_options(const hp_compile_options *o, hp_piece *p) {
  if (!o) return HP_OK;
  p->o = *o;
  HP_TRY(copy_text(&p->o.dump_dir, &p->texts));
  HP_TRY(copy_text(&p->o.dump_name, &p->texts));
  return copy_texts(&p->o.remat_places, &p->texts);
}

static hp_status fill_piece(const hp_graph *g, const hp_compile_options *o, hp_piece *p) {
  HP_TRY(copy_options(o, p));
  return copy_graph(g, &p->g);
}

hp_status api_piece_create(const hp_graph *g, hp_device *d, const hp_compile_options *o,
                           hp_piece **out) {
  hp_piece *p = mem_calloc(1, sizeof *p);
  HP_TRY_MEM(p);
  p->d = d;
  *out = p;
  return fill_piece(g, o, p);
}

HP_API void hp_piece_free(hp_piece *p) {
  if (!p) return;
  for (int i = 0; p->part && i < p->d->meshes; i++) hp_piece_free(p->part[i]);
  mem_free(p->part);
  vec_free(&p->crossing);
  vec_free(&p->edge);
  compile_end(&p->c);
  graph_free(p->g);
  arena_free(&p->texts);
  mem_free(p);
}
