/* `hyper launch`: the processes of a job, and who starts them. */
#ifndef CLI_LAUNCH_H
#define CLI_LAUNCH_H

#include "base/str.h"
#include "base/vec.h"

#include <sys/types.h>

typedef struct {
  int64_t processes;
  const char *hostfile, *starter; /* NULL: none; the one that fits */
  const char *const *verb;        /* the words after --, NULL at the end */
} launch_options;

/* The command that starts them. */
typedef VEC(char *) launch_command;
/* HP_ERR_UNSUPPORTED when nothing is there that starts processes. */
hp_status launch_command_make(const launch_options *o, launch_command *out);
void launch_command_free(launch_command *c);
void launch_command_print(const launch_command *c, str *out);
/* Runs it in a group of its own, so that Ctrl-C reaches the launcher alone. */
hp_status launch_start(const launch_command *c, pid_t *out);

#endif
