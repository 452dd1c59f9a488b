/* Renders templates for jinja_compare.py: reads lines {"name", "template", "context", "now"} and
 * prints {"output"} or {"error"} for each. */
#include "base/json.h"
#include "jinja/jinja.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static hp_status render(const tree_node *job, str *out) {
  const tree_node *name, *text;
  jinja *t = NULL;
  jinja_options o = {0};
  HP_TRY(tree_need(job, "name", &name));
  HP_TRY(tree_need(job, "template", &text));
  HP_TRY(tree_opt_int(job, "now", 0, &o.now));
  HP_TRY(jinja_parse(name->string, text->string, text->len, &t));
  hp_status st = jinja_render(t, tree_get(job, "context"), &o, out);
  jinja_free(t);
  return st;
}

int main(void) {
  char *line = NULL;
  size_t room = 0;
  ssize_t n;
  while ((n = getline(&line, &room, stdin)) > 0) {
    tree job;
    str out = {0}, json = {0};
    json_writer w = {.out = &json, .utf8 = true};
    if (json_parse(line, (size_t)n, "job", &job)) return 1;
    hp_status st = render(job.root, &out);
    json_open_map(&w);
    json_put_key(&w, st ? "error" : "output");
    if (st) json_put_string(&w, err_message());
    else json_put_string_n(&w, out.at ? out.at : "", out.len);
    json_close(&w);
    puts(json.at);
    err_clear();
    str_free(&out);
    str_free(&json);
    tree_free(&job);
  }
  free(line);
  return 0;
}
