#include "tok/tok_post.h"

#include "tok/tok_vocab.h"

#include <string.h>

enum { TEXTS_MAX = 8 }; /* how often a template may repeat its text */

static hp_status add_id(const tree_node *node, tok_post *out) {
  int64_t id;
  HP_TRY(tree_as_int(node, &id));
  if (id < 0 || id > TOK_ID_MAX) TREE_FAIL(node, "expected an id, 0 to %d", TOK_ID_MAX);
  return vec_push(&out->item, (int32_t)id) ? HP_OK : HP_ERR_OOM;
}

static hp_status add_special(const tree_node *piece, const tree_node *specials, tok_post *out) {
  const tree_node *id, *ids;
  HP_TRY(tok_need_text(piece, "id", &id));
  const tree_node *entry = tree_get_n(specials, id->string, id->len);
  if (!entry)
    TREE_FAIL(id, "%s is not among the \"special_tokens\" of the template", tree_what(id).text);
  HP_TRY(tree_need_list(entry, "ids", &ids));
  for (size_t i = 0; i < ids->len; i++) HP_TRY(add_id(ids->child[i], out));
  return HP_OK;
}

static hp_status parse_template(const tree_node *r, tok_post *out) {
  const tree_node *single, *specials;
  int texts = 0;
  HP_TRY(tree_need_list(r, "single", &single));
  HP_TRY(tree_need_map(r, "special_tokens", &specials));
  for (size_t i = 0; i < single->len; i++) {
    const tree_node *piece = single->child[i];
    const tree_node *special = tok_get(piece, "SpecialToken"),
                    *sequence = tok_get(piece, "Sequence");
    if (special) {
      HP_TRY(add_special(special, specials, out));
      continue;
    }
    if (!sequence || !tok_is(tok_get(sequence, "id"), "A"))
      TREE_FAIL(piece, "expected a SpecialToken or Sequence A, found %s", tree_what(piece).text);
    if (++texts > TEXTS_MAX)
      TREE_FAIL(piece, "the template repeats its text more than %d times", TEXTS_MAX);
    if (!vec_push(&out->item, TOK_POST_TEXT)) return HP_ERR_OOM;
  }
  return HP_OK;
}

/* "cls": [token, id] text "sep": [token, id] */
static hp_status parse_bert(const tree_node *r, tok_post *out) {
  static const char *const key[] = {"cls", "sep"};
  for (int i = 0; i < 2; i++) {
    const tree_node *pair;
    HP_TRY(tree_need_list(r, key[i], &pair));
    if (pair->len != 2) TREE_FAIL(pair, "expected [token, id], found %s", tree_what(pair).text);
    HP_TRY(add_id(pair->child[1], out));
    if (!i && !vec_push(&out->item, TOK_POST_TEXT)) return HP_ERR_OOM;
  }
  return HP_OK;
}

static hp_status parse_post(const tree_node *node, tok_post *out) {
  const tree_node *type, *list;
  HP_TRY(tok_type(node, "a post-processor", &type));
  if (tok_is(type, "ByteLevel")) return HP_OK; /* changes offsets only */
  if (tok_is(type, "Sequence")) {
    HP_TRY(tree_need_list(node, "processors", &list));
    for (size_t i = 0; i < list->len; i++) HP_TRY(parse_post(list->child[i], out));
    return HP_OK;
  }
  bool is_template = tok_is(type, "TemplateProcessing");
  if (!is_template && !tok_is(type, "BertProcessing") && !tok_is(type, "RobertaProcessing"))
    return tok_unknown(
        type, "post-processor",
        "TemplateProcessing, ByteLevel, BertProcessing, RobertaProcessing or Sequence");
  if (out->item.len)
    TREE_FAIL(type, "a second post-processor that adds tokens; expected one at most");
  return is_template ? parse_template(node, out) : parse_bert(node, out);
}

hp_status tok_post_parse(const tree_node *node, tok_post *out) {
  if (!node) return HP_OK;
  hp_status st = parse_post(node, out);
  if (st) tok_post_free(out);
  return st;
}

void tok_post_free(tok_post *p) { vec_free(&p->item); }
