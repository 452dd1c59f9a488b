#!/bin/sh
# hyper generate: its forms, sampling, where defaults come from, and what it refuses.
. "$(dirname "$0")/lib.sh"
compile_quickly
. "$ROOT/tests/cli/model_lib.sh"

# Tokens that a command generated, with commas.
made() { json out tokens | tr -d '[] '; }
count() { made | tr ',' '\n' | grep -c .; }
gen() { run generate --model m --tokens 5,6,7 --json "$@"; }
model mistral-window

it "generate --json is one line with six keys in order"
gen --max-new-tokens 4
exit_is 0
[ "$(wc -l <out)" = 1 ] || fail "more than one line"
grep -qE '^\{"prompt_tokens": \[5, 6, 7\], "tokens": \[[0-9]+(, [0-9]+){3}\], "text": "", "tokens_per_s": [0-9.e+-]+, "first_token_s": [0-9.e+-]+, "load_s": [0-9.e+-]+\}$' out ||
  { fail "another form"; t_show; }

it "without --json ids come out plain when there is no tokenizer"
want=$(made | tr ',' ' ')
run generate --model m --tokens 5,6,7 --max-new-tokens 4
exit_is 0
out_is "$want"

it "greedy is the default, and is what temperature 0, top-k 1 and a tiny top-p give"
gen --max-new-tokens 12
greedy=$(made)
for o in "--temperature 0" "--temperature 1 --top-k 1" "--temperature 1 --top-p 1e-9" "--temperature 1e-6"; do
  gen --max-new-tokens 12 $o
  exit_is 0
  [ "$(made)" = "$greedy" ] || fail "$o: $(made), want $greedy"
done

it "the first token is the argmax of the logits, also of a prompt of several chunks"
long=$(awk 'BEGIN { for (i = 0; i < 150; i++) printf i ? ",%d" : "%d", (i * 7 + 3) % 64 }')
run generate --model m --tokens "$long" --json --max-new-tokens 1
exit_is 0
first=$(made)
run logits --model m --tokens "$long" --out l
[ "$(st_argmax l $((149 * 64)) 64)" = "$first" ] || fail "token $first, argmax $(st_argmax l $((149 * 64)) 64)"

it "a prompt may fill the learned positions"
full=$(awk 'BEGIN { for (i = 0; i < 28; i++) printf i ? ",%d" : "%d", (i * 7 + 3) % 64 }')
run generate --model "$CASES/gpt2-base-names" --tokens "$full" --json --max-new-tokens 4
exit_is 0
four=$(made)
run logits --model "$CASES/gpt2-base-names" --tokens "$full,$four" --out l
want=$(for i in 27 28 29 30; do st_argmax l $((i * 64)) 64; done | tr '\n' ',')
[ "$four," = "$want" ] || fail "tokens $four, argmax $want"

it "a seed gives the same tokens twice, another seed others"
gen --temperature 1 --seed 7 --max-new-tokens 24
exit_is 0
one=$(made)
gen --temperature 1 --seed 7 --max-new-tokens 24 --threads 1
[ "$(made)" = "$one" ] || fail "the same seed gave other tokens"
gen --temperature 1 --seed 8 --max-new-tokens 24
[ "$(made)" != "$one" ] || fail "another seed gave the same tokens"
[ "$one" != "$greedy" ] || fail "sampling gave the greedy tokens"

it "a seed's draws go on alike whatever the limit"
gen --temperature 1 --seed 7 --max-new-tokens 5
case $one in "$(made),"*) ;; *) fail "$(made) is no beginning of $one" ;; esac

it "top-k draws from the k likeliest"
for seed in 1 2 3 4 5 6; do
  gen --temperature 100 --top-k 2 --seed $seed --max-new-tokens 1
  made
done | sort | uniq >drawn
run logits --model m --tokens 5,6,7 --out l
best=$(st_argmax l 128 64)
[ "$(wc -l <drawn)" = 2 ] || fail "$(wc -l <drawn) different tokens, want 2"
grep -qx "$best" drawn || fail "the likeliest was never drawn"

it "a large repetition penalty leaves no token twice"
gen --repetition-penalty 1e9 --max-new-tokens 16
exit_is 0
[ "$(printf '5,6,7,%s' "$(made)" | tr ',' '\n' | sort | uniq -d)" = "" ] || fail "repeats: $(made)"

it "defaults come from generation_config.json, options win"
echo '{"max_new_tokens": 3}' >m/generation_config.json
gen
exit_is 0
[ "$(count)" = 3 ] || fail "$(count) tokens, want 3"
gen --max-new-tokens 5
[ "$(count)" = 5 ] || fail "$(count) tokens, want 5"
echo '{"do_sample": true, "temperature": 50.0, "max_new_tokens": 12}' >m/generation_config.json
gen --seed 1
sampled=$(made)
[ "$sampled" != "$greedy" ] || fail "do_sample made no difference"
gen --temperature 0
[ "$(made)" = "$greedy" ] || fail "--temperature 0 is not greedy"
echo '{"temperature": 50.0, "top_p": 0.5, "max_new_tokens": 12}' >m/generation_config.json
gen
[ "$(made)" = "$greedy" ] || fail "a temperature without do_sample made a difference"
rm m/generation_config.json

it "generation ends at an end token, which is the last"
second=$(echo "$greedy" | cut -d, -f2)
first=$(echo "$greedy" | cut -d, -f1)
echo "{\"eos_token_id\": [63, $second]}" >m/generation_config.json
gen
exit_is 0
[ "$(made)" = "$first,$second" ] || fail "$(made), want $first,$second"
rm m/generation_config.json
set_key eos_token_id "$first"
gen
[ "$(made)" = "$first" ] || fail "$(made), want $first"
set_key eos_token_id null

it "the text of the prompt is tokenized, and printed in front"
if stories; then
  run generate --model stories --prompt "Once upon a time" --max-new-tokens 8 --json
  exit_is 0
  json_is out prompt_tokens "[1,403,407,261,378]"
  text=$(json out text)
  run generate --model stories --prompt "Once upon a time" --max-new-tokens 8
  out_is "Once upon a time$text"
  run generate --model stories --prompt "Once upon" --max-new-tokens 2
  out_is "Once upon a time"
  run generate --model stories --prompt "Once upon a time" --max-new-tokens 0
  refused max_new_tokens
  out_is ""
fi

it "prompts of a file are continued side by side, each as by itself"
if stories; then
  printf 'Once upon a time\n\nThere was\r\nA little girl named' >prompts
  run generate --model stories --prompts prompts --max-new-tokens 24 --json
  exit_is 0
  mv out all
  [ "$(wc -l <all)" = 3 ] || fail "$(wc -l <all) lines, want 3"
  n=0
  for text in "Once upon a time" "There was" "A little girl named"; do
    n=$((n + 1))
    run generate --model stories --prompt "$text" --max-new-tokens 24 --json
    want=$(made)
    sed -n "${n}p" all >out
    [ "$(made)" = "$want" ] || fail "$text: $(made), want $want"
  done
  # a block is room for one of them at a time
  block=$(sed -n 's/.*"hidden_size": *\([0-9]*\).*/\1/p' stories/config.json)
  run generate --model stories --prompts prompts --max-new-tokens 24 --json --kv-cache $((block * 2048))
  exit_is 0
  cut -d'"' -f1-6 all >want
  cut -d'"' -f1-6 out | cmp -s - want || fail "other tokens where prompts wait"
  run generate --model stories --prompts prompts --max-new-tokens 4 --offload kv=host
  exit_is 0
  grep -q "^There was" out || fail "no second text"
  : >empty
  run generate --model stories --prompts empty
  refused "there is no prompt"
fi

it "conversations of a file are answered by the model's chat template, each as by itself"
if stories; then
  rm -rf talk && cp -r stories talk
  cat >talk/chat_template.jinja <<'END'
{{- bos_token }}
{%- for m in messages %}{{ m.content }}{% endfor %}
{%- if tools %} {{ tools[0].name }}{% endif %}
{%- if add_generation_prompt %} a{% endif %}
END
  cat >chats <<'END'
[{"role": "user", "content": "Once upon"}]

{"messages": [{"role": "system", "content": "There"}, {"role": "user", "content": " was"}]}
{"messages": [{"role": "user", "content": "A little"}], "tools": [{"name": "girl named"}]}
END
  run generate --model talk --messages chats --max-new-tokens 24 --json
  exit_is 0
  mv out all
  [ "$(wc -l <all)" = 3 ] || fail "$(wc -l <all) lines, want 3"
  n=0
  for text in "Once upon a" "There was a" "A little girl named a"; do
    n=$((n + 1))
    run generate --model talk --prompt "$text" --max-new-tokens 24 --json
    want=$(json out prompt_tokens) answer=$(json out text) tokens=$(made)
    sed -n "${n}p" all >out
    [ "$(json out prompt_tokens)" = "$want" ] || fail "$text: prompt $(json out prompt_tokens), want $want"
    [ "$(made)" = "$tokens" ] || fail "$text: $(made), want $tokens"
    printf '%s\n' "$answer" >>answers
  done
  run generate --model talk --messages chats --max-new-tokens 24
  exit_is 0
  cmp -s out answers || { fail "other answers"; t_show; }

  : >empty
  run generate --model talk --messages empty
  refused "empty: there is no prompt"
  printf '[{"role": "user", "content": "a"}]\n[5]\n' >bad
  run generate --model talk --messages bad
  refused "bad:2:2" "expected a map of keys, found 5"
  printf '[{"role": "user"\n' >bad
  run generate --model talk --messages bad
  refused "bad:1:17"
  run generate --model talk --messages chats --prompt a
  refused "--messages"
  echo "{{ messages[0].content.x.y }}" >talk/chat_template.jinja
  run generate --model talk --messages chats
  refused "talk/chat_template.jinja:1:" "no attribute 'x'"
  echo "{% include 'x' %}" >talk/chat_template.jinja
  run generate --model talk --messages chats
  [ "$status" != 0 ] || fail "a template beyond the subset is taken"
  err_has "talk/chat_template.jinja:1:4" 'the tag "include" is not supported'
  run generate --model stories --messages chats
  refused "stories: the model has no chat template" "tokenizer_config.json"
fi

it "--stop ends where the text appears, and leaves it out"
if stories; then
  run generate --model stories --tokens 1 --stop " named Lily" --json --max-new-tokens 100
  exit_is 0
  json_is out text "Once upon a time, there was a little girl"
  run generate --model stories --tokens 1 --stop " named Lily" --max-new-tokens 100
  out_is "Once upon a time, there was a little girl"
  run generate --model stories --tokens 1 --stop "never seen" --json --max-new-tokens 9
  json_is out text "Once upon a time, there was a little"
fi

# --- bad input ------------------------------------------------------------------------------------

it "generate refuses options that make no sense"
gen --temperature -1
refused "temperature -1"
gen --temperature warm
refused "--temperature" '"warm"'
gen --top-p 0
refused "top_p 0"
gen --top-p 1.5
refused "top_p 1.5"
gen --top-k -1
refused "top_k -1"
gen --repetition-penalty 0
refused "repetition_penalty 0"
gen --max-new-tokens 0
refused "max_new_tokens 0"
gen --seed 1.5
refused "--seed" "whole number"
gen --temprature 1
refused "--temprature" "did you mean --temperature?"

it "generate wants a prompt or tokens, not both"
run generate --model m
refused "--prompt or --tokens"
run generate --model m --prompt a --tokens 1
refused "--prompt or --tokens"
run generate --model m --prompt abc
refused "m: no tokenizer there"
run generate --prompt abc
refused "--model DIR is missing"

it "generate refuses tokens that are none"
for t in "" "1," "1,,2" "a" "-1" "1 2" 99999999999; do
  run generate --model m --tokens "$t"
  refused "--tokens"
  one_message 1
done
run generate --model m --tokens 1,64
refused "token id 64 at place 1" "0..63"

it "generate refuses more tokens than a model with learned positions has"
run generate --model "$CASES/gpt2-base-names" --tokens 1 --max-new-tokens 32
refused "learned positions for 32"
run generate --model "$CASES/gpt2-base-names" --tokens 1 --max-new-tokens 31 --json
exit_is 0

it "generate refuses room for more tokens than the machine has memory for"
gen --max-new-tokens 500000000
refused "capacity of 500000003 tokens" "tokens fit" max_new_tokens
one_message 1
gen --max-new-tokens 1000000 --memory-limit 2MiB
refused "memory limit 2097152" "a cache for 1000032 tokens"

it "a cache may be given its bytes, and is refused if prompt and limit do not fit"
gen --max-new-tokens 60 --kv-cache 12KiB
exit_is 0
all=$(made)
gen --max-new-tokens 60
[ "$(made)" = "$all" ] || fail "other tokens with a cache of 12 KiB"
gen --max-new-tokens 62 --kv-cache 12KiB
refused "65 tokens need 3 blocks of 6.0 KiB" "it has 2"
one_message 1

it "keys and values of a pipeline stay on its devices"
write groups.yaml <<END
hyper_parallel:
  groups:
    text: {devices: 0-1, module: model, strategy: pp=2}
END
for where in "--strategy pp=2" "--groups groups.yaml"; do
  gen --offload weights=host,kv=host $where
  refused "--offload weights=host,kv=host and $where: keys and values of a pipeline stay on the devices" "leave kv out"
  one_message 1
done
run bench decode --model m --strategy pp=2 --offload kv=host
refused "--offload kv=host and --strategy pp=2: keys and values of a pipeline"
gen --max-new-tokens 600 --strategy pp=2 --memory-limit 60% # auto moves none of them
refused "is too small, also with offloading" "with a cache for"

it "generate refuses a damaged generation_config.json and says where"
for t in '{"eos_token_id": "x"}' '{' '{"do_sample": 1}' '{"max_new_tokens": "x"}' '{"do_sample": true, "top_p": 2}' \
  '{"eos_token_id": 99999999999}'; do
  echo "$t" >m/generation_config.json
  gen
  refused m/generation_config.json
  one_message 1
done
rm m/generation_config.json

it "a damaged tokenizer is not passed over because ids were given"
echo '{' >m/tokenizer.json
gen
refused m/tokenizer.json
