# Helpers of the scripts that run models; sourced after lib.sh.
CASES=$ROOT/tests/golden/cases

# A committed case as ./m, to be changed at will.
model() {
  rm -rf m && mkdir m && cp "$CASES/$1"/* m/ && chmod -R u+w m
}
# Value of a key of m/config.json.
set_key() {
  grep -q "^ *\"$1\": " m/config.json || fail "m/config.json has no $1"
  sed -i "s|^\( *\"$1\": \)[^,]*\(,\{0,1\}\)\$|\1$2\2|" m/config.json
}
# Ids of a list in a case's tokens.json, with commas: ids CASE sequences.0
ids() { json "$CASES/$1/tokens.json" "$2" | tr -d '[] '; }

# Tensors of a safetensors file: "NAME DTYPE [SHAPE]" each.
tensors() { "$HYPER" inspect --all "$1" | sed -n 's/^  \([^ ]*\) *\([^ ]*\) *\(\[.*\]\)$/\1 \2 \3/p'; }
tensors_are() { # FILE, and the tensors on standard input
  tensors "$1" >have
  cat >want
  cmp -s have want || { fail "$1 holds other tensors than expected"; diff want have | sed 's/^/    /'; }
}
# The n-th float of the data of a safetensors file, from 0.
st_float() {
  st_n=$(od -An -tu8 -N8 "$1" | tr -d ' ')
  od -An -tfF -j $((8 + st_n + 4 * $2)) -N4 "$1" | tr -d ' '
}
# Place of the largest of n floats from the given one on.
st_argmax() {
  st_n=$(od -An -tu8 -N8 "$1" | tr -d ' ')
  od -An -v -tfF -w4 -j $((8 + st_n + 4 * $2)) -N $((4 * $3)) "$1" |
    awk 'NR == 1 || $1 > best { best = $1; at = NR - 1 } END { print at }'
}

# stories260K as ./stories; false, and the test is skipped, without HYPER_DATA.
stories() {
  need_data model/stories260K.bin || return 1
  [ -d stories ] || "$HYPER" convert "$DATA/model/stories260K.bin" stories --tokenizer "$DATA/model/tok512.bin" >/dev/null
}
LILY="Once upon a time, there was a little girl named Lily. She loved to play outside in the park. One day, she saw a big, red ball."
