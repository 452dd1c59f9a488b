/* The format of conversations: columns and tags of an entry of dataset_info.json. */
#include "dataset/chat.h"

#include <string.h>

static hp_status read_formatting(const tree_node *entry, chat_formatting *out) {
  static const char *const known[] = {"alpaca", "sharegpt", "openai"};
  const char *name;
  HP_TRY(tree_opt_string(entry, "formatting", "alpaca", &name));
  for (int i = 0; i < 3; i++)
    if (!strcmp(name, known[i])) {
      *out = (chat_formatting)i;
      return HP_OK;
    }
  TREE_FAIL(tree_get(entry, "formatting"), "\"%s\": expected alpaca, sharegpt or openai", name);
}

/* What LlamaFactory takes where an entry has no "columns", or no "tags". */
static void set_columns(chat_format *f) {
  f->prompt = "instruction";
  f->query = "input";
  f->response = "output";
  f->messages = "conversations";
}

static void set_tags(chat_format *f) {
  f->role_tag = "from";
  f->content_tag = "value";
  f->user_tag = "human";
  f->assistant_tag = "gpt";
  f->observation_tag = "observation";
  f->function_tag = "function_call";
  f->system_tag = "system";
}

static hp_status read_columns(const tree_node *of, chat_format *f) {
#define TAG(name)
  static const char *const known[] = {
#define COLUMN(name) #name,
#include "dataset/chat_columns.def"
#undef COLUMN
  };
  HP_TRY(tree_check_keys(of, known, sizeof known / sizeof *known));
#define COLUMN(name) HP_TRY(tree_opt_string(of, #name, NULL, &f->name));
#include "dataset/chat_columns.def"
#undef COLUMN
#undef TAG
  f->columns = true;
  return HP_OK;
}

static hp_status read_tags(const tree_node *of, chat_format *f) {
#define COLUMN(name)
  static const char *const known[] = {
#define TAG(name) #name,
#include "dataset/chat_columns.def"
#undef TAG
  };
  HP_TRY(tree_check_keys(of, known, sizeof known / sizeof *known));
#define TAG(name) HP_TRY(tree_opt_string(of, #name, NULL, &f->name));
#include "dataset/chat_columns.def"
#undef TAG
#undef COLUMN
  return HP_OK;
}

/* Columns without which the format has no conversation. */
static hp_status check_columns(const tree_node *entry, const chat_format *f) {
  bool turns = f->formatting != CHAT_ALPACA;
  const char *missing = NULL;
  if (turns && !f->messages) missing = "messages";
  if (!turns && !f->prompt) missing = "prompt";
  if (f->ranking && !f->chosen) missing = "chosen";
  if (f->ranking && !f->rejected) missing = "rejected";
  if (!turns && !f->ranking && !f->response) missing = "response";
  if (missing)
    TREE_FAIL(entry, "\"columns\" has no \"%s\": the name of the column that holds it", missing);
  if (turns && (!f->role_tag || !f->content_tag || !f->user_tag || !f->assistant_tag))
    TREE_FAIL(entry, "\"tags\" needs role_tag, content_tag, user_tag and assistant_tag");
  return HP_OK;
}

hp_status chat_format_read(const tree_node *entry, chat_format *out) {
  chat_format f = {.guess = !entry};
  const tree_node *columns, *tags;
  set_columns(&f);
  set_tags(&f);
  *out = f;
  if (!entry) return HP_OK;
  HP_TRY(read_formatting(entry, &f.formatting));
  HP_TRY(tree_opt_bool(entry, "ranking", false, &f.ranking));
  HP_TRY(tree_opt_map(entry, "columns", &columns));
  HP_TRY(tree_opt_map(entry, "tags", &tags));
  if (columns) HP_TRY(read_columns(columns, &f));
  if (tags) HP_TRY(read_tags(tags, &f));
  HP_TRY(check_columns(entry, &f));
  *out = f;
  return HP_OK;
}

hp_status chat_format_guess(const tree_node *record, chat_format *f) {
  if (!f->guess) return HP_OK;
  f->guess = false;
  if (tree_get(record, "instruction")) {
    f->formatting = CHAT_ALPACA;
    f->history = tree_get(record, "history") ? "history" : NULL;
  } else if (tree_get(record, "conversations")) {
    f->formatting = CHAT_SHAREGPT;
  } else if (tree_get(record, "messages")) {
    f->formatting = CHAT_OPENAI;
    f->messages = "messages";
    f->role_tag = "role";
    f->content_tag = "content";
    f->user_tag = "user";
    f->assistant_tag = "assistant";
    f->observation_tag = "tool";
  } else {
    TREE_FAIL(record, "a record with \"instruction\" (alpaca), \"conversations\" (sharegpt) or "
                      "\"messages\" (openai) was expected; name the columns in dataset_info.json");
  }
  f->system = tree_get(record, "system") ? "system" : NULL;
  f->tools = tree_get(record, "tools") ? "tools" : NULL;
  if (tree_get(record, "chosen") && tree_get(record, "rejected")) {
    f->ranking = true;
    f->chosen = "chosen";
    f->rejected = "rejected";
  }
  return HP_OK;
}
