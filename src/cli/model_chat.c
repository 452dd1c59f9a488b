#include "cli/model_chat.h"

static void find_tokens(model_chat *c) {
  enum { ROLES = TOKEN_MASK + 1 };
  static const char *const name[ROLES] =
      {[TOKEN_BOS] = "bos_token",  [TOKEN_EOS] = "eos_token", [TOKEN_PAD] = "pad_token",
       [TOKEN_UNK] = "unk_token",  [TOKEN_SEP] = "sep_token", [TOKEN_CLS] = "cls_token",
       [TOKEN_MASK] = "mask_token"};
  for (int i = 0; i < ROLES; i++) {
    template_variable v = {.name = name[i]};
    v.text = tokenizer_token(c->t, tokenizer_role(c->t, (token_role)i), &v.len);
    if (v.text) c->variable[c->n++] = v;
  }
}

hp_status model_chat_open(const char *model, const tokenizer *t, model_chat *out) {
  model_chat c = {.t = t};
  HP_TRY(model_template_load(model, &c.of));
  find_tokens(&c);
  *out = c;
  return HP_OK;
}

void model_chat_close(model_chat *c) { model_template_free(&c->of); }

void model_chat_set_thinking(model_chat *c, bool thinks) {
  c->variable[c->n++] = (template_variable){.name = "enable_thinking", .boolean = thinks};
}

hp_status model_chat_encode(const model_chat *c, tree *conversation, token_ids *out) {
  str text = {0};
  hp_status st = model_template_render(&c->of, conversation, c->variable, c->n, true, &text);
  /* the template writes the special tokens */
  if (!st) st = tokenizer_encode(c->t, text.at ? text.at : "", text.len, 0, out);
  str_free(&text);
  return st;
}
