/* For fuzzers whose input is a folder: one in memory, empty for each input and gone at the end. */
#ifndef FOLDER_H
#define FOLDER_H

#include "base/str.h"

/* Path of the folder of this process, made empty. */
const char *folder_fresh(void);
/* Writes a file in it; the name may have a folder that is there. */
void folder_write(const char *name, const void *bytes, size_t n);
/* The input up to the next byte 0xFF (str_free); *at moves past it. */
str folder_part(const uint8_t **at, const uint8_t *end);

#endif
