#!/bin/sh
# hyper eval: its forms, its windows, and what it refuses.
. "$(dirname "$0")/lib.sh"
compile_quickly
. "$ROOT/tests/cli/model_lib.sh"
M=$CASES/llama-dynamic # 12 positions
ids=$(ids llama-dynamic sequences.0) # 29 of them
cut_ids() { echo "$ids" | cut -d, -f"$1"; }
score() { run eval --model "$M" --json --tokens "$@"; exit_is 0; }

it "eval --json is one line with three keys"
score "$(cut_ids 1-12)"
grep -qE '^\{"tokens": 11, "nll": [0-9.]+, "ppl": [0-9.]+\}$' out || { fail "another form"; t_show; }
json_near out ppl "$(awk -v x="$(json out nll)" 'BEGIN { print exp(x) }')" 1e-4

it "eval without --json is a line for people"
run eval --model "$M" --tokens "$(cut_ids 1-12)"
exit_is 0
out_has "11 predictions, mean NLL "

it "eval is the loss that grads gives"
score "$(cut_ids 1-12)"
nll=$(json out nll)
run grads --model "$M" --tokens "$(cut_ids 1-12)" --out g
json_near out loss "$nll" 1e-6

it "windows are max_position_embeddings long, and predict all but their first token"
score "$ids"
json_is out tokens 26
cp out all
sum=0
for w in 1-12 13-24 25-29; do
  score "$(cut_ids $w)"
  sum=$(awk -v s="$sum" -v n="$(json out tokens)" -v x="$(json out nll)" 'BEGIN { printf "%.12g", s + n * x }')
done
json_near all nll "$(awk -v s="$sum" 'BEGIN { printf "%.12g", s / 26 }')" 1e-6

it "--seq sets the window, a last one of one token predicts nothing"
score "$ids" --seq 7
json_is out tokens 24
score "$ids" --seq 29
json_is out tokens 28
err_has "max_position_embeddings 12"

it "--batch changes no figure"
score "$ids" --seq 5 --batch 1
cp out one
score "$ids" --seq 5 --batch 3
[ "$(cat one)" = "$(cat out)" ] || fail "$(cat out), want $(cat one)"

it "eval reads a text, with the special tokens of the tokenizer"
if stories; then
  printf '%s' "$LILY" >lily.txt
  run eval --model stories --data lily.txt --seq 16 --json
  exit_is 0
  json_is out tokens 42
fi

# --- bad input ------------------------------------------------------------------------------------

it "eval refuses a text that is too short, and names it"
if stories; then
  : >empty.txt
  run eval --model stories --data empty.txt
  refused empty.txt "at least two"
  one_message 1
fi
run eval --model "$M" --tokens 5
refused "at least two"

it "eval refuses what makes no sense"
run eval --model "$M" --data lily.txt
refused "no tokenizer there"
run eval --model "$M" --tokens 1,64
refused "token id 64" "0..63"
run eval --model "$M" --tokens 1,2 --seq 1
refused "--seq 1"
run eval --model "$M" --tokens 1,2 --seq -3
refused "--seq"
run eval --model "$M"
refused "--data or --tokens"
run eval --model "$CASES/gpt2-base-names" --tokens 1,2 --seq 33
refused "32 learned positions"
run eval --model "$M" --tokens 1,2 --batchs 3
refused "--batchs" "did you mean --batch?"

it "eval names the file that is not there"
if stories; then
  run eval --model stories --data nowhere.txt
  refused nowhere.txt "No such file"
  one_message 1
fi
