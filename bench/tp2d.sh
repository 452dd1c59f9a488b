#!/bin/sh
# Tensor parallelism in one, two and two and a half dimensions: what a device receives in a training
# step, as planned, and its work memory.  2.5D: the params of 2D are cut over dp too (zero=3).
# usage: bench/tp2d.sh CONFIG.json BATCH SEQ
set -eu
HYPER=${HYPER:-build/hyper}
[ $# = 3 ] || { sed -n 's/^# usage: /usage: /p' "$0" >&2; exit 2; }

line() {
  "$HYPER" bench compile --model "$1" --batch "$2" --seq "$3" --strategy "$4" --json --recompute |
    sed 's/.*"received_bytes": \([0-9.e+]*\).*"work_bytes": \([0-9.e+]*\).*/\1 \2/' |
    awk -v name="$4" -v form="$5" '{ printf "| %s | %s | %.2f | %.2f |\n", form, name, $1 / 2^30, $2 / 2^30 }'
}

echo "| form | strategy | received, GiB | work memory, GiB |"
echo "|---|---|---|---|"
line "$@" tp=8,sp 1D
line "$@" tp=4,tp_y=2 2D
line "$@" tp=2,tp_y=4 2D
line "$@" tp=16,sp 1D
line "$@" tp=8,tp_y=2 2D
line "$@" tp=4,tp_y=4 2D
line "$@" tp=8,dp=2,zero=3,sp "1D, params over dp"
line "$@" tp=4,tp_y=2,dp=2,zero=3 2.5D
line "$@" tp=2,tp_y=2,dp=4,zero=3 2.5D
