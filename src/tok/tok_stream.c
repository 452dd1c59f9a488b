/* Decoding token by token. */
#include "tok/tok_internal.h"
#include "tok/unicode.h"

#include <string.h>

/* Tokens held back for the rest of a character: four bytes may be four tokens; then it is shown as
 * it is, so that a model that babbles bytes does not make the window grow. */
enum { HELD_MAX = 8 };

tokenizer_stream tokenizer_stream_create(const tokenizer *t, bool skip_special) {
  return (tokenizer_stream){.t = t, .skip_special = skip_special};
}

void tokenizer_stream_free(tokenizer_stream *s) {
  vec_free(&s->ids);
  str_free(&s->bytes);
  str_free(&s->text);
  str_free(&s->more);
}

static bool ends_unfinished(const str *s) {
  return s->len >= 3 && !memcmp(s->at + s->len - 3, "\xEF\xBF\xBD", 3);
}

/* Appends what `more` has beyond `text`.  Where a decoder has rewritten what is shown already, as
 * many characters as are shown are passed over. */
static void add_rest(const tokenizer_stream *s, str *out) {
  const str *old = &s->text, *now = &s->more;
  size_t at = 0, k = 0;
  if (!now->len || (old->len && (now->len < old->len || memcmp(old->at, now->at, old->len)))) {
    for (; k < old->len && at < now->len; k += utf8_len(old->at + k)) at += utf8_len(now->at + at);
  } else {
    at = old->len;
  }
  if (at < now->len) str_add_n(out, now->at + at, now->len - at);
}

/* Shows all of the window, which then keeps only the tokens shown last, as context. */
static hp_status show_window(tokenizer_stream *s, str *out) {
  add_rest(s, out);
  HP_TRY(str_status(out));
  size_t keep = s->ids.len - s->shown;
  memmove(s->ids.at, s->ids.at + s->shown, keep * sizeof *s->ids.at);
  s->ids.len = s->shown = keep;
  str_clear(&s->text);
  return tokenizer_decode(s->t, s->ids.at, keep, s->skip_special, &s->text);
}

hp_status tokenizer_stream_push(tokenizer_stream *s, int32_t id, str *out) {
  const tokenizer *t = s->t;
  if (id < 0 || (size_t)id >= t->n || !t->entry[id].text.at) return HP_OK;
  const tok_entry *e = &t->entry[id];
  if (s->skip_special && e->special) return HP_OK;
  if (tok_decoder_is_byte_level(t->decoder)) {
    tok_decode_bytes(e->text.at, e->text.len, &s->bytes);
    HP_TRY(str_status(&s->bytes));
    size_t ready = utf8_complete(s->bytes.at ? s->bytes.at : "", s->bytes.len);
    if (!ready) return HP_OK;
    utf8_add_lossy(out, s->bytes.at, ready);
    s->bytes.len -= ready;
    memmove(s->bytes.at, s->bytes.at + ready, s->bytes.len);
    return str_status(out);
  }
  if (!vec_push(&s->ids, id)) return HP_ERR_OOM;
  str_clear(&s->more);
  HP_TRY(tokenizer_decode(t, s->ids.at, s->ids.len, s->skip_special, &s->more));
  if (s->ids.len - s->shown < HELD_MAX && (s->more.len <= s->text.len || ends_unfinished(&s->more)))
    return HP_OK;
  return show_window(s, out);
}

hp_status tokenizer_stream_flush(tokenizer_stream *s, str *out) {
  if (s->bytes.len) utf8_add_lossy(out, s->bytes.at, s->bytes.len);
  str_clear(&s->bytes);
  if (s->ids.len > s->shown) HP_TRY(show_window(s, out));
  s->ids.len = s->shown = 0;
  str_clear(&s->text);
  return str_status(out);
}
