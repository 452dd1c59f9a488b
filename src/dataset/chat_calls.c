/* Calls of tools. */
#include "dataset/chat_tools.h"

#include "base/json.h"

#include <stdlib.h>
#include <string.h>

hp_status chat_write_calls(tool_format f, const tool_call *call, size_t n, str *out) {
  static tool_call_writer *const of[] = {
#define FORMAT(name) calls_##name,
#include "dataset/tool_formats.def"
#undef FORMAT
  };
  for (size_t i = 0; i < n; i++) HP_TRY(tree_expect(call[i].name, TREE_STRING));
  HP_TRY(of[f](call, n, out));
  return str_status(out);
}

/* {"name": NAME, KEY: ARGUMENTS} */
static void put_call(str *out, const tool_call *c, const char *key) {
  json_writer w = {.out = out, .utf8 = true};
  json_open_map(&w);
  json_put_key(&w, "name");
  json_put_tree(&w, c->name);
  json_put_key(&w, key);
  json_put_tree(&w, c->arguments);
  json_close(&w);
}

hp_status calls_default(const tool_call *call, size_t n, str *out) {
  for (size_t i = 0; i < n; i++) {
    str_add(out, i ? "\nAction: " : "Action: ");
    tool_put_value(out, call[i].name);
    str_add(out, "\nAction Input: ");
    tool_put_json(out, call[i].arguments, 0);
  }
  return HP_OK;
}

hp_status calls_glm4(const tool_call *call, size_t n, str *out) {
  if (n > 1) TREE_FAIL(call[1].name, "a second call: this template writes one call a message");
  tool_put_value(out, call->name);
  str_add_char(out, '\n');
  tool_put_json(out, call->arguments, 0);
  return HP_OK;
}

hp_status calls_llama3(const tool_call *call, size_t n, str *out) {
  str_add(out, n == 1 ? "" : "[");
  for (size_t i = 0; i < n; i++) {
    str_add(out, i ? ", " : "");
    put_call(out, &call[i], "parameters");
  }
  str_add(out, n == 1 ? "" : "]");
  return HP_OK;
}

hp_status calls_mistral(const tool_call *call, size_t n, str *out) {
  str_add_char(out, '[');
  for (size_t i = 0; i < n; i++) {
    str_add(out, i ? ", " : "");
    put_call(out, &call[i], "arguments");
  }
  str_add_char(out, ']');
  return HP_OK;
}

hp_status calls_qwen(const tool_call *call, size_t n, str *out) {
  for (size_t i = 0; i < n; i++) {
    str_add(out, i ? "\n<tool_call>\n" : "<tool_call>\n");
    put_call(out, &call[i], "arguments");
    str_add(out, "\n</tool_call>");
  }
  return HP_OK;
}

hp_status calls_ling(const tool_call *call, size_t n, str *out) { return calls_qwen(call, n, out); }

hp_status calls_minimax1(const tool_call *call, size_t n, str *out) {
  str_add(out, "<tool_calls>\n");
  for (size_t i = 0; i < n; i++) {
    str_add(out, i ? "\n" : "");
    put_call(out, &call[i], "arguments");
  }
  str_add(out, "\n</tool_calls>");
  return HP_OK;
}

/* The texts around the parts of a call, whose arguments are written one by one. */
typedef struct {
  const char *between, *open, *named; /* between calls, before and behind the name */
  const char *key, *value, *end;      /* before and behind a key, behind its value */
  const char *close;
} call_words;

static hp_status put_words(const tool_call *call, size_t n, const call_words *w, str *out) {
  for (size_t i = 0; i < n; i++) {
    const tree_node *arguments = call[i].arguments;
    HP_TRY(tree_expect(arguments, TREE_MAP));
    str_add(out, i ? w->between : "");
    str_add(out, w->open);
    tool_put_value(out, call[i].name);
    str_add(out, w->named);
    for (uint32_t k = 0; k < arguments->len; k++) {
      str_add(out, w->key);
      str_add_n(out, arguments->child[k]->key, arguments->child[k]->key_len);
      str_add(out, w->value);
      tool_put_value(out, arguments->child[k]);
      str_add(out, w->end);
    }
    str_add(out, w->close);
  }
  return HP_OK;
}

hp_status calls_minimax2(const tool_call *call, size_t n, str *out) {
  static const call_words w = {"\n",  "<invoke name=\"", "\">",        "\n<parameter name=\"",
                               "\">", "</parameter>",    "\n</invoke>"};
  return put_words(call, n, &w, out);
}

hp_status calls_qwen3_5(const tool_call *call, size_t n, str *out) {
  static const call_words w = {"\n",
                               "<tool_call>\n<function=",
                               ">",
                               "\n<parameter=",
                               ">\n",
                               "\n</parameter>",
                               "\n</function>\n</tool_call>"};
  return put_words(call, n, &w, out);
}

hp_status calls_glm4_moe(const tool_call *call, size_t n, str *out) {
  static const call_words w =
      {"\n", "\n<tool_call>", "", "\n<arg_key>", "</arg_key>\n<arg_value>", "</arg_value>", ""};
  return put_words(call, n, &w, out);
}

/* As LlamaFactory writes it: the name has no closing bracket. */
hp_status calls_seed_oss(const tool_call *call, size_t n, str *out) {
  static const call_words w =
      {"\n",           "\n<seed:tool_call>\n<function=",  "", "\n<parameter=", ">",
       "</parameter>", "\n</function>\n</seed:tool_call>"};
  return put_words(call, n, &w, out);
}

hp_status calls_lfm2(const tool_call *call, size_t n, str *out) {
  str_add(out, "<|tool_call_start|>[");
  for (size_t i = 0; i < n; i++) {
    const tree_node *arguments = call[i].arguments;
    HP_TRY(tree_expect(arguments, TREE_MAP));
    str_add(out, i ? ", " : "");
    tool_put_value(out, call[i].name);
    str_add_char(out, '(');
    for (uint32_t k = 0; k < arguments->len; k++) {
      const tree_node *v = arguments->child[k];
      const char *quote = v->kind == TREE_STRING ? "\"" : "";
      str_printf(out, "%s%s=%s", k ? ", " : "", v->key, quote);
      tool_put_value(out, v);
      str_add(out, quote);
    }
    str_add_char(out, ')');
  }
  str_add(out, "]<|tool_call_end|>");
  return HP_OK;
}

/* --- Gemma 4 ---------------------------------------------------------------------------------- */

static int by_key(const void *a, const void *b) {
  const tree_node *const *x = a, *const *y = b;
  return strcmp((*x)->key, (*y)->key);
}

static hp_status put_gemma4_value(str *out, const tree_node *v);

/* The members of a map by key, with commas between. */
static hp_status put_gemma4_members(str *out, const tree_node *m) {
  tree_node **sorted = mem_calloc(m->len ? m->len : 1, sizeof *sorted);
  HP_TRY_MEM(sorted);
  if (m->len) memcpy(sorted, m->child, m->len * sizeof *sorted);
  qsort(sorted, m->len, sizeof *sorted, by_key);
  hp_status st = HP_OK;
  for (uint32_t i = 0; i < m->len && !st; i++) {
    str_printf(out, "%s%s:", i ? "," : "", sorted[i]->key);
    st = put_gemma4_value(out, sorted[i]);
  }
  mem_free(sorted);
  return st;
}

static hp_status put_gemma4_value(str *out, const tree_node *v) {
  if (v->kind == TREE_STRING) {
    str_add(out, "<|\"|>");
    tool_put_value(out, v);
    str_add(out, "<|\"|>");
  } else if (v->kind == TREE_MAP) {
    str_add_char(out, '{');
    HP_TRY(put_gemma4_members(out, v));
    str_add_char(out, '}');
  } else if (v->kind == TREE_LIST) {
    str_add_char(out, '[');
    for (uint32_t i = 0; i < v->len; i++) {
      str_add(out, i ? "," : "");
      HP_TRY(put_gemma4_value(out, v->child[i]));
    }
    str_add_char(out, ']');
  } else {
    tool_put_json(out, v, 0);
  }
  return HP_OK;
}

hp_status calls_gemma4(const tool_call *call, size_t n, str *out) {
  for (size_t i = 0; i < n; i++) {
    str_add(out, "<|tool_call>call:");
    tool_put_value(out, call[i].name);
    str_add_char(out, '{');
    if (call[i].arguments->kind == TREE_MAP) HP_TRY(put_gemma4_members(out, call[i].arguments));
    else if (call[i].arguments->kind == TREE_STRING) tool_put_value(out, call[i].arguments);
    else HP_TRY(put_gemma4_value(out, call[i].arguments));
    str_add(out, "}<tool_call|>");
  }
  return HP_OK;
}
