/* test-json FILE PATH: prints the value at a path such as `a.b.0` of a JSON file, for the command
 * line tests.  A .jsonl file counts as an array of its lines; negative indices count from the end.
 * Strings print bare, numbers in full, the rest as JSON.  Exit 1 when there is no such value. */
#include <jansson.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static json_t *load_lines(FILE *f, json_error_t *e) {
  json_t *all = json_array();
  for (;;) {
    int c = getc(f);
    while (c == ' ' || c == '\n' || c == '\r' || c == '\t') c = getc(f);
    if (c == EOF) return all;
    ungetc(c, f);
    json_t *one = json_loadf(f, JSON_DISABLE_EOF_CHECK | JSON_DECODE_ANY, e);
    if (!one) {
      json_decref(all);
      return NULL;
    }
    json_array_append_new(all, one);
  }
}

static json_t *load(const char *path, json_error_t *e) {
  snprintf(e->text, sizeof e->text, "cannot be opened");
  FILE *f = fopen(path, "rb");
  if (!f) return NULL;
  size_t n = strlen(path);
  bool lines = n > 6 && !strcmp(path + n - 6, ".jsonl");
  json_t *v = lines ? load_lines(f, e) : json_loadf(f, JSON_DECODE_ANY, e);
  fclose(f);
  return v;
}

static json_t *step(json_t *v, const char *key) {
  if (!json_is_array(v)) return json_object_get(v, key);
  long i = strtol(key, NULL, 10), n = (long)json_array_size(v);
  if (i < 0) i += n;
  return i < 0 ? NULL : json_array_get(v, (size_t)i);
}

static void print(const json_t *v) {
  if (json_is_string(v)) printf("%s\n", json_string_value(v));
  else if (json_is_real(v)) printf("%.17g\n", json_real_value(v));
  else {
    char *text = json_dumps(v, JSON_ENCODE_ANY | JSON_COMPACT);
    printf("%s\n", text ? text : "?");
    free(text);
  }
}

int main(int argc, char **argv) {
  if (argc != 3) {
    fprintf(stderr, "usage: test-json FILE PATH\n");
    return 2;
  }
  json_error_t e;
  json_t *root = load(argv[1], &e);
  if (!root) {
    fprintf(stderr, "%s\n", e.text);
    return 1;
  }
  json_t *v = root;
  char *rest;
  for (char *key = strtok_r(argv[2], ".", &rest); key && v; key = strtok_r(NULL, ".", &rest))
    v = step(v, key);
  if (v) print(v);
  else fprintf(stderr, "no such value\n");
  json_decref(root);
  return v ? 0 : 1;
}
