# The prototypes of hyperparallel.h as rows of a table: name, what it gives, names of its pointer
# arguments in order.
#   X(hp_write, 's', "d name data")
# gives: s a status, t a tensor, p a pointer, v nothing, n another value.
{ text = text $0 "\n" }
END {
  gsub(/\/\*([^*]|\*+[^*\/])*\*+\//, " ", text)
  gsub(/#[^\n]*/, " ", text)
  sub(/extern "C" \{/, " ", text)
  while (match(text, /\{[^{}]*\}/)) # members of structs and enums
    text = substr(text, 1, RSTART - 1) " " substr(text, RSTART + RLENGTH)
  gsub(/[ \t\n]+/, " ", text)
  n = split(text, statement, ";")
  print "#define API_FUNCTIONS(X) \\"
  for (i = 1; i <= n; i++) {
    s = statement[i]
    if (s ~ /typedef/ || !match(s, /hp_[a-z0-9_]+\(/)) continue
    name = substr(s, RSTART, RLENGTH - 1)
    before = substr(s, 1, RSTART - 1)
    inside = substr(s, RSTART + RLENGTH)
    sub(/\)[^)]*$/, "", inside)
    gives = before ~ /\*/ ? "p" : before ~ /hp_status/ ? "s" : before ~ /hp_tensor/ ? "t" : before ~ /void/ ? "v" : "n"
    pointers = ""
    k = split(inside, argument, ",")
    for (j = 1; j <= k; j++) {
      if (argument[j] !~ /\*|hp_fill_fn/) continue
      word = argument[j]
      sub(/^.*[* ]/, "", word)
      pointers = pointers (pointers == "" ? "" : " ") word
    }
    printf "  X(%s, '%s', \"%s\") \\\n", name, gives, pointers
  }
  print ""
}
