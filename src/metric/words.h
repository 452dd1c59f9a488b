/* Text into words, as jieba 0.42.1 cuts it, for ROUGE.
 *
 * Letters, digits, numbers and marks are cut by jieba's rules.  Chinese characters are words by
 * themselves: jieba joins them by a dictionary and a Markov model, which are not built. */
#ifndef METRIC_WORDS_H
#define METRIC_WORDS_H

#include "base/str.h"

/* Appends the words of the UTF-8 text with a space between each two.  White space is a word, too,
 * as in jieba.  *chinese is set if one of them is a Chinese character, else left alone. */
void words_join(const str *text, str *out, bool *chinese);

/* Is it white space for Python (str.isspace)? */
bool words_is_space(uint32_t c);

#endif
