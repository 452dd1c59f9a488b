/* replay_NAME FOLDER: runs a fuzzer over the files of a folder, each in a process of its own. */
#include "fuzz.h"

#include "base/io.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { LIMIT_S = 60 };

static int replay(const char *path) {
  fflush(stdout);
  pid_t pid = fork();
  if (pid < 0) return -1;
  if (pid == 0) {
    char *bytes;
    size_t n;
    alarm(LIMIT_S);
    if (file_read(path, 0, &bytes, &n)) {
      printf("%s\n", err_message());
      exit(1);
    }
    /* a copy of the exact size, so that a read past the end is seen by the sanitizers */
    uint8_t *exact = malloc(n ? n : 1);
    HP_ASSERT(exact);
    memcpy(exact, bytes, n);
    mem_free(bytes);
    LLVMFuzzerTestOneInput(exact, n);
    free(exact);
    exit(0); /* runs the leak check of sanitizers */
  }
  int status = 0;
  return waitpid(pid, &status, 0) == pid ? status : -1;
}

int main(int argc, char **argv) {
  if (argc != 2) {
    fprintf(stderr, "usage: %s FOLDER\n", argv[0]);
    return 2;
  }
  int passed = 0, failed = 0;
  DIR *dir = opendir(argv[1]);
  for (struct dirent *d; dir && (d = readdir(dir));) {
    if (d->d_name[0] == '.') continue;
    char path[4096];
    snprintf(path, sizeof path, "%s/%s", argv[1], d->d_name);
    if (replay(path)) {
      failed++;
      printf("FAIL %s\n", path);
    } else passed++;
  }
  if (dir) closedir(dir);
  if (passed + failed == 0) {
    printf("FAIL %s: no inputs there\n", argv[1]);
    failed++;
  }
  printf("%d passed, %d failed\n", passed, failed);
  return failed ? 1 : 0;
}
