#include "rt/heartbeat_wire.h"

#include "base/random.h"

#include <stddef.h>
#include <stdio.h>
#include <string.h>

/* No padding, whose bytes would be undefined. */
_Static_assert(sizeof(wire_hello) == 8 + WIRE_NONCE, "a hello has no padding");
_Static_assert(offsetof(heartbeat, mac) == 8 + 16 + 24 + 8 + 24 + 64 + 16 + 600 &&
                   sizeof(heartbeat) == offsetof(heartbeat, mac) + SHA256_BYTES,
               "a heartbeat has no padding");
_Static_assert(sizeof(heartbeat_order) == 16 + SHA256_BYTES, "an order has no padding");

hp_status wire_hello_make(wire_hello *out) {
  memcpy(out->version, WIRE_VERSION, sizeof out->version);
  return random_bytes(out->nonce, sizeof out->nonce);
}

bool wire_hello_is_ours(const wire_hello *h) {
  return !memcmp(h->version, WIRE_VERSION, sizeof h->version);
}

/* The purpose of each MAC: that of an order is not valid for a heartbeat. */
static void mac_of(const wire_key *k, const char *what, const void *a, size_t n_a, const void *b,
                   size_t n_b, unsigned char out[SHA256_BYTES]) {
  hmac m;
  hmac_begin(&m, k->at, sizeof k->at);
  hmac_add(&m, what, strlen(what) + 1);
  hmac_add(&m, a, n_a);
  hmac_add(&m, b, n_b);
  hmac_end(&m, out);
}

void wire_session_begin(wire_session *s, const wire_key *job, const wire_hello *challenge,
                        const wire_hello *answer) {
  *s = (wire_session){0};
  mac_of(job, "session", challenge, sizeof *challenge, answer, sizeof *answer, s->key.at);
}

static void seal(wire_session *s, const char *what, void *message, size_t n, wire_mac *mac) {
  uint64_t counter = ++s->sent;
  memcpy(message, &counter, sizeof counter);
  mac_of(&s->key, what, message, n, NULL, 0, mac->mac);
}

static bool check(wire_session *s, const char *what, const void *message, size_t n,
                  const wire_mac *mac) {
  uint64_t counter;
  wire_mac expected;
  memcpy(&counter, message, sizeof counter);
  mac_of(&s->key, what, message, n, NULL, 0, expected.mac);
  if (!mac_is_equal(expected.mac, mac->mac) || counter != s->received + 1) return false;
  s->received = counter;
  return true;
}

void wire_seal_heartbeat(wire_session *s, heartbeat *h) {
  seal(s, "heartbeat", h, offsetof(heartbeat, mac), &h->mac);
}
bool wire_check_heartbeat(wire_session *s, const heartbeat *h) {
  return check(s, "heartbeat", h, offsetof(heartbeat, mac), &h->mac);
}
void wire_seal_order(wire_session *s, heartbeat_order *o) {
  seal(s, "order", o, offsetof(heartbeat_order, mac), &o->mac);
}
bool wire_check_order(wire_session *s, const heartbeat_order *o) {
  return check(s, "order", o, offsetof(heartbeat_order, mac), &o->mac);
}

static void clean_text(char *text, size_t n) {
  text[n - 1] = 0;
  for (; *text; text++)
    if ((unsigned char)*text < ' ' || *text == 0x7f) *text = '?';
}

bool heartbeat_clean(heartbeat *h, int64_t processes) {
  clean_text(h->host, sizeof h->host);
  clean_text(h->stream, sizeof h->stream);
  clean_text(h->text, sizeof h->text);
  bool kind = h->kind == HEARTBEAT_ALIVE || h->kind == HEARTBEAT_END;
  bool ranks =
      h->rank >= -1 && h->rank < processes && h->waits_for >= -1 && h->waits_for < processes;
  bool numbers = h->still_s >= 0 && h->still_s < 1e12 && h->instruction >= -1 && h->step >= -1 &&
                 h->saved >= -1;
  /* kill() treats 0 and negative numbers as process groups, -1 as all processes */
  return kind && ranks && numbers && h->pid > 0;
}

void wire_key_print(const wire_key *k, char out[2 * SHA256_BYTES + 1]) {
  for (int i = 0; i < SHA256_BYTES; i++) snprintf(out + 2 * i, 3, "%02x", k->at[i]);
}

bool wire_key_parse(const char *text, wire_key *out) {
  static const char digits[] = "0123456789abcdef";
  if (strlen(text) != 2 * SHA256_BYTES) return false;
  for (int i = 0; i < 2 * SHA256_BYTES; i++) {
    const char *at = strchr(digits, text[i]);
    if (!at) return false;
    unsigned v = (unsigned)(at - digits);
    out->at[i / 2] = (unsigned char)(i % 2 ? out->at[i / 2] | v : v << 4);
  }
  return true;
}
