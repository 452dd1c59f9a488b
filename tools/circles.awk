# Finds files that use each other in a circle; tools/lint feeds it the sources, then what nm says of
# the objects.  Prints `file:0: what` for each set of files that reach each other (a strongly
# connected component, by Tarjan's algorithm), with up to three of the names that each takes from
# the next.
#
# A file is a .c with its .h; the objects of one source, an instruction set each, are one file.  It
# uses another when it names a function or a variable that is defined there.  A file without
# functions is a table: the functions in its rows are not what it calls.

function visit(v,    k, n, to) {
  number[v] = low[v] = ++visited
  stack[++depth] = v
  open[v] = 1
  n = split(edges[v], to, " ")
  for (k = 1; k <= n; k++) {
    if (!(to[k] in number)) {
      visit(to[k])
      if (low[to[k]] < low[v]) low[v] = low[to[k]]
    } else if (open[to[k]] && number[to[k]] < low[v])
      low[v] = number[to[k]]
  }
  if (low[v] == number[v]) close_component(v)
}

# The files of the component of v lie on the stack from v on.
function close_component(v,    w, size) {
  do {
    w = stack[depth--]
    open[w] = 0
    component[w] = v
    size++
  } while (w != v)
  if (size > 1) circle[v] = size
}

function name_of(path) {
  sub(/.*\//, "", path)
  sub(/\..*/, "", path)
  return path
}

/^[^ ]+\.c$/ { path[name_of($0)] = $0; next }
/:$/ { file = name_of($0); next }
NF == 3 && $2 ~ /[tT]/ { has_code[file] = 1 }
NF == 3 && $2 ~ /[A-Z]/ { defined[$3] = file }
NF == 2 && $1 == "U" && !((file, $2) in seen) {
  seen[file, $2] = 1
  user[++uses] = file
  used[uses] = $2
}

END {
  for (i = 1; i <= uses; i++) {
    from = user[i]
    if (!(from in has_code) || !(used[i] in defined) || defined[used[i]] == from) continue
    to = defined[used[i]]
    if (!((from, to) in count)) edges[from] = edges[from] " " to
    if (++count[from, to] <= 3) names[from, to] = names[from, to] " " used[i]
  }
  for (v in edges)
    if (!(v in number)) visit(v)
  for (v in circle) {
    text = ""
    for (pair in names) {
      split(pair, end, SUBSEP)
      if (component[end[1]] == v && component[end[2]] == v)
        text = text "; " end[1] " -> " end[2] " (" substr(names[pair], 2) ")"
    }
    printf "%s:0: %d files use each other in a circle%s\n", path[v], circle[v], text
  }
}
