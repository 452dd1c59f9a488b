#include "cli/chat_talk.h"

#include "base/io.h"
#include "dataset/answer_calls.h"
#include "cli/chat_input.h"
#include "cli/cli.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { INTERRUPTED_CODE = 130 };

typedef struct {
  conversation *c;
  chat_session *s;
  bool json, terminal; /* terminal: somebody types */
  bool leaves;
  int code;
} talk;

/* --- answers ---------------------------------------------------------------------------------- */

static bool goes_on(void *ctx) {
  (void)ctx;
  return !chat_input_interrupted();
}

/* Goes on as long as somebody reads. */
static bool show_piece(void *ctx, const char *text, size_t n) {
  cli_put_text(text, n);
  bool read = fflush(stdout) == 0 || !cli_output_is_closed();
  return read && goes_on(ctx);
}

static void show_call(void *ctx, const char *name, size_t name_n, const char *arguments, size_t n) {
  (void)ctx;
  cli_say(HP_OK, ": the model calls %.*s %.*s", (int)name_n, name, (int)n, arguments);
}

static hp_status show_answer(const talk *k, const lm_tokens *prompt, const generation_result *r) {
  str line = {0};
  hp_status st = HP_OK;
  if (k->json) {
    generation_print_json(prompt, r, &line);
    st = str_status(&line);
  }
  if (!st) puts(k->json ? line.at : "");
  fflush(stdout);
  str_free(&line);
  if (!st && k->c->tools.root)
    st = answer_find_calls(r->text.at, r->text.len, k->c->tools.root, show_call, NULL);
  return st;
}

/* A message of the user or a tool, and the answer; a message that failed is forgotten. */
static hp_status answer(talk *k, chat_role role, const char *text, size_t n) {
  conversation *c = k->c;
  token_ids ids = {0};
  generation_result r = {0};
  size_t before = c->message.len;
  hp_status st = conversation_add(c, role, text, n);
  if (!st) st = conversation_encode(c, &ids);
  const lm_tokens prompt = {ids.at, (int64_t)ids.len};
  if (!st) st = chat_session_answer(k->s, &prompt, &r);
  if (!st) st = conversation_add(c, CHAT_ASSISTANT, r.text.at, r.text.len);
  if (st) conversation_cut(c, before);
  else st = show_answer(k, &prompt, &r);
  generation_result_free(&r);
  vec_free(&ids);
  return st;
}

/* --- commands --------------------------------------------------------------------------------- */

static hp_status save(const conversation *c, const char *path) {
  str text = {0};
  if (!*path) HP_FAIL(HP_ERR_ARG, "/save: the name of the file is missing; write /save FILE");
  hp_status st = conversation_print(c, &text);
  str_add(&text, "\n");
  if (!st) st = str_status(&text);
  if (!st) st = file_write(path, text.at, text.len);
  str_free(&text);
  return st;
}

static hp_status command_reset(talk *k, const char *text) {
  (void)text;
  conversation_cut(k->c, 0);
  return HP_OK;
}
static hp_status command_system(talk *k, const char *text) {
  return conversation_set_system(k->c, text, strlen(text));
}
static hp_status command_tool(talk *k, const char *text) {
  if (!k->c->message.len)
    HP_FAIL(HP_ERR_ARG, "/tool: there is no answer yet that could have called a tool");
  return answer(k, CHAT_OBSERVATION, text, strlen(text));
}
static hp_status command_save(talk *k, const char *text) { return save(k->c, text); }
static hp_status command_help(talk *k, const char *text) {
  (void)k;
  (void)text;
  fputs(CHAT_HELP, stderr);
  return HP_OK;
}
static hp_status command_exit(talk *k, const char *text) {
  (void)text;
  k->leaves = true;
  return HP_OK;
}

static const struct {
  const char *name;
  hp_status (*run)(talk *k, const char *text);
  bool takes_text;
} commands[] = {{"/reset", command_reset, false}, {"/system", command_system, true},
                {"/tool", command_tool, true},    {"/save", command_save, true},
                {"/help", command_help, false},   {"/exit", command_exit, false}};
enum { COMMANDS = sizeof commands / sizeof *commands };

static hp_status refuse_command(const char *name) {
  const char *names[COMMANDS];
  for (int i = 0; i < COMMANDS; i++) names[i] = commands[i].name;
  const char *near = str_nearest(name, names, COMMANDS);
  HP_FAIL(HP_ERR_ARG,
          "there is no command %s%s%s%s; /help lists them, and a message that begins with a slash "
          "is written with two",
          name, near ? " (did you mean " : "", near ? near : "", near ? "?)" : "");
}

/* A line "/name text". */
static hp_status run_command(talk *k, char *line) {
  char *text = line + strcspn(line, " \t");
  if (*text) *text++ = 0;
  text += strspn(text, " \t");
  for (size_t n = strlen(text); n && strchr(" \t", text[n - 1]);) text[--n] = 0;
  for (int i = 0; i < COMMANDS; i++) {
    if (strcmp(commands[i].name, line)) continue;
    if (*text && !commands[i].takes_text)
      HP_FAIL(HP_ERR_ARG, "%s: \"%s\" is not expected behind it", line, text);
    return commands[i].run(k, text);
  }
  return refuse_command(line);
}

/* --- lines ------------------------------------------------------------------------------------ */

static hp_status take_line(talk *k, const char *line, size_t n) {
  str copy = {0};
  if (n == strspn(line, " \t") || !n) return HP_OK;
  if (line[0] != '/') return answer(k, CHAT_USER, line, n);
  if (n > 1 && line[1] == '/') return answer(k, CHAT_USER, line + 1, n - 1);
  str_add_n(&copy, line, n);
  hp_status st = str_status(&copy);
  if (!st && memchr(line, 0, n))
    st = err_set(HP_ERR_ARG, __FILE__, __LINE__, "a command with a NUL in it; expected text");
  if (!st) st = run_command(k, copy.at);
  str_free(&copy);
  return st;
}

/* A line that fails ends nothing; where nobody types, the exit code tells of it. */
static void report(talk *k, hp_status st) {
  int code = cli_fail(st);
  err_clear();
  if (!k->terminal) k->code = code;
}

static void show_prompt(const talk *k) {
  if (k->terminal) fputs("> ", stderr);
}

/* Ctrl-C where no answer is being written: the second one in a row leaves. */
static void interrupt(talk *k, int *in_a_row) {
  if (++*in_a_row == 1 && k->terminal) {
    fputs("\nCtrl-C again, or /exit, leaves\n", stderr);
    return;
  }
  k->leaves = true;
  k->code = INTERRUPTED_CODE;
}

static hp_status run_talk(talk *k, chat_input *in) {
  const char *line;
  size_t n;
  int in_a_row = 0;
  while (!k->leaves) {
    input_event event;
    show_prompt(k);
    HP_TRY(chat_input_read(in, &event, &line, &n));
    if (event == INPUT_END) break;
    chat_input_forget();
    if (event == INPUT_INTERRUPTED) {
      interrupt(k, &in_a_row);
      continue;
    }
    in_a_row = 0;
    hp_status st = take_line(k, line, n);
    if (st) report(k, st);
    if (chat_input_interrupted() && k->terminal) fputs("(ended)\n", stderr);
    chat_input_forget();
    if (cli_output_is_closed()) break;
  }
  return HP_OK;
}

hp_status chat_talk(conversation *c, chat_session *s, bool json, int *code) {
  talk k = {.c = c, .s = s, .json = json, .terminal = isatty(STDIN_FILENO) != 0};
  chat_input in = {.taken = 0};
  int n = conversation_find_ends(c, s->g.eos, sizeof s->g.eos / sizeof *s->g.eos);
  if (n) s->g.n_eos = n;
  s->g.goes_on = goes_on;
  if (!json) s->g.piece = show_piece;
  chat_input_begin();
  hp_status st = run_talk(&k, &in);
  chat_input_free(&in);
  if (k.terminal) fputs("\n", stderr);
  *code = k.code;
  return st;
}
