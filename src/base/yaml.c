#include "base/yaml.h"

#include "base/hash.h"
#include "base/io.h"
#include "base/json.h"
#include "base/vec.h"

#include <string.h>
#include <yaml.h>

typedef struct {
  yaml_parser_t parser;
  yaml_event_t event; /* the current one */
  bool has_event;
  arena *mem;
  const char *source;
  bool lines;             /* the source has lines to speak of */
  VEC(tree_node *) items; /* finished children of the containers that are still open */
  VEC(tree_node *) anchored;
  map anchors;           /* name -> number in anchored; the latest of a name counts */
  size_t copies;         /* nodes that aliases have made */
  yaml_repeats *repeats; /* never NULL */
} builder;

static hp_status parse_node(builder *b, int depth, tree_node **out);

/* Moves to the next event; a syntax error becomes ours. */
static hp_status next(builder *b) {
  if (b->has_event) yaml_event_delete(&b->event);
  b->has_event = false;
  if (yaml_parser_parse(&b->parser, &b->event)) {
    b->has_event = true;
    return HP_OK;
  }
  const yaml_parser_t *p = &b->parser;
  const char *problem = p->problem ? p->problem : "not readable as YAML";
  const char *context = p->context ? p->context : "", *comma = p->context ? ": " : "";
  if (p->error == YAML_MEMORY_ERROR) HP_FAIL(HP_ERR_OOM, "%s: out of memory", b->source);
  if (p->error == YAML_READER_ERROR)
    HP_FAIL(HP_ERR_INPUT, "%s: byte %zu%s: %s; %s", b->source, p->problem_offset,
            b->lines ? "" : " of the value", problem,
            strstr(problem, "control characters") ? "remove them, or write them in double quotes, "
                                                    "as \"\\x1b\""
            : b->lines                            ? "save the file as UTF-8 text"
                                                  : "write it in UTF-8");
  if (!b->lines) HP_FAIL(HP_ERR_INPUT, "%s: %s%s%s", b->source, context, comma, problem);
  HP_FAIL(HP_ERR_INPUT, "%s:%zu:%zu: %s%s%s", b->source, p->problem_mark.line + 1,
          p->problem_mark.column + 1, context, comma, problem);
}

static tree_node *node_here(builder *b, tree_kind kind) {
  yaml_mark_t m = b->event.start_mark;
  return tree_new(b->mem, kind, b->source, b->lines ? m.line + 1 : 0, b->lines ? m.column + 1 : 0);
}

/* The short name of a standard tag ("int"), "" for no tag, NULL for any other. */
static const char *standard_tag(const yaml_char_t *tag) {
  static const char prefix[] = "tag:yaml.org,2002:";
  const char *t = (const char *)tag;
  if (!t || !*t || !strcmp(t, "!")) return "";
  return strncmp(t, prefix, sizeof prefix - 1) ? NULL : t + sizeof prefix - 1;
}

/* The value of a scalar with an explicit tag. */
static hp_status tagged_scalar(const char *tag, const char *text, tree_node *n) {
  const char *why = "this value does not fit its tag";
  if (!strcmp(tag, "str")) return HP_OK;
  if (!strcmp(tag, "null")) {
    n->kind = TREE_NULL;
    return HP_OK;
  }
  tree_node v = {.kind = TREE_STRING};
  bool ok = yaml_resolve(text, &v, &why);
  if (!strcmp(tag, "float")) {
    ok = yaml_to_float(text, &n->number);
    n->kind = TREE_FLOAT;
  } else if (!strcmp(tag, "int")) {
    ok = ok && v.kind == TREE_INT;
    n->integer = ok ? v.integer : 0;
    n->kind = TREE_INT;
  } else if (!strcmp(tag, "bool")) {
    ok = ok && v.kind == TREE_BOOL;
    n->boolean = ok && v.boolean;
    n->kind = TREE_BOOL;
  } else {
    TREE_FAIL(n, "the tag !!%s is not supported here; remove it", tag);
  }
  if (!ok) TREE_FAIL(n, "\"%.60s\" does not fit its tag !!%s", text, tag);
  return HP_OK;
}

static hp_status parse_scalar(builder *b, tree_node **out) {
  const char *text = (const char *)b->event.data.scalar.value;
  size_t len = b->event.data.scalar.length;
  const char *tag = standard_tag(b->event.data.scalar.tag), *why = "";
  bool plain = b->event.data.scalar.style == YAML_PLAIN_SCALAR_STYLE;
  tree_node *n = node_here(b, TREE_STRING);
  HP_TRY_MEM(n);
  if (!tag)
    TREE_FAIL(n, "the tag %.80s is not supported; remove it",
              (const char *)b->event.data.scalar.tag);
  if (*tag) HP_TRY(tagged_scalar(tag, text, n));
  else if (plain && !yaml_resolve(text, n, &why)) TREE_FAIL(n, "\"%.60s\": %s", text, why);
  if (n->kind == TREE_STRING) {
    n->string = arena_strndup(b->mem, text, len);
    HP_TRY_MEM(n->string);
    n->len = (uint32_t)len;
  }
  *out = n;
  return HP_OK;
}

/* A copy of a finished node and all below it, for an alias or a merge. */
static hp_status copy_node(builder *b, const tree_node *from, int depth, tree_node **out) {
  if (++b->copies > YAML_COPY_MAX)
    TREE_FAIL(from, "aliases would copy more than %d values", YAML_COPY_MAX);
  if (depth > TREE_DEPTH_MAX)
    TREE_FAIL(from, "aliases give more than %d lists and maps inside each other", TREE_DEPTH_MAX);
  tree_node *n = tree_new(b->mem, from->kind, from->source, from->line, from->column);
  HP_TRY_MEM(n);
  *n = *from;
  if (n->kind == TREE_LIST || n->kind == TREE_MAP) {
    size_t start = b->items.len;
    for (uint32_t i = 0; i < from->len; i++) {
      tree_node *item;
      HP_TRY(copy_node(b, from->child[i], depth + 1, &item));
      if (!vec_push(&b->items, item)) return HP_ERR_OOM;
    }
    b->items.len = start;
    HP_TRY(tree_adopt(b->mem, n, b->items.at ? b->items.at + start : NULL, from->len));
  }
  *out = n;
  return HP_OK;
}

static hp_status parse_alias(builder *b, int depth, tree_node **out) {
  const char *name = (const char *)b->event.data.alias.anchor;
  uint32_t i;
  if (map_get(&b->anchors, name, strlen(name), &i)) {
    HP_TRY(copy_node(b, b->anchored.at[i], depth, out));
    (*out)->key = NULL;
    (*out)->key_len = 0;
    return HP_OK;
  }
  tree_node *n = node_here(b, TREE_NULL);
  HP_TRY_MEM(n);
  TREE_FAIL(n, "the alias *%.80s has no anchor before it", name);
}

static hp_status set_anchor(builder *b, const char *name, tree_node *node) {
  if (!name) return HP_OK;
  HP_TRY(map_set(&b->anchors, name, strlen(name), (uint32_t)b->anchored.len));
  return vec_push(&b->anchored, node) ? HP_OK : HP_ERR_OOM;
}

/* The children of `<<: value` behind the items: those that node does not set itself and that no
 * earlier map of the list has set. */
static hp_status merge_into(builder *b, const tree_node *node, const tree_node *value, size_t start,
                            int depth) {
  if (value->kind == TREE_LIST) {
    for (uint32_t i = 0; i < value->len; i++) {
      HP_TRY(tree_expect(value->child[i], TREE_MAP));
      HP_TRY(merge_into(b, node, value->child[i], start, depth));
    }
    return HP_OK;
  }
  if (value->kind != TREE_MAP)
    TREE_FAIL(value, "expected a map or a list of maps after <<, found %s", tree_what(value).text);
  for (uint32_t i = 0; i < value->len; i++) {
    const tree_node *from = value->child[i];
    bool there = tree_get_n(node, from->key, from->key_len) != NULL;
    for (size_t k = start + node->len; k < b->items.len && !there; k++)
      there = b->items.at[k]->key_len == from->key_len &&
              !memcmp(b->items.at[k]->key, from->key, from->key_len);
    if (there) continue;
    tree_node *copy;
    HP_TRY(copy_node(b, from, depth, &copy));
    if (!vec_push(&b->items, copy)) return HP_ERR_OOM;
  }
  return HP_OK;
}

/* The key of a map entry, at the current event, as text; *merge when it is `<<`. */
static hp_status parse_key(builder *b, tree_node **out, bool *merge) {
  tree_node *at = node_here(b, TREE_NULL);
  HP_TRY_MEM(at);
  if (b->event.type != YAML_SCALAR_EVENT)
    TREE_FAIL(at, "expected a word as the key of a map; quote it if it starts with [ { * or &");
  const char *text = (const char *)b->event.data.scalar.value;
  bool plain = b->event.data.scalar.style == YAML_PLAIN_SCALAR_STYLE;
  if (plain && (!*text || !strcmp(text, "~") || !strcmp(text, "null")))
    TREE_FAIL(at, "null cannot be a key; put a key before the ':'");
  *merge = plain && !strcmp(text, "<<");
  at->key_len = (uint32_t)b->event.data.scalar.length;
  at->key = arena_strndup(b->mem, text, at->key_len);
  HP_TRY_MEM(at->key);
  *out = at;
  return HP_OK;
}

/* Takes the items from `start` on whose key stands before them out of the map. */
static hp_status set_repeats_aside(builder *b, const tree_node *node, size_t start) {
  map keys = {0};
  size_t kept = start;
  hp_status st = HP_OK;
  for (size_t i = start; i < b->items.len && !st; i++) {
    tree_node *item = b->items.at[i];
    uint32_t first;
    if (map_get(&keys, item->key, item->key_len, &first)) {
      item->parent = node;
      st = vec_push(b->repeats, item) ? HP_OK : HP_ERR_OOM;
    } else {
      st = map_set(&keys, item->key, item->key_len, 0);
      b->items.at[kept++] = item;
    }
  }
  b->items.len = kept;
  map_free(&keys);
  return st;
}

hp_status yaml_repeat_error(const tree_node *repeat) {
  const tree_node *first = tree_get_n(repeat->parent, repeat->key, repeat->key_len);
  if (!repeat->line) TREE_FAIL(repeat, "this key is set twice; remove one of them");
  TREE_FAIL(repeat, "this key is already set at %s; remove one of them", tree_where(first).text);
}

static hp_status parse_map(builder *b, tree_node *node, int depth) {
  size_t start = b->items.len;
  tree_node *merged = NULL;
  for (;;) {
    tree_node *key = NULL, *item = NULL;
    bool merge = false;
    HP_TRY(next(b));
    if (b->event.type == YAML_MAPPING_END_EVENT) break;
    HP_TRY(parse_key(b, &key, &merge));
    HP_TRY(next(b));
    HP_TRY(parse_node(b, depth, &item));
    if (merge && merged) TREE_FAIL(item, "a map can have one << key; give it a list of maps");
    if (merge) {
      merged = item;
      continue;
    }
    item->key = key->key;
    item->key_len = key->key_len;
    if (!vec_push(&b->items, item)) return HP_ERR_OOM;
  }
  HP_TRY(set_repeats_aside(b, node, start));
  /* adopted once before the merge, which asks what keys are there, and once with it */
  HP_TRY(tree_adopt(b->mem, node, b->items.at ? b->items.at + start : NULL, b->items.len - start));
  if (merged) {
    HP_TRY(merge_into(b, node, merged, start, depth));
    HP_TRY(
        tree_adopt(b->mem, node, b->items.at ? b->items.at + start : NULL, b->items.len - start));
  }
  b->items.len = start;
  return HP_OK;
}

static hp_status parse_list(builder *b, tree_node *node, int depth) {
  size_t start = b->items.len;
  for (;;) {
    tree_node *item;
    HP_TRY(next(b));
    if (b->event.type == YAML_SEQUENCE_END_EVENT) break;
    HP_TRY(parse_node(b, depth, &item));
    if (!vec_push(&b->items, item)) return HP_ERR_OOM;
  }
  size_t n = b->items.len - start;
  b->items.len = start;
  return tree_adopt(b->mem, node, b->items.at ? b->items.at + start : NULL, n);
}

/* The value at the current event; the event after it is not read. */
static hp_status parse_node(builder *b, int depth, tree_node **out) {
  if (b->event.type == YAML_ALIAS_EVENT) return parse_alias(b, depth, out);
  bool scalar = b->event.type == YAML_SCALAR_EVENT,
       list = b->event.type == YAML_SEQUENCE_START_EVENT;
  const yaml_char_t *raw = scalar ? b->event.data.scalar.anchor
                           : list ? b->event.data.sequence_start.anchor
                                  : b->event.data.mapping_start.anchor;
  const char *name = raw ? arena_strdup(b->mem, (const char *)raw) : NULL;
  if (raw) HP_TRY_MEM(name);
  if (scalar) {
    HP_TRY(parse_scalar(b, out));
    return set_anchor(b, name, *out);
  }
  tree_node *n = node_here(b, list ? TREE_LIST : TREE_MAP);
  HP_TRY_MEM(n);
  const yaml_char_t *raw_tag =
      list ? b->event.data.sequence_start.tag : b->event.data.mapping_start.tag;
  const char *tag = standard_tag(raw_tag);
  if (!tag || (*tag && strcmp(tag, list ? "seq" : "map")))
    TREE_FAIL(n, "the tag %.80s is not supported here; remove it", (const char *)raw_tag);
  if (depth >= TREE_DEPTH_MAX)
    TREE_FAIL(n, "more than %d lists and maps inside each other", TREE_DEPTH_MAX);
  HP_TRY(list ? parse_list(b, n, depth + 1) : parse_map(b, n, depth + 1));
  *out = n;
  return set_anchor(b, name, n);
}

/* stream start, at most one document, stream end */
static hp_status parse_stream(builder *b, tree_node **out) {
  HP_TRY(next(b));
  HP_TRY(next(b));
  if (b->event.type == YAML_STREAM_END_EVENT) {
    *out = node_here(b, TREE_NULL);
    return *out ? HP_OK : HP_ERR_OOM;
  }
  HP_TRY(next(b));
  HP_TRY(parse_node(b, 0, out));
  HP_TRY(next(b));
  HP_TRY(next(b));
  if (b->event.type != YAML_STREAM_END_EVENT) {
    tree_node *n = node_here(b, TREE_NULL);
    HP_TRY_MEM(n);
    TREE_FAIL(n, "a second document starts here; one was expected");
  }
  return HP_OK;
}

/* Parses into memory of the caller; source is not copied. */
static hp_status parse_into(arena *mem, const char *bytes, size_t len, const char *source,
                            bool lines, yaml_repeats *repeats, tree_node **out) {
  yaml_repeats own = {0};
  builder b = {.mem = mem, .source = source, .lines = lines, .repeats = repeats ? repeats : &own};
  if (len > YAML_SIZE_MAX)
    HP_FAIL(HP_ERR_INPUT, "%s: more than %d bytes of YAML", source, YAML_SIZE_MAX);
  if (!yaml_parser_initialize(&b.parser)) HP_FAIL(HP_ERR_OOM, "%s: out of memory", source);
  yaml_parser_set_input_string(&b.parser, (const unsigned char *)bytes, len);
  hp_status st = parse_stream(&b, out);
  if (!st && own.len) st = yaml_repeat_error(own.at[0]); /* whose keys above are known now */
  if (b.has_event) yaml_event_delete(&b.event);
  yaml_parser_delete(&b.parser);
  vec_free(&own);
  vec_free(&b.items);
  vec_free(&b.anchored);
  map_free(&b.anchors);
  return st;
}

static hp_status parse_named(const char *bytes, size_t len, const char *name, yaml_repeats *repeats,
                             tree *out) {
  tree t = {0};
  const char *source = arena_strdup(&t.mem, name);
  hp_status st =
      source ? parse_into(&t.mem, bytes, len, source, true, repeats, &t.root) : HP_ERR_OOM;
  if (st) tree_free(&t);
  else *out = t;
  return st;
}

hp_status yaml_parse(const char *bytes, size_t len, const char *name, tree *out) {
  return parse_named(bytes, len, name, NULL, out);
}

hp_status yaml_parse_value(arena *mem, const char *text, const char *source, yaml_repeats *repeats,
                           tree_node **out) {
  return parse_into(mem, text, strlen(text), source, false, repeats, out);
}

static hp_status load(const char *path, yaml_repeats *repeats, tree *out) {
  char *text;
  size_t len;
  HP_TRY(file_read(path, YAML_SIZE_MAX, &text, &len));
  hp_status st = parse_named(text, len, path, repeats, out);
  mem_free(text);
  return st;
}

hp_status yaml_load_config(const char *path, tree *out, yaml_repeats *repeats) {
  tree t = {0};
  size_t n = strlen(path);
  bool json = n >= 5 && !strcmp(path + n - 5, ".json");
  HP_TRY(json ? json_load(path, YAML_SIZE_MAX, &t) : load(path, repeats, &t));
  if (t.root->kind == TREE_NULL && !json) {
    t.root->kind = TREE_MAP;
    t.root->len = 0;
  }
  hp_status st = tree_expect(t.root, TREE_MAP);
  if (st) tree_free(&t);
  else *out = t;
  return st;
}
