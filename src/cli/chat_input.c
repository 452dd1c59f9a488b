#include "cli/chat_input.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

enum { LINE_BYTES = 64 << 20, PIECE = 4096, WAIT_MS = 100 };

/* A handler can reach nothing else. */
static volatile sig_atomic_t interrupted;

static void on_interrupt(int number) {
  (void)number;
  interrupted = 1;
}

void chat_input_begin(void) {
  struct sigaction a = {.sa_handler = on_interrupt, .sa_flags = SA_RESTART};
  sigemptyset(&a.sa_mask);
  sigaction(SIGINT, &a, NULL);
}

bool chat_input_interrupted(void) { return interrupted != 0; }
void chat_input_forget(void) { interrupted = 0; }

/* The signal may reach any thread, so waiting is cut into pieces rather than broken off by it. */
static bool wait_for_input(void) {
  struct pollfd in = {.fd = STDIN_FILENO, .events = POLLIN};
  while (!interrupted)
    if (poll(&in, 1, WAIT_MS) > 0) return true;
  return false;
}

static hp_status read_piece(chat_input *in) {
  char piece[PIECE];
  ssize_t n = read(STDIN_FILENO, piece, sizeof piece);
  if (n < 0 && errno == EINTR) return HP_OK;
  if (n < 0) HP_FAIL(HP_ERR_IO, "standard input: cannot be read: %s", strerror(errno));
  if (n == 0) in->ended = true;
  if (in->text.len + (size_t)n > LINE_BYTES)
    HP_FAIL(HP_ERR_INPUT, "standard input: a line of more than %d MiB; expected a message a line",
            LINE_BYTES >> 20);
  str_add_n(&in->text, piece, (size_t)n);
  return str_status(&in->text);
}

/* Drops the lines that were taken. */
static void drop_taken(chat_input *in) {
  if (!in->taken) return;
  memmove(in->text.at, in->text.at + in->taken, in->text.len - in->taken);
  in->text.len -= in->taken;
  in->taken = 0;
}

hp_status chat_input_read(chat_input *in, input_event *event, const char **line, size_t *n) {
  drop_taken(in);
  const char *end = NULL;
  for (size_t from = 0;;) {
    if (in->text.len > from) end = memchr(in->text.at + from, '\n', in->text.len - from);
    if (end || in->ended) break;
    from = in->text.len;
    *event = INPUT_INTERRUPTED;
    if (!wait_for_input()) return HP_OK;
    HP_TRY(read_piece(in));
  }
  *event = end || in->text.len ? INPUT_LINE : INPUT_END;
  if (*event == INPUT_END) return HP_OK;
  *line = in->text.at;
  *n = end ? (size_t)(end - in->text.at) : in->text.len;
  in->taken = *n + (end != NULL);
  if (*n && (*line)[*n - 1] == '\r') --*n;
  return HP_OK;
}

void chat_input_free(chat_input *in) { str_free(&in->text); }
