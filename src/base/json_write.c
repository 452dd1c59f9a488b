#include "base/json.h"

#include "base/utf8.h"

#include <math.h>
#include <string.h>

static void newline(json_writer *w) {
  str_add_char(w->out, '\n');
  for (int i = 0; i < w->depth * w->indent; i++) str_add_char(w->out, ' ');
}

/* What stands before a value or a key: nothing, a comma, a new line. */
static void separate(json_writer *w) {
  if (w->after_key || !w->depth) {
    w->after_key = false;
    return;
  }
  if (w->level[w->depth].any) str_add(w->out, w->indent || w->compact ? "," : ", ");
  w->level[w->depth].any = true;
  if (w->indent) newline(w);
}

static void open_container(json_writer *w, char open, char close) {
  separate(w);
  HP_ASSERT(w->depth < TREE_DEPTH_MAX);
  str_add_char(w->out, open);
  w->depth++;
  w->level[w->depth].close = close;
  w->level[w->depth].any = false;
}

void json_open_map(json_writer *w) { open_container(w, '{', '}'); }
void json_open_list(json_writer *w) { open_container(w, '[', ']'); }

void json_close(json_writer *w) {
  HP_ASSERT(w->depth > 0 && !w->after_key);
  bool any = w->level[w->depth].any;
  char close = w->level[w->depth].close;
  w->depth--;
  if (any && w->indent) newline(w);
  str_add_char(w->out, close);
}

/* The character as escape; beyond 16 bits as a surrogate pair. */
static void add_escape(str *out, uint32_t c) {
  static const char from[] = "\"\\\b\f\n\r\t", to[] = "\"\\bfnrt";
  const char *plain = c && c < 0x80 ? strchr(from, (int)c) : NULL;
  if (plain) {
    str_add_char(out, '\\');
    str_add_char(out, to[plain - from]);
  } else if (c < 0x10000) {
    str_printf(out, "\\u%04x", (unsigned)c);
  } else {
    str_printf(out, "\\u%04x\\u%04x", (unsigned)(0xd800 + ((c - 0x10000) >> 10)),
               (unsigned)(0xdc00 + (c & 0x3ff)));
  }
}

static void add_quoted(json_writer *w, const char *s, size_t n) {
  str_add_char(w->out, '"');
  for (size_t i = 0, len; i < n; i += len) {
    uint32_t c = 0xfffd;
    size_t valid = utf8_decode(s + i, n - i, &c);
    len = valid ? valid : 1;
    /* Python leaves 0x7f as it is */
    if (c < 0x20 || c == '"' || c == '\\' || (c > 0x7f && !w->utf8)) add_escape(w->out, c);
    else if (valid) str_add_n(w->out, s + i, len);
    else str_add(w->out, "\xef\xbf\xbd");
  }
  str_add_char(w->out, '"');
}

static void put_key(json_writer *w, const char *key, size_t n) {
  HP_ASSERT(w->depth > 0 && w->level[w->depth].close == '}' && !w->after_key);
  separate(w);
  add_quoted(w, key, n);
  str_add(w->out, w->compact ? ":" : ": ");
  w->after_key = true;
}

void json_put_key(json_writer *w, const char *key) { put_key(w, key, strlen(key)); }

static void literal(json_writer *w, const char *text) {
  HP_ASSERT(!w->depth || w->level[w->depth].close == ']' || w->after_key);
  separate(w);
  str_add(w->out, text);
}

void json_put_null(json_writer *w) { literal(w, "null"); }
void json_put_bool(json_writer *w, bool x) { literal(w, x ? "true" : "false"); }

void json_put_int(json_writer *w, int64_t x) {
  literal(w, "");
  str_printf(w->out, "%lld", (long long)x);
}

/* True when x is not finite and its word was written. */
static bool wrote_special(json_writer *w, double x) {
  if (isfinite(x)) return false;
  literal(w, isnan(x) ? "NaN" : x > 0 ? "Infinity" : "-Infinity");
  return true;
}

void json_put_double(json_writer *w, double x) {
  if (wrote_special(w, x)) return;
  literal(w, "");
  str_add_double(w->out, x);
}

void json_put_float(json_writer *w, float x) {
  if (wrote_special(w, (double)x)) return;
  literal(w, "");
  str_add_float(w->out, x);
}

void json_put_string_n(json_writer *w, const char *s, size_t n) {
  literal(w, "");
  add_quoted(w, s, n);
}

void json_put_string(json_writer *w, const char *s) { json_put_string_n(w, s, strlen(s)); }

void json_key_int(json_writer *w, const char *key, int64_t x) {
  json_put_key(w, key);
  json_put_int(w, x);
}

void json_key_double(json_writer *w, const char *key, double x) {
  json_put_key(w, key);
  json_put_double(w, x);
}

void json_key_bool(json_writer *w, const char *key, bool x) {
  json_put_key(w, key);
  json_put_bool(w, x);
}

void json_key_string(json_writer *w, const char *key, const char *s) {
  json_put_key(w, key);
  json_put_string(w, s);
}

void json_put_tree(json_writer *w, const tree_node *n) {
  switch (n->kind) {
  case TREE_NULL: json_put_null(w); break;
  case TREE_BOOL: json_put_bool(w, n->boolean); break;
  case TREE_INT: json_put_int(w, n->integer); break;
  case TREE_FLOAT: json_put_double(w, n->number); break;
  case TREE_STRING: json_put_string_n(w, n->string, n->len); break;
  case TREE_LIST:
  case TREE_MAP:
    if (n->kind == TREE_MAP) json_open_map(w);
    else json_open_list(w);
    for (uint32_t i = 0; i < n->len; i++) {
      if (n->kind == TREE_MAP) put_key(w, n->child[i]->key, n->child[i]->key_len);
      json_put_tree(w, n->child[i]);
    }
    json_close(w);
    break;
  }
}
