/* Where the launcher listens for its processes: at the address that leads to their machines, and at
 * no other. */
#include "base/io.h"
#include "base/log.h"
#include "cli/launch.h"

#include <arpa/inet.h>
#include <errno.h>
#include <ifaddrs.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* --- machines --------------------------------------------------------------------------------- */

typedef struct {
  VEC(char *) name;
} host_list;
enum { HOSTS_MAX = 4096 };

static void free_hosts(host_list *l) {
  for (size_t i = 0; i < l->name.len; i++) mem_free(l->name.at[i]);
  vec_free(&l->name);
}

static hp_status add_host(host_list *l, const char *name, size_t n) {
  const char *at = memchr(name, '@', n); /* user@host */
  if (at) n -= (size_t)(at + 1 - name), name = at + 1;
  const char *port = memchr(name, ':', n); /* host:slots */
  if (port) n = (size_t)(port - name);
  if (!n || l->name.len >= HOSTS_MAX) return HP_OK;
  char *copy = mem_calloc(n + 1, 1);
  HP_TRY_MEM(copy);
  memcpy(copy, name, n);
  if (vec_push(&l->name, copy)) return HP_OK;
  mem_free(copy);
  return HP_ERR_OOM;
}

/* At most nine digits, which no type is too small for; false: there is no such number. */
static bool read_number(const char **at, unsigned long *out) {
  enum { DIGITS = 9 };
  size_t n = strspn(*at, "0123456789");
  *out = 0;
  if (!n || n > DIGITS) return false;
  for (const char *end = *at + n; *at < end; (*at)++)
    *out = *out * 10 + (unsigned long)(**at - '0');
  return true;
}

/* Slurm's short form of several names, node[001-004,7]: the numbers between the brackets. */
static hp_status add_numbered(host_list *l, const char *word, size_t n, const char *open) {
  const char *close = memchr(open, ']', n - (size_t)(open - word)), *at = open + 1;
  char name[256];
  if (!close) return add_host(l, word, n);
  while (at < close) {
    const char *end = at;
    unsigned long first, last;
    size_t digits = strspn(at, "0123456789");
    bool good = read_number(&end, &first);
    last = first;
    if (good && *end == '-') end++, good = read_number(&end, &last);
    if (!good || (*end != ',' && end != close) || last < first || last - first > HOSTS_MAX)
      HP_FAIL(HP_ERR_INPUT, "%.*s: expected names such as node[1-4,7]", (int)n, word);
    for (unsigned long k = first; k <= last; k++) {
      int m = snprintf(name, sizeof name, "%.*s%0*lu%.*s", (int)(open - word), word, (int)digits, k,
                       (int)(n - (size_t)(close + 1 - word)), close + 1);
      if (m > 0 && (size_t)m < sizeof name) HP_TRY(add_host(l, name, (size_t)m));
    }
    at = end + 1;
  }
  return HP_OK;
}

/* Names between commas, of which some are short forms. */
static hp_status add_names(host_list *l, const char *text, size_t n) {
  for (size_t i = 0, from = 0, depth = 0; i <= n; i++) {
    if (i < n && text[i] == '[') depth++;
    if (i < n && text[i] == ']' && depth) depth--;
    if (i < n && (text[i] != ',' || depth)) continue;
    const char *open = memchr(text + from, '[', i - from);
    if (open) HP_TRY(add_numbered(l, text + from, i - from, open));
    else HP_TRY(add_host(l, text + from, i - from));
    from = i + 1;
  }
  return HP_OK;
}

/* The first word of every line is a machine. */
static hp_status read_hostfile(const char *path, host_list *l) {
  char *text = NULL;
  size_t n;
  hp_status st = file_read(path, 0, &text, &n);
  for (const char *line = text; !st && line; line = strchr(line, '\n'), line += line != NULL) {
    const char *word = line + strspn(line, " \t");
    st = add_names(l, word, strcspn(word, " \t\r\n#"));
  }
  mem_free(text);
  if (!st && l->name.len) return HP_OK;
  if (st == HP_ERR_OOM) return st;
  err_report why = {0};
  if (st) err_take(st, &why);
  HP_FAIL(HP_ERR_INPUT,
          "--hostfile %.200s%s; expected a file with a line for each machine, such as \"node1 "
          "slots=8\"",
          st ? why.message : path, st ? "" : ": names no machine");
}

/* The machines of the job, as far as they are known; none: only this one. */
static hp_status find_hosts(const launch_options *o, host_list *l) {
  const char *nodes = getenv("SLURM_JOB_NODELIST");
  if (o->hostfile) return read_hostfile(o->hostfile, l);
  if (!getenv("SLURM_JOB_ID") || !nodes) return HP_OK;
  return add_names(l, nodes, strlen(nodes));
}

hp_status launch_check_hosts(const launch_options *o) {
  host_list l = {0};
  hp_status st = find_hosts(o, &l);
  free_hosts(&l);
  return st;
}

/* --- addresses -------------------------------------------------------------------------------- */

static bool is_loopback(struct in_addr a) { return ntohl(a.s_addr) >> 24 == 127; }

/* The address of this machine from which the system would send to that host.  Nothing is sent. */
static bool find_route(const char *host, struct in_addr *to, struct in_addr *from) {
  struct addrinfo hints = {.ai_family = AF_INET, .ai_socktype = SOCK_DGRAM}, *found = NULL;
  struct sockaddr_in own;
  socklen_t n = sizeof own;
  if (getaddrinfo(host, "9", &hints, &found)) return false;
  int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  bool done = fd >= 0 && !connect(fd, found->ai_addr, found->ai_addrlen) &&
              !getsockname(fd, (struct sockaddr *)&own, &n);
  if (done) {
    *to = ((struct sockaddr_in *)(void *)found->ai_addr)->sin_addr;
    *from = own.sin_addr;
  }
  if (fd >= 0) close(fd);
  freeaddrinfo(found);
  return done;
}

/* The address from which most of them are reached first found; loopback when all are this one. */
static hp_status choose_address(const host_list *l, char out[64]) {
  enum { ASKED = 64 }; /* of a thousand machines the first tell enough */
  struct in_addr to, from, best = {.s_addr = htonl(INADDR_LOOPBACK)};
  bool found = false, told = false;
  size_t reached = 0;
  for (size_t i = 0; i < l->name.len && i < ASKED; i++) {
    if (!find_route(l->name.at[i], &to, &from)) continue;
    reached++;
    if (is_loopback(to) || to.s_addr == from.s_addr) continue; /* this machine */
    if (found && from.s_addr != best.s_addr && !told) {
      told = true;
      log_warn("%s is reached by another interface than the machines before it; the launcher "
               "listens for all at %s (--interface names another)",
               l->name.at[i], inet_ntoa(best));
    }
    if (!found) best = from;
    found = true;
  }
  if (l->name.len && !reached)
    HP_FAIL(HP_ERR_INPUT,
            "no address is known of %s: the name has no IPv4 address here; name the interface that "
            "leads to the machines with --interface",
            l->name.at[0]);
  inet_ntop(AF_INET, &best, out, 64);
  return HP_OK;
}

/* By the name of the interface or its address. */
static hp_status find_interface(const char *asked, char out[64]) {
  struct ifaddrs *all = NULL;
  char address[INET_ADDRSTRLEN];
  str known = {0};
  bool found = false;
  if (getifaddrs(&all)) HP_FAIL(HP_ERR_IO, "cannot list the interfaces: %s", strerror(errno));
  for (struct ifaddrs *i = all; i && !found; i = i->ifa_next) {
    if (!i->ifa_addr || i->ifa_addr->sa_family != AF_INET) continue;
    inet_ntop(AF_INET, &((struct sockaddr_in *)(void *)i->ifa_addr)->sin_addr, address,
              sizeof address);
    found = !strcmp(asked, i->ifa_name) || !strcmp(asked, address);
    if (found) snprintf(out, 64, "%s", address);
    str_printf(&known, "%s%s (%s)", known.len ? ", " : "", i->ifa_name, address);
  }
  freeifaddrs(all);
  hp_status st = HP_OK;
  if (!found)
    st = err_set(HP_ERR_ARG, __FILE__, __LINE__,
                 "--interface %s: no such interface; this machine has %s", asked,
                 known.at ? known.at : "none");
  str_free(&known);
  return st;
}

hp_status launch_find_address(const launch_options *o, char out[64]) {
  host_list l = {0};
  if (o->interface) return find_interface(o->interface, out);
  hp_status st = find_hosts(o, &l);
  if (!st) st = choose_address(&l, out);
  free_hosts(&l);
  return st;
}
