# Checks C sources line by line; tools/lint feeds it tools/layers.txt, tools/case-allow.txt and then
# the sources.  Prints `file:line: what` for each finding, exit 1 if there are any.
#
# Comments and the insides of strings are cut out first, so that words in them are not taken for
# code.  Functions are found by braces at file level; complexity is McCabe's with a switch counted
# as one, so that a flat table of cases is not punished.

function report(line, what) {
  printf "%s:%d: %s\n", FILENAME, line, what
  bad = 1
}

# The code of a line: no comments, "" for strings, '' for characters.
function strip(line,    out, t, at) {
  out = ""
  for (;;) {
    if (in_comment) {
      at = index(line, "*/")
      if (!at) return out
      line = substr(line, at + 2)
      in_comment = 0
    }
    if (!match(line, /\/\*|\/\/|"|'/)) return out line
    t = substr(line, RSTART, RLENGTH)
    out = out substr(line, 1, RSTART - 1)
    line = substr(line, RSTART)
    if (t == "//") return out
    if (t == "/*") {
      in_comment = 1
      line = substr(line, 3)
    } else if (t == "\"" && match(line, /^"([^"\\]|\\.)*"/)) {
      out = out "\"\""
      line = substr(line, RLENGTH + 1)
    } else if (t == "'" && match(line, /^'([^'\\]|\\.)+'/)) {
      out = out "''"
      line = substr(line, RLENGTH + 1)
    } else return out line
  }
}

function end_file() {
  if (lines > 800) {
    printf "%s:%d: file of %d lines, at most 800: split it by subject\n", file, lines, lines
    bad = 1
  }
}

function start_file(    n) {
  if (file != "") end_file()
  file = FILENAME
  in_comment = in_define = depth = 0
  head = function_name = ""
  n = split(file, part, "/")
  in_src = part[1] == "src" || part[1] == "include"
  module = part[1] == "src" ? part[2] : ""
  if (module != "" && !(module in layer)) report(1, "folder " module " has no row in tools/layers.txt")
  may_case = file in case_file || part[1] == "tests"
  is_mem = file == "src/base/mem.c"
  is_status = file ~ /^src\/base\/status\.[ch]$/
  is_c = file ~ /\.[ch]$/
  is_table = file ~ /_cases\.h$/
}

function check_include(    q, to) {
  split($0, q, "\"")
  if (module == "" || q[2] !~ /\//) return
  to = q[2]
  sub(/\/.*/, "", to)
  if (to != module && to != "base" && !((module, to) in allowed))
    report(FNR, module " may not include " to " (tools/layers.txt)")
}

function check_words(    w) {
  if (match($0, /(^|[^A-Za-z_])(TODO|FIXME|XXX)([^A-Za-z_]|$)/))
    report(FNR, "open work is noted in docs/STATUS.md, not in code")
  if (!in_src) return
  w = tolower($0)
  if (w ~ /(^|[^a-z_])(for now|not implemented|stub|placeholder)([^a-z_]|$)/)
    report(FNR, "words that promise work left undone")
}

function check_calls(code,    name) {
  while (match(code, /(^|[^A-Za-z0-9_.>])[a-z_][a-z0-9_]*[ ]*\(/)) {
    name = substr(code, RSTART, RLENGTH)
    code = substr(code, RSTART + RLENGTH)
    gsub(/[^a-z0-9_]/, "", name)
    if (name in banned && (in_src || banned[name] == "all"))
      report(FNR, name " is banned: " why[name])
    else if (in_src && name in heap && !is_mem)
      report(FNR, name ": heap memory only through base/mem.h")
    else if (in_src && (name == "assert" || name == "abort") && !is_status)
      report(FNR, name ": our own bugs are caught by HP_ASSERT, input by HP_FAIL")
  }
}

function count_matches(code, re,    n) {
  n = gsub(re, "&", code)
  return n
}

function end_function(    length_max) {
  length_max = in_src ? 80 : 150
  if (FNR - function_line + 1 > length_max)
    report(function_line, function_name " has " (FNR - function_line + 1) " lines, at most " length_max)
  if (in_src && complexity > 20)
    report(function_line, function_name " has complexity " complexity ", at most 20")
  function_name = ""
}

# Follows braces; `head` is the text at file level since the last declaration ended.
function check_function(code,    before, opens, closes, at) {
  if (depth == 0) {
    if (code ~ /^extern "" \{/) return
    at = index(code, "{")
    before = at ? substr(code, 1, at - 1) : code
    if (head == "") function_line = FNR
    head = head " " before
    if (at) {
      if (head ~ /\)[ ]*$/ && head !~ /=/ && head !~ /(^| )typedef /) {
        function_name = head
        sub(/\(.*/, "", function_name)
        sub(/[ ]+$/, "", function_name)
        sub(/.*[ *]/, "", function_name)
        if (function_name == "TEST") {
          function_name = head
          sub(/^[ ]*/, "", function_name)
          sub(/[ ]*$/, "", function_name)
        }
        complexity = 1
      }
      head = ""
    } else if (code ~ /[;}][ ]*$/ || code ~ /^[ ]*$/) head = ""
  }
  if (function_name != "") {
    complexity += count_matches(code, "&&") + count_matches(code, "[|][|]") + count_matches(code, "[?]")
    complexity += count_matches(" " code, "[^A-Za-z0-9_](if|for|while|switch)[ ]*[(]")
  }
  opens = count_matches(code, "{")
  closes = count_matches(code, "}")
  depth += opens - closes
  if (depth <= 0) {
    depth = 0
    if (opens + closes > 0) head = ""
    if (function_name != "" && opens + closes > 0) end_function()
  }
}

BEGIN {
  n = split("strcpy strcat sprintf vsprintf gets strtok atoi atol atoll atof", b, " ")
  for (i = 1; i <= n; i++) banned[b[i]] = "src"
  n = split("rand srand random ctime asctime localtime gmtime system popen tmpnam mktemp alloca setjmp longjmp", b, " ")
  for (i = 1; i <= n; i++) banned[b[i]] = "src"
  banned["gets"] = banned["tmpnam"] = banned["mktemp"] = "all"
  why["strcpy"] = why["strcat"] = why["sprintf"] = why["vsprintf"] = "use snprintf or base/str.h"
  why["gets"] = "no bound"
  why["strtok"] = why["localtime"] = why["gmtime"] = why["ctime"] = why["asctime"] = "hidden state; use the _r form"
  why["atoi"] = why["atol"] = why["atoll"] = why["atof"] = "sees no errors; use str_to_i64, str_to_f64"
  why["rand"] = why["srand"] = why["random"] = "hidden state; random numbers come from Philox"
  why["system"] = why["popen"] = "runs a shell; start the program itself"
  why["tmpnam"] = why["mktemp"] = "a race; use mkdtemp or file_writer"
  why["alloca"] = "unbounded stack"
  why["setjmp"] = why["longjmp"] = "use hp_status"
  n = split("malloc calloc realloc free strdup strndup asprintf vasprintf aligned_alloc posix_memalign memalign reallocarray getline", b, " ")
  for (i = 1; i <= n; i++) heap[b[i]] = 1
}

FILENAME == "tools/layers.txt" {
  if ($1 == "" || $1 ~ /^#/) next
  layer[$1] = 1
  for (i = 2; i <= NF; i++) {
    if (!($i in layer)) report(FNR, $1 " may not include " $i ": rows go from the lowest layer up")
    allowed[$1, $i] = 1
  }
  next
}
FILENAME == "tools/case-allow.txt" {
  if ($1 != "" && $1 !~ /^#/) case_file[$1] = 1
  next
}

FNR == 1 { start_file() }
{ lines = FNR }
/\t/ { report(FNR, "tab") }
/[ \r]$/ { report(FNR, "space at the end of the line") }
length($0) > 100 && is_c && !is_table { # rows of tables may be longer
  text = $0
  gsub(/[\200-\277]/, "", text) # bytes after the first of a character
  if (length(text) > 100) report(FNR, "longer than 100 columns")
}
/^#include "/ { check_include() }
/^[A-Z]+\(/ && FILENAME ~ /\/ops\.def$/ && ($0 !~ /"\)[ ]*$/ || $0 ~ /""\)[ ]*$/) {
  report(FNR, "an op row ends with a line that says what the op does")
}
/^ \* -----+ \*\/$/ { report(FNR, "a heading that was wrapped: it is one line of 100 characters") }
/TODO|FIXME|XXX|[Ff]or now|[Nn]ot implemented|[Ss]tub|[Pp]laceholder/ { check_words() }
{
  if (!is_c) next
  if (!in_comment && index($0, "/") == 0 && index($0, "\"") == 0 && index($0, "'") == 0) code = $0
  else code = strip($0)
  if (index(code, "(")) check_calls(code)
  if (!may_case && code ~ /(^|[^A-Za-z0-9_])case[ ]+OP_/)
    report(FNR, "switch on the op kind: give ops.def a field, or list this file in tools/case-allow.txt")
  if (in_define || code ~ /^[ ]*#/) {
    in_define = code ~ /\\$/
    next
  }
  check_function(code)
}
END {
  if (file != "") end_file()
  exit bad
}
