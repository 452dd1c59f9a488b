#include "data/tok_post.h"

#include "data/tok_vocab.h"

#include <stdio.h>
#include <string.h>

enum { TEXTS_MAX = 8 }; /* how often a template may repeat its text */

static hp_status add_id(const char *file, const tj_node *node, tok_post *out) {
  if (node->kind != TJ_INT || node->integer < 0 || node->integer > TOK_ID_MAX)
    HP_FAIL(HP_ERR_INPUT, "%s:%u: an id of the post-processor is not a whole number from 0 to %d", file,
            node->line, TOK_ID_MAX);
  return vec_push(&out->item, (int32_t)node->integer) ? HP_OK : HP_ERR_OOM;
}

static hp_status add_special(const tj_reader *r, const tj_node *piece, const tj_node *specials,
                             tok_post *out) {
  tj_reader inner = {r->file, "a SpecialToken", piece};
  const tj_node *id, *ids, *entry = NULL;
  if (piece->kind == TJ_MAP) HP_TRY(tj_get_kind(&inner, "id", TJ_TEXT, &id));
  else HP_FAIL(HP_ERR_INPUT, "%s:%u: a SpecialToken is not an object", r->file, piece->line);
  for (size_t i = 0; i < specials->items.n && !entry; i++) {
    const tj_node *s = &specials->items.at[i];
    if (s->key_len == id->text.len && !memcmp(s->key, id->text.at, s->key_len)) entry = s;
  }
  if (!entry)
    HP_FAIL(HP_ERR_INPUT, "%s:%u: \"special_tokens\" of %s has no \"%.*s\", which its template uses",
            r->file, id->line, r->what, id->text.len > 80 ? 80 : (int)id->text.len, id->text.at);
  tj_reader special = {r->file, "a special token of the post-processor", entry};
  HP_TRY(tj_get_kind(&special, "ids", TJ_LIST, &ids));
  for (size_t i = 0; i < ids->items.n; i++) HP_TRY(add_id(r->file, &ids->items.at[i], out));
  return HP_OK;
}

static hp_status parse_template(const tj_reader *r, tok_post *out) {
  const tj_node *single, *specials;
  int texts = 0;
  HP_TRY(tj_get_kind(r, "single", TJ_LIST, &single));
  HP_TRY(tj_get_kind(r, "special_tokens", TJ_MAP, &specials));
  for (size_t i = 0; i < single->items.n; i++) {
    const tj_node *piece = &single->items.at[i];
    const tj_node *special = tj_find(piece, "SpecialToken"), *sequence = tj_find(piece, "Sequence");
    if (special) {
      HP_TRY(add_special(r, special, specials, out));
      continue;
    }
    if (!sequence || !tj_is(tj_find(sequence, "id"), "A"))
      HP_FAIL(HP_ERR_INPUT,
              "%s:%u: a piece of the template \"single\" is neither a SpecialToken nor Sequence A", r->file,
              piece->line);
    if (++texts > TEXTS_MAX)
      HP_FAIL(HP_ERR_UNSUPPORTED, "%s:%u: the template repeats its text more than %d times", r->file,
              piece->line, TEXTS_MAX);
    if (!vec_push(&out->item, TOK_POST_TEXT)) return HP_ERR_OOM;
  }
  return HP_OK;
}

/* "cls": [token, id] text "sep": [token, id] */
static hp_status parse_bert(const tj_reader *r, tok_post *out) {
  static const char *const key[] = {"cls", "sep"};
  for (int i = 0; i < 2; i++) {
    const tj_node *pair;
    HP_TRY(tj_get_kind(r, key[i], TJ_LIST, &pair));
    if (pair->items.n != 2)
      HP_FAIL(HP_ERR_INPUT, "%s:%u: \"%s\" of %s is not [token, id]", r->file, pair->line, key[i], r->what);
    HP_TRY(add_id(r->file, &pair->items.at[1], out));
    if (!i && !vec_push(&out->item, TOK_POST_TEXT)) return HP_ERR_OOM;
  }
  return HP_OK;
}

static hp_status parse(const char *file, const tj_node *node, tok_post *out) {
  tj_reader r = {file, "a post-processor", node};
  const tj_node *type, *list;
  HP_TRY(tj_get_kind(&r, "type", TJ_TEXT, &type));
  char what[80];
  snprintf(what, sizeof what, "post-processor %.*s", type->text.len > 40 ? 40 : (int)type->text.len,
           type->text.at);
  r.what = what;
  if (tj_is(type, "ByteLevel")) return HP_OK; /* changes offsets only */
  if (tj_is(type, "Sequence")) {
    HP_TRY(tj_get_kind(&r, "processors", TJ_LIST, &list));
    for (size_t i = 0; i < list->items.n; i++) HP_TRY(parse(file, &list->items.at[i], out));
    return HP_OK;
  }
  bool is_template = tj_is(type, "TemplateProcessing");
  if (!is_template && !tj_is(type, "BertProcessing") && !tj_is(type, "RobertaProcessing"))
    HP_FAIL(HP_ERR_UNSUPPORTED,
            "%s:%u: %s is not supported; expected TemplateProcessing, ByteLevel, BertProcessing, "
            "RobertaProcessing or Sequence",
            file, type->line, what);
  if (out->item.len)
    HP_FAIL(HP_ERR_UNSUPPORTED, "%s:%u: %s follows another that adds tokens; expected one at most", file,
            type->line, what);
  return is_template ? parse_template(&r, out) : parse_bert(&r, out);
}

hp_status tok_post_parse(const char *file, const tj_node *node, tok_post *out) {
  if (!node || node->kind == TJ_NULL) return HP_OK;
  if (node->kind != TJ_MAP)
    HP_FAIL(HP_ERR_INPUT, "%s:%u: \"post_processor\" is %s; expected an object", file, node->line,
            tj_kind_name(node->kind));
  hp_status st = parse(file, node, out);
  if (st) tok_post_free(out);
  return st;
}

void tok_post_free(tok_post *p) { vec_free(&p->item); }
