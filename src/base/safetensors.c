#include "base/safetensors.h"

#include "base/hash.h"
#include "base/json.h"
#include "base/vec.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PREFIX = 8, HEADER_MAX = 100000000 };

static const struct {
  const char *name;
  unsigned bits;
} dtypes[ST_DTYPE_COUNT] = {
    [ST_BOOL] = {"BOOL", 8},
    [ST_F4] = {"F4", 4},
    [ST_F6_E2M3] = {"F6_E2M3", 6},
    [ST_F6_E3M2] = {"F6_E3M2", 6},
    [ST_U8] = {"U8", 8},
    [ST_I8] = {"I8", 8},
    [ST_F8_E5M2] = {"F8_E5M2", 8},
    [ST_F8_E4M3] = {"F8_E4M3", 8},
    [ST_F8_E8M0] = {"F8_E8M0", 8},
    [ST_F8_E4M3FNUZ] = {"F8_E4M3FNUZ", 8},
    [ST_F8_E5M2FNUZ] = {"F8_E5M2FNUZ", 8},
    [ST_I16] = {"I16", 16},
    [ST_U16] = {"U16", 16},
    [ST_F16] = {"F16", 16},
    [ST_BF16] = {"BF16", 16},
    [ST_I32] = {"I32", 32},
    [ST_U32] = {"U32", 32},
    [ST_F32] = {"F32", 32},
    [ST_C64] = {"C64", 64},
    [ST_F64] = {"F64", 64},
    [ST_I64] = {"I64", 64},
    [ST_U64] = {"U64", 64},
};

static const st_dtype from_hp[HP_DTYPE_COUNT] =
    {[HP_F32] = ST_F32, [HP_BF16] = ST_BF16, [HP_F16] = ST_F16,  [HP_I32] = ST_I32,
     [HP_I64] = ST_I64, [HP_U8] = ST_U8,     [HP_BOOL] = ST_BOOL};

const char *st_dtype_name(st_dtype t) { return dtypes[t].name; }
unsigned st_dtype_bits(st_dtype t) { return dtypes[t].bits; }
st_dtype st_dtype_from_hp(hp_dtype t) { return from_hp[t]; }

bool st_dtype_to_hp(st_dtype t, hp_dtype *out) {
  for (int i = 0; i < HP_DTYPE_COUNT; i++) {
    if (from_hp[i] != t) continue;
    *out = (hp_dtype)i;
    return true;
  }
  return false;
}

bool st_size(st_dtype t, int rank, const int64_t *dim, uint64_t *out) {
  uint64_t n = 1;
  for (int i = 0; i < rank; i++)
    if (dim[i] < 0 || __builtin_mul_overflow(n, (uint64_t)dim[i], &n)) return false;
  if (__builtin_mul_overflow(n, (uint64_t)dtypes[t].bits, &n) || n % 8) return false;
  *out = n / 8;
  return true;
}

/* --- header --------------------------------------------------------------------------- */

/* A tensor while the header is read. */
typedef struct {
  st_tensor t;
  uint64_t begin, end;
} entry;

typedef struct {
  json_reader in;
  st_file *file;
  VEC(entry) entries;
  VEC(st_pair) pairs;
  VEC(int64_t) numbers; /* of the list that was read last */
} parser;

#define ST_FAIL(p, ...)                                                                            \
  do {                                                                                             \
    char text_[512];                                                                               \
    snprintf(text_, sizeof text_, __VA_ARGS__);                                                    \
    HP_FAIL(HP_ERR_INPUT, "%s: %s", (p)->file->path, text_);                                       \
  } while (0)

static hp_status expect(parser *p, json_token *t, json_kind kind, const char *wanted) {
  HP_TRY(json_next(&p->in, t));
  return t->kind == kind ? HP_OK : json_unexpected(&p->in, t, wanted);
}

/* The string of a token, kept; a NUL inside is refused, as names end at it. */
static hp_status keep_string(parser *p, const json_token *t, const char **out) {
  if (t->kind != JSON_T_STRING) return json_unexpected(&p->in, t, "a string");
  if (memchr(t->text, 0, t->len)) ST_FAIL(p, "header: a text holds a NUL character");
  char *s = arena_strndup(&p->file->mem, t->text, t->len);
  HP_TRY_MEM(s);
  *out = s;
  return HP_OK;
}

/* After a value: true when a comma follows, false at the closing token. */
static hp_status more(parser *p, json_kind close, bool *out) {
  json_token t;
  HP_TRY(json_next(&p->in, &t));
  if (t.kind != close && t.kind != JSON_T_COMMA)
    return json_unexpected(&p->in, &t, close == JSON_T_CLOSE_MAP ? "',' or '}'" : "',' or ']'");
  *out = t.kind == JSON_T_COMMA;
  return HP_OK;
}

/* Iterates over the keys of a map whose '{' was read: the next key and its ':', or *done. */
static hp_status next_key(parser *p, bool *first, json_token *key, const char **kept, bool *done) {
  bool again = true;
  if (!*first) HP_TRY(more(p, JSON_T_CLOSE_MAP, &again));
  *done = !again;
  if (*done) return HP_OK;
  HP_TRY(json_next(&p->in, key));
  if (*first && key->kind == JSON_T_CLOSE_MAP) {
    *done = true;
    return HP_OK;
  }
  *first = false;
  if (key->kind != JSON_T_STRING) return json_unexpected(&p->in, key, "a key in double quotes");
  HP_TRY(keep_string(p, key, kept));
  json_token colon;
  return expect(p, &colon, JSON_T_COLON, "':' after the key");
}

/* [1, 2, ...] of whole numbers from 0 into p->numbers. */
static hp_status read_numbers(parser *p, const char *tensor, const char *what) {
  json_token t;
  HP_TRY(expect(p, &t, JSON_T_OPEN_LIST, "a list of numbers"));
  p->numbers.len = 0;
  for (bool again = true; again;) {
    HP_TRY(json_next(&p->in, &t));
    if (!p->numbers.len && t.kind == JSON_T_CLOSE_LIST) return HP_OK;
    bool minus = t.kind == JSON_T_INT && p->in.text[p->in.line_start + t.column - 1] == '-';
    if (t.kind != JSON_T_INT || minus)
      ST_FAIL(p, "tensor \"%.100s\": %s holds something that is no integer from 0 to 2^63-1",
              tensor, what);
    if (p->numbers.len == ST_RANK_MAX)
      ST_FAIL(p, "tensor \"%.100s\": %s has more than %d numbers", tensor, what, ST_RANK_MAX);
    if (!vec_push(&p->numbers, t.integer)) return HP_ERR_OOM;
    HP_TRY(more(p, JSON_T_CLOSE_LIST, &again));
  }
  return HP_OK;
}

/* Reads past a value that starts with t, of a key that the format does not know. */
static hp_status skip_value(parser *p, json_token *t, int depth) {
  bool is_map = t->kind == JSON_T_OPEN_MAP, first = true, done = false, again = true;
  if (!is_map && t->kind != JSON_T_OPEN_LIST)
    return t->kind == JSON_T_END || t->kind > JSON_T_STRING ? json_unexpected(&p->in, t, "a value")
                                                            : HP_OK;
  if (depth == TREE_DEPTH_MAX) ST_FAIL(p, "header: more than %d levels", TREE_DEPTH_MAX);
  while (is_map) {
    const char *key;
    HP_TRY(next_key(p, &first, t, &key, &done));
    if (done) return HP_OK;
    HP_TRY(json_next(&p->in, t));
    HP_TRY(skip_value(p, t, depth + 1));
  }
  for (; again; first = false) {
    HP_TRY(json_next(&p->in, t));
    if (first && t->kind == JSON_T_CLOSE_LIST) return HP_OK;
    HP_TRY(skip_value(p, t, depth + 1));
    HP_TRY(more(p, JSON_T_CLOSE_LIST, &again));
  }
  return HP_OK;
}

static hp_status read_metadata(parser *p) {
  json_token t;
  bool first = true, done;
  HP_TRY(json_next(&p->in, &t));
  if (t.kind == JSON_T_NULL) return HP_OK;
  if (t.kind != JSON_T_OPEN_MAP)
    return json_unexpected(&p->in, &t, "a map of strings as __metadata__");
  for (;;) {
    st_pair pair = {NULL, NULL};
    HP_TRY(next_key(p, &first, &t, &pair.key, &done));
    if (done) return HP_OK;
    HP_TRY(json_next(&p->in, &t));
    HP_TRY(keep_string(p, &t, &pair.value));
    if (!vec_push(&p->pairs, pair)) return HP_ERR_OOM;
  }
}

static hp_status read_dtype(parser *p, const char *tensor, st_dtype *out) {
  json_token t;
  HP_TRY(expect(p, &t, JSON_T_STRING, "a dtype as a string"));
  for (int i = 0; i < ST_DTYPE_COUNT; i++) {
    if (strlen(dtypes[i].name) != t.len || memcmp(dtypes[i].name, t.text, t.len)) continue;
    *out = (st_dtype)i;
    return HP_OK;
  }
  ST_FAIL(p, "tensor \"%.100s\": unknown dtype \"%.*s\"", tensor, t.len < 40 ? (int)t.len : 40,
          t.text);
}

static hp_status read_tensor(parser *p, const char *name) {
  json_token t;
  entry e = {.t.name = name};
  bool first = true, done, has[3] = {false, false, false};
  HP_TRY(expect(p, &t, JSON_T_OPEN_MAP, "a map with dtype, shape and data_offsets"));
  for (;;) {
    const char *key = NULL;
    HP_TRY(next_key(p, &first, &t, &key, &done));
    if (done) break;
    int field = !strcmp(key, "dtype")          ? 0
                : !strcmp(key, "shape")        ? 1
                : !strcmp(key, "data_offsets") ? 2
                                               : 3;
    if (field < 3 && has[field]) ST_FAIL(p, "tensor \"%.100s\": %s is given twice", name, key);
    if (field < 3) has[field] = true;
    if (field == 0) {
      HP_TRY(read_dtype(p, name, &e.t.dtype));
    } else if (field == 1) {
      HP_TRY(read_numbers(p, name, "shape"));
      e.t.rank = (int)p->numbers.len;
      int64_t *dim = arena_alloc(&p->file->mem, p->numbers.len, sizeof *dim);
      HP_TRY_MEM(dim);
      if (e.t.rank) memcpy(dim, p->numbers.at, p->numbers.len * sizeof *dim);
      e.t.dim = dim;
    } else if (field == 2) {
      HP_TRY(read_numbers(p, name, "data_offsets"));
      if (p->numbers.len != 2)
        ST_FAIL(p, "tensor \"%.100s\": data_offsets is not [begin, end]", name);
      e.begin = (uint64_t)p->numbers.at[0];
      e.end = (uint64_t)p->numbers.at[1];
    } else {
      HP_TRY(json_next(&p->in, &t));
      HP_TRY(skip_value(p, &t, 0));
    }
  }
  static const char *const fields[] = {"dtype", "shape", "data_offsets"};
  for (int i = 0; i < 3; i++)
    if (!has[i]) ST_FAIL(p, "tensor \"%.100s\": %s is missing", name, fields[i]);
  return vec_push(&p->entries, e) ? HP_OK : HP_ERR_OOM;
}

static hp_status read_header(parser *p) {
  json_token t;
  bool first = true, done, metadata = false;
  if (!p->in.len || p->in.text[0] != '{')
    ST_FAIL(p, "the header does not start with '{'; this is no safetensors file, or it is damaged");
  HP_TRY(json_next(&p->in, &t));
  for (;;) {
    const char *name = NULL;
    HP_TRY(next_key(p, &first, &t, &name, &done));
    if (done) break;
    if (strcmp(name, "__metadata__")) {
      HP_TRY(read_tensor(p, name));
    } else {
      if (metadata) ST_FAIL(p, "__metadata__ is given twice");
      metadata = true;
      HP_TRY(read_metadata(p));
    }
  }
  return expect(p, &t, JSON_T_END, "nothing but spaces after the header");
}

/* --- checks --------------------------------------------------------------------------- */

static int by_offset(const void *a, const void *b) {
  const entry *x = a, *y = b;
  if (x->begin != y->begin) return x->begin < y->begin ? -1 : 1;
  return x->end < y->end ? -1 : x->end > y->end;
}

/* Every tensor has the bytes that its dtype and shape ask for, and together they are the data. */
static hp_status check_offsets(parser *p, uint64_t data_len) {
  bool sorted = true;
  for (size_t i = 1; i < p->entries.len && sorted; i++)
    sorted = by_offset(&p->entries.at[i - 1], &p->entries.at[i]) <= 0;
  if (!sorted) qsort(p->entries.at, p->entries.len, sizeof *p->entries.at, by_offset);
  uint64_t at = 0;
  for (size_t i = 0; i < p->entries.len; i++) {
    entry *e = &p->entries.at[i];
    unsigned long long begin = e->begin, end = e->end, size = 0;
    uint64_t want;
    if (!st_size(e->t.dtype, e->t.rank, e->t.dim, &want))
      ST_FAIL(p,
              "tensor \"%.100s\": its dtype and shape give no size in whole bytes that 64 bits "
              "can hold; the file is damaged",
              e->t.name);
    size = want;
    if (end < begin || end > data_len)
      ST_FAIL(p,
              "tensor \"%.100s\": data_offsets [%llu, %llu] are outside the %llu bytes of data; "
              "the file is truncated or damaged",
              e->t.name, begin, end, (unsigned long long)data_len);
    if (end - begin != size)
      ST_FAIL(p, "tensor \"%.100s\": data_offsets give %llu bytes, but %s and its shape need %llu",
              e->t.name, end - begin, dtypes[e->t.dtype].name, size);
    if (begin != at)
      ST_FAIL(p,
              "tensor \"%.100s\": its data starts at %llu, but the tensor before it ends at %llu; "
              "expected no gaps and no overlaps, the file is damaged",
              e->t.name, begin, (unsigned long long)at);
    at = end;
  }
  if (at != data_len)
    ST_FAIL(p, "the tensors need %llu bytes of data, the file has %llu; it is truncated or damaged",
            (unsigned long long)at, (unsigned long long)data_len);
  return HP_OK;
}

static uint32_t *find_slot(const st_file *f, const char *name) {
  for (size_t i = hash_bytes(name, strlen(name)) & (f->slots - 1);; i = (i + 1) & (f->slots - 1)) {
    uint32_t *slot = &f->slot[i];
    if (!*slot || !strcmp(f->tensor[*slot - 1].name, name)) return slot;
  }
}

/* Moves the entries to their final form and indexes them by name. */
static hp_status index_tensors(parser *p, const unsigned char *data) {
  st_file *f = p->file;
  f->n = p->entries.len;
  if (f->n > UINT32_MAX / 4) ST_FAIL(p, "%zu tensors are too many", f->n);
  for (f->slots = 8; f->slots < 2 * f->n;) f->slots *= 2;
  f->tensor = arena_alloc(&f->mem, f->n, sizeof *f->tensor);
  f->slot = arena_alloc(&f->mem, f->slots, sizeof *f->slot);
  f->metadata = arena_alloc(&f->mem, p->pairs.len, sizeof *f->metadata);
  if (!f->tensor || !f->slot || !f->metadata) return HP_ERR_OOM;
  f->n_metadata = p->pairs.len;
  if (p->pairs.len) memcpy(f->metadata, p->pairs.at, p->pairs.len * sizeof *f->metadata);
  for (size_t i = 0; i < f->n; i++) {
    const entry *e = &p->entries.at[i];
    f->tensor[i] = e->t;
    f->tensor[i].bytes = (size_t)(e->end - e->begin);
    f->tensor[i].data = data + e->begin;
    uint32_t *slot = find_slot(f, e->t.name);
    if (*slot) ST_FAIL(p, "tensor \"%.100s\" is there twice", e->t.name);
    *slot = (uint32_t)i + 1;
  }
  map keys = {0};
  hp_status st = HP_OK;
  for (size_t i = 0; i < f->n_metadata && !st; i++) {
    uint32_t seen;
    const char *key = f->metadata[i].key;
    if (map_get(&keys, key, strlen(key), &seen))
      st = err_set(HP_ERR_INPUT, __FILE__, __LINE__, "%s: __metadata__ has \"%.100s\" twice",
                   f->path, key);
    else st = map_set(&keys, key, strlen(key), 1);
  }
  map_free(&keys);
  return st;
}

hp_status st_parse(const void *bytes, size_t len, const char *name, st_file *out) {
  const unsigned char *at = bytes;
  uint64_t header = 0;
  if (!len) HP_FAIL(HP_ERR_INPUT, "%s: is empty; was a save or a download interrupted?", name);
  if (len < PREFIX)
    HP_FAIL(HP_ERR_INPUT, "%s: %zu bytes are too few for a safetensors file", name, len);
  for (int i = PREFIX - 1; i >= 0; i--) header = header << 8 | at[i];
  if (header > HEADER_MAX)
    HP_FAIL(HP_ERR_INPUT,
            "%s: a header of %llu bytes, more than the %d the format allows; this is no "
            "safetensors file, or it is damaged",
            name, (unsigned long long)header, HEADER_MAX);
  if (header > len - PREFIX)
    HP_FAIL(HP_ERR_INPUT,
            "%s: the header should have %llu bytes, but the file ends after %zu; it is "
            "truncated or damaged",
            name, (unsigned long long)header, len);
  st_file f = {0};
  str where = {0};
  parser p = {.file = &f};
  hp_status st = HP_OK;
  f.path = arena_strdup(&f.mem, name);
  str_printf(&where, "%s: header", name);
  if (!f.path || str_status(&where)) st = HP_ERR_OOM;
  p.in = (json_reader){.name = where.at, .text = (const char *)at + PREFIX, .len = (size_t)header};
  if (!st) HP_TRY_GOTO(read_header(&p), st);
  if (!st) HP_TRY_GOTO(check_offsets(&p, len - PREFIX - header), st);
  if (!st) HP_TRY_GOTO(index_tensors(&p, at + PREFIX + header), st);
done:
  json_reader_free(&p.in);
  vec_free(&p.entries);
  vec_free(&p.pairs);
  vec_free(&p.numbers);
  str_free(&where);
  if (st) arena_free(&f.mem);
  else *out = f;
  return st;
}

hp_status st_open(const char *path, st_file *out) {
  file_map m;
  HP_TRY(file_map_open(path, &m));
  hp_status st = st_parse(m.len ? m.at : (const unsigned char *)"", m.len, path, out);
  if (st) file_map_close(&m);
  else out->map = m;
  return st;
}

void st_close(st_file *f) {
  file_map_close(&f->map);
  arena_free(&f->mem);
  *f = (st_file){0};
}

const st_tensor *st_find(const st_file *f, const char *name) {
  if (!f->slots) return NULL;
  uint32_t slot = *find_slot(f, name);
  return slot ? &f->tensor[slot - 1] : NULL;
}
