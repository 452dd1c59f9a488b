#!/bin/sh
# hyper chat: answers, history, commands, templates, Ctrl-C, tools, LlamaFactory's YAML.
. "$(dirname "$0")/lib.sh"
. "$ROOT/tests/cli/train_lib.sh"
. "$ROOT/tests/cli/process_lib.sh"

# A tiny model with the tokenizer of the templates' tests, trained on one conversation that calls a
# tool; and an adapter of it that was trained on others.
make_job job </dev/null
chats=$ROOT/tests/golden/chats
mkdir data
cat >data/dataset_info.json <<'END'
{"one": {"file_name": "one.json", "formatting": "sharegpt", "columns": {"messages": "conversations", "tools": "tools"}}}
END
cat >data/one.json <<'END'
[{"conversations": [{"from": "human", "value": "Is it warm?"}, {"from": "function_call", "value": "{\"name\": \"weather\", \"arguments\": {\"city\": \"Rome\"}}"},
  {"from": "observation", "value": "31"}, {"from": "gpt", "value": "Yes."}],
  "tools": "[{\"name\": \"weather\", \"description\": \"\", \"parameters\": {\"type\": \"object\", \"properties\": {}}}]"}]
END
cat >tools.json <<'END'
[{"name": "weather", "description": "", "parameters": {"type": "object", "properties": {}}}]
END
cp "$chats"/tokenizer* job/model/
sed -i 's/"vocab_size": [0-9]*/"vocab_size": 600/; s/"max_position_embeddings": [0-9]*/"max_position_embeddings": 4096/' job/model/config.json
sed -i 's/^stage: pt/stage: sft/; s/^dataset: .*/dataset: one/; s/^cutoff_len: .*/cutoff_len: 512/; s/^max_steps: .*/max_steps: 120/
  s/^per_device_train_batch_size: .*/per_device_train_batch_size: 1/; s/^learning_rate: .*/learning_rate: 0.01/; s/^save_steps: .*/save_steps: 1000/' job/job.yaml
printf 'dataset_dir: data\ntemplate: qwen\n' >>job/job.yaml
"$HYPER" train job/job.yaml >/dev/null 2>&1 || exit 1
"$HYPER" train job/job.yaml finetuning_type=lora model_name_or_path=job/out train_from_scratch=false output_dir=adapter \
  dataset=alpaca dataset_dir="$chats" max_steps=12 >/dev/null 2>&1 || exit 1
# The same with a chat template of its own, of one line a message.
cp -r job/out own
cat >own/chat_template.jinja <<'END'
{%- if tools %}{{ tools | length }} tools
{% endif %}{%- for m in messages %}{{ m.role }}: {{ m.content }}
{% endfor %}{%- if enable_thinking is defined %}thinks {{ enable_thinking }}
{% endif %}assistant:
END

# chat LINES WORDS: printf writes the lines to standard input; stdout and stderr to the files out and
# err.
chat() {
  t_cmd="chat $*"
  status=0
  printf "$1" >in
  shift
  "$HYPER" chat "$@" <in >out 2>err || status=$?
}
talk() { chat "$@" --json --max-new-tokens 8; } # short, as JSON lines
# The answer in line N of a file, from 0: of FILE N KEY
of() {
  sed -n "$(($2 + 1))p" "$1" >line
  json line "$3" | tr -d '[] '
}
prompt() { of out "$1" prompt_tokens; }
answer() {
  sed -n "$(($1 + 1))p" out >line
  json line text
}

it "in a pipe each line is a message, and stdout has the answers alone"
chat 'One\n\nTwo\r\nThree' --model own --max-new-tokens 8
exit_is 0
nothing_on_stderr
mv out plain
talk 'One\nTwo\nThree' --model own
exit_is 0
[ "$(wc -l <out)" = 3 ] || fail "$(wc -l <out) answers, expected 3"
for i in 0 1 2; do answer $i; done >want
same_file plain want

it "greedy answers are those of generate --messages for the conversation so far"
talk 'One\nTwo\n/save two.json\n' --model own --system "Be kind"
exit_is 0
json_is two.json messages.0.role system
json_is two.json messages.0.content "Be kind"
json_is two.json messages.1.content One
json_is two.json messages.2.role assistant
json_is two.json messages.2.content "$(answer 0)"
json_is two.json messages.3.content Two
json_is two.json messages.4.content "$(answer 1)"
mv out talked
sed 's/, {"role": "assistant", "content": "[^{]*"}\]}$/]}/' two.json >asked.json
cmp -s two.json asked.json && fail "the last answer is still there"
run generate --model own --messages asked.json --json --max-new-tokens 8
exit_is 0
[ "$(of out 0 tokens)" = "$(of talked 1 tokens)" ] || fail "another answer than generate's"
[ "$(prompt 0)" = "$(of talked 1 prompt_tokens)" ] || fail "another prompt than generate's"

it "generate --messages --template answers many conversations, each as chat does"
talk 'One\nTwo\n/save two.json\n' --model job/out --template qwen --system "Be kind"
exit_is 0
mv out talked
{
  echo '[{"role": "system", "content": "Be kind"}, {"role": "user", "content": "One"}]'
  sed 's/, {"role": "assistant", "content": "[^{]*"}\]}$/]}/' two.json
} >many.json
run generate --model job/out --template qwen --messages many.json --json --max-new-tokens 8
exit_is 0
for i in 0 1; do
  [ "$(of out $i prompt_tokens)" = "$(of talked $i prompt_tokens)" ] || fail "another prompt than chat's"
  [ "$(of out $i tokens)" = "$(of talked $i tokens)" ] || fail "another answer than chat's"
done
first=$(of out 0 prompt_tokens)
printf '{"messages": [{"role": "user", "content": "One"}], "tools": %s}\n' "$(cat tools.json)" >tooled
run generate --model job/out --template qwen --messages tooled --json --max-new-tokens 8
exit_is 0
tooled=$(of out 0 prompt_tokens)
talk 'One\n' --model job/out --template qwen --tools tools.json
[ "$tooled" = "$(prompt 0)" ] || fail "another prompt with tools than chat's"
bad_chat() { # WHY LINE
  printf '%s\n' "$2" >bad
  run generate --model job/out --template qwen --messages bad
  refused "bad:1" "$1"
}
bad_chat 'expected a question of role user or tool as the last message' "$(cat two.json)"
bad_chat '"bot" is no role; expected system, user, assistant or tool' '[{"role": "bot", "content": "a"}]'
bad_chat '[1].role: expected an answer, of role assistant' '[{"role": "user", "content": "a"}, {"role": "user", "content": "a"}]'
bad_chat '[0].content: expected a string, found a list' '[{"role": "user", "content": []}]'
bad_chat '[0]: expected a message with "role" and "content"' '[{"role": "user"}]'
bad_chat '"messages" is missing' '{"message": []}'
bad_chat '[1].role: expected the system message as the first one' '[{"role": "user", "content": "a"}, {"role": "system", "content": "b"}]'
bad_chat '[0].tool_calls: calls are not written by --template' '[{"role": "assistant", "tool_calls": []}]'
printf '[\n{"role": "user", "content": "a"}\n]\n' >bad
run generate --model job/out --template qwen --messages bad
refused "bad:1:2: " "each line of the file is a conversation of its own, as JSON"
run generate --model job/out --template qwen --prompt a
refused "--template is for conversations: give a file of --messages"
run generate --model job/out --template qwne --messages many.json
refused 'there is no template "qwne"'

it "the second prompt begins as the first one, and has its answer"
talk 'One\nTwo\n' --model job/out --template qwen
exit_is 0
first=$(prompt 0)
made=$(of out 0 tokens)
case $(prompt 1) in "$first,$made",*) ;; *) fail "the second prompt begins otherwise" ;; esac

it "/reset forgets the messages"
talk 'One\n/reset\nTwo\n/reset\nOne\n' --model job/out --template qwen
exit_is 0
[ "$(prompt 2)" = "$first" ] || fail "another prompt after /reset"
[ "$(answer 2)" = "$(answer 0)" ] || fail "another answer after /reset"

it "--system and /system set the system message, and /system alone removes it"
talk 'One\n' --model job/out --template qwen --system "Be kind"
said=$(prompt 0)
[ "$said" != "$first" ] || fail "--system changed nothing"
talk '/system  Be kind \nOne\n/reset\n/system\nOne\n' --model job/out --template qwen
exit_is 0
[ "$(prompt 0)" = "$said" ] || fail "/system is not as --system"
[ "$(prompt 1)" = "$first" ] || fail "/system without a text did not remove it"

it "an answer ends at the end token of the template; tools are described, calls shown, results answered"
chat 'Is it warm?\n/tool 31\n/save used.json\n' --model job/out --template qwen --tools tools.json --max-new-tokens 100
exit_is 0
err_has 'the model calls weather {"city": "Rome"}'
json_is used.json tools.0.name weather
json_is used.json messages.2.role tool
json_is used.json messages.2.content 31
json_is used.json messages.3.content Yes.
[ "$(tail -1 out)" = Yes. ] || { fail "another answer to the result"; t_show; }
chat 'Is it warm?\n/tool 31\n' --model job/out --template qwen --tools tools.json --max-new-tokens 100 --json
id=$("$HYPER" tokenize --model job/out '<|im_end|>' | tr -cd '0-9')
case $(of out 1 tokens) in *,"$id") ;; *) fail "the last token is not $id: $(of out 1 tokens)" ;; esac
[ "$(of out 1 tokens | tr ',' '\n' | wc -l)" -lt 20 ] || fail "it went on after its end"
chat 'Is it warm?\n' --model job/out --template qwen --max-new-tokens 100
err_lacks 'the model calls'
talk 'One\n' --model own
without=$(prompt 0)
talk 'One\n' --model own --tools tools.json
[ "$(prompt 0)" != "$without" ] || fail "the model's own template does not see the tools"
echo '{}' >bad.json
chat '' --model own --tools bad.json
exit_is 2
err_has 'bad.json:1:1: expected a list'
chat '' --model own --tool-format qwen
exit_is 2
err_has 'write --template NAME'

it "a message that cannot be answered is forgotten"
cp -r own picky
sed -i 's/{%- for m in messages %}/&{% if m.content == "Bad" %}{{ raise_exception("bad") }}{% endif %}/' picky/chat_template.jinja
chat 'One\nBad\n/save kept.json\nTwo\n' --model picky --max-new-tokens 2
exit_is 2
err_has bad
[ "$(wc -l <out)" = 2 ] || fail "the message behind it was not answered"
grep -q Bad kept.json && fail "it is still in the conversation"

it "commands that fail are told, the talk goes on, and the exit code is 2"
chat '/rest\nOne\n' --model own --max-new-tokens 8
exit_is 2
err_has 'there is no command /rest (did you mean /reset?)'
[ "$(wc -l <out)" = 1 ] || fail "the line behind it was not answered"
chat '/reset now\n' --model own
exit_is 2
err_has '/reset: "now" is not expected'
chat '/save\n' --model own
exit_is 2
err_has 'write /save FILE'
chat '/save no/where.json\n' --model own
exit_is 2
err_has 'no/where.json'
chat '/tool 5\n' --model own
exit_is 2
err_has '/tool: there is no answer yet'
chat '/help\n/exit\nOne\n' --model own
exit_is 0
err_has '/system TEXT'
[ ! -s out ] || fail "a line behind /exit was answered"
chat '//One\n/save slash.json\n' --model own --max-new-tokens 2
exit_is 0
json_is slash.json messages.0.content /One

it "/save replaces a file, and leaves nothing else"
echo old >saved.json
chat '/save saved.json\nOne\n/save saved.json\n' --model own --max-new-tokens 2
exit_is 0
json_is saved.json messages.0.role user
[ "$(ls | grep -c saved.json)" = 1 ] || fail "a temporary file is left"

it "a trained model has the template that it was trained with"
talk 'Is it warm?\n' --model job/out --template qwen
prompt 0 >named
talk 'Is it warm?\n' --model job/out
exit_is 0
prompt 0 | diff named - >/dev/null || fail "another prompt"

# refuses SAYS WORDS: before anything is answered.
refuses() {
  says=$1
  shift
  chat 'One\n' "$@"
  exit_is 2
  err_has "$says"
  one_message
  [ ! -s out ] || fail "it answered"
}
it "refuses templates, folders and options that do not fit"
refuses 'there is no template "qwn" (did you mean "qwen"?)' --model own --template qwn
cp -r job/out bare
rm bare/chat_template.jinja
refuses 'bare: the model has no chat template' --model bare
refuses 'write --template NAME' --model bare
cp -r job/out poor
sed 's/<|eot_id|>/<|other|>/g' "$chats/tokenizer.json" >poor/tokenizer.json
refuses 'template llama3 ends texts with <|eot_id|>, which is no token of poor' --model poor --template llama3
printf 'model_name_or_path: poor\nexport_dir: poor-export\ntemplate: llama3\n' >export.yaml
run export export.yaml
refused 'template llama3 ends texts with <|eot_id|>, which is no token of the tokenizer'
no_file poor-export/config.json
refuses 'nowhere: there is no such folder' --model nowhere
refuses '--model DIR is missing'
refuses 'did you mean --temperature?' --model own --temprature 1
refuses 'unknown option --do-sample' --model own do_sample=true
refuses 'expected true or false' --model own --enable-thinking maybe
refuses 'top_p 2' --model own --top-p 2
refuses 'max_new_tokens 0' --model own --max-new-tokens 0
refuses '"a" is not expected' chat.yaml a

it "--adapter talks to the tuned model"
printf '[{"role": "user", "content": "One"}]\n' >ask.json
run generate --model own --adapter adapter --messages ask.json --json --max-new-tokens 8
adapted=$(of out 0 tokens)
talk 'One\n' --model own
[ "$(of out 0 tokens)" != "$adapted" ] || fail "the adapter changes nothing"
talk 'One\n' --model own --adapter adapter
exit_is 0
[ "$(of out 0 tokens)" = "$adapted" ] || fail "another answer than generate's"

it "a cache that grows changes no token; one that is full refuses, and says what to do"
awk 'BEGIN { for (i = 0; i < 5; i++) { for (k = 0; k < 60; k++) printf "word%d ", i * 60 + k; print "" } }' >long
chat "$(cat long)\n" --model own --json --max-new-tokens 8
exit_is 0
mv out grown
[ "$(of grown 4 prompt_tokens | tr ',' '\n' | wc -l)" -gt 1100 ] || fail "the conversation is too short to grow"
chat "$(cat long)\n" --model own --json --max-new-tokens 8 --kv-cache 4MiB
exit_is 0
sed 's/"tokens_per_s.*//' grown >want
sed 's/"tokens_per_s.*//' out | cmp -s - want || fail "other answers"
chat "$(cat long)\n" --model own --json --max-new-tokens 100 --kv-cache 256KiB
exit_is 2
err_has 'there is room for'
err_has '/reset, or raise --kv-cache'

it "devices, a memory limit and a cache on the host change no answer; several processes are refused"
talk 'One\nTwo\n' --model own
plain=$(of out 0 tokens)/$(of out 1 tokens)
for o in "--strategy tp=2" "--memory-limit 60%" "--offload kv=host"; do
  talk 'One\nTwo\n' --model own $o
  exit_is 0
  [ "$(of out 0 tokens)/$(of out 1 tokens)" = "$plain" ] || fail "other answers with $o"
done
(
  over_sockets
  run launch -n 2 -- chat --model own
  exit_is 2
  err_has 'run it as one process'
)

it "--enable-thinking reaches the template"
talk 'One\n/save thought.json\n' --model own --enable-thinking false
exit_is 0
json_is thought.json enable_thinking false
talk 'One\n' --model job/out --template qwen3 --enable-thinking true
asked=$(prompt 0)
talk 'One\n' --model job/out --template qwen3 --enable-thinking false
case $(prompt 0) in "$asked",*) ;; *) fail "no empty thought behind the question" ;; esac

it "generate --messages takes --tool-format and --enable-thinking as chat does"
as_chat() { # OPTIONS: another prompt than without them, and the one of chat
  talk 'One\n' --model job/out --template qwen3 --tools tools.json "$@"
  asked=$(prompt 0)
  run generate --model job/out --template qwen3 --messages tooled --json --max-new-tokens 8 "$@"
  exit_is 0
  [ "$asked" = "$(prompt 0)" ] || fail "$*: another prompt than chat's"
  run generate --model job/out --template qwen3 --messages tooled --json --max-new-tokens 8
  [ "$asked" != "$(prompt 0)" ] || fail "$*: no effect"
}
as_chat --tool-format llama3
as_chat --enable-thinking false
as_chat --tool-format llama3 --enable-thinking false
thoughts() { # the prompt of a conversation for the model's own template
  printf '{"messages": [{"role": "user", "content": "One"}]%s}\n' "$1" >thought
  shift
  run generate --model thinker --messages thought --json --max-new-tokens 1 "$@"
  exit_is 0
  prompt 0
}
cp -r own thinker
echo '{{ messages[0].content }}{% if enable_thinking %} think{% elif enable_thinking is defined %} answer{% endif %}' >thinker/chat_template.jinja
[ "$(thoughts '' --enable-thinking true)" = "$(thoughts ', "enable_thinking": true')" ] || fail "true does not reach the model's template"
[ "$(thoughts '' --enable-thinking false)" = "$(thoughts ', "enable_thinking": false')" ] || fail "false does not reach the model's template"
[ "$(thoughts '')" != "$(thoughts '' --enable-thinking true)" ] || fail "the template does not see it"
[ "$(thoughts ', "enable_thinking": false' --enable-thinking true)" = "$(thoughts ', "enable_thinking": false')" ] ||
  fail "a conversation that says it is overruled"
run generate --model own --messages thought --tool-format qwen
refused 'tool_format qwen is for a template of LlamaFactory: write --template NAME'
run generate --model own --messages thought --enable-thinking maybe
refused '--enable-thinking: expected true or false, found "maybe"'
run generate --model own --prompt a --enable-thinking true
refused '--enable-thinking is for conversations: give a file of --messages'

it "a conversation beyond the model's positions is told once"
cp -r own short
sed -i 's/"max_position_embeddings": [0-9]*/"max_position_embeddings": 24/' short/config.json
talk 'One\nTwo\nThree\n' --model short --max-new-tokens 40
exit_is 0
[ "$(grep -c max_position_embeddings err)" = 1 ] || fail "warned $(grep -c max_position_embeddings err) times"
run generate --model short --prompt "One Two Three One Two Three One Two Three" --max-new-tokens 20 --memory-limit 90%
exit_is 0
[ "$(grep -c max_position_embeddings err)" = 1 ] || fail "generate warned $(grep -c max_position_embeddings err) times"

it "LlamaFactory's YAML is read as it is, with its defaults"
write chat.yaml <<'END'
model_name_or_path: job/out
adapter_name_or_path: adapter
template: qwen
infer_backend: huggingface  # choices: [huggingface, vllm, sglang]
trust_remote_code: true
do_sample: false
max_new_tokens: 8
default_system: Be kind
END
set -- --model job/out --adapter adapter --template qwen --system "Be kind"
chat 'One\n' "$@" --max-new-tokens 8
mv out want
chat 'One\n' chat.yaml
exit_is 0
same_file out want
chat 'One\n' "$@" --max-new-tokens 5 --temperature 0.95 --top-p 0.7 --top-k 50 --seed 5
mv out want
chat 'One\n' chat.yaml do_sample=true --seed 5 --max-new-tokens 5
exit_is 0
same_file out want
refuses 'beam search is not built' chat.yaml num_beams=2
refuses 'belongs to finetuning_type lora' chat.yaml finetuning_type=full
refuses 'special tokens are not shown' chat.yaml skip_special_tokens=false
refuses 'write float32 or bfloat16' chat.yaml infer_dtype=float16
refuses 'as options' chat.yaml hyper_parallel.devices=2
refuses 'did you mean "top_p"' chat.yaml topp=2
printf 'template: qwen\n' >empty.yaml
refuses 'or a CONFIG.yaml' empty.yaml
run train job/job.yaml max_steps=1 num_beams=2 output_dir=x
exit_is 0
err_has 'num_beams: without effect: it belongs to predict_with_generate and hyper chat'

# until_true COMMAND: within 30 s.
until_true() {
  i=0
  until "$@" >/dev/null 2>&1; do
    sleep 0.05
    i=$((i + 1))
    [ $i -lt 600 ] || { fail "never: $*"; return 1; }
  done
}
has_more() { [ "$(wc -c <"$2")" -gt "$1" ]; }

it "Ctrl-C ends the answer, and the next line is answered"
rm -f one.json two.json
mkfifo lines
"$HYPER" chat --model own --max-new-tokens 100000 <lines >cut 2>err &
pid=$!
exec 3>lines
echo One >&3
until_true has_more 0 cut
kill -INT $pid
echo "/save one.json" >&3 # is read when the answer has ended
until_true test -e one.json
size=$(wc -c <cut)
[ "$size" -lt 100000 ] || fail "the answer came to its end"
echo Two >&3
until_true has_more "$size" cut
kill -INT $pid
echo "/save two.json" >&3
until_true test -e two.json
exec 3>&-
status=0
wait $pid || status=$?
exit_is 0
{ json one.json messages.1.content; json two.json messages.3.content; } >want
same_file cut want

it "on a terminal: a prompt, and the second Ctrl-C at it leaves"
if command -v script >/dev/null; then
  mkfifo keys
  script -qec "'$HYPER' chat --model own --max-new-tokens 4" /dev/null <keys >tty 2>&1 &
  pid=$!
  exec 3>keys
  until_true grep -q '^> ' tty
  printf '\003' >&3
  until_true grep -q 'Ctrl-C again' tty
  printf 'One\n' >&3
  until_true grep -q '^> One' tty
  until_true sh -c '[ "$(grep -c "^> " tty)" -ge 3 ]'
  printf '\003' >&3
  until_true sh -c '[ "$(grep -c "Ctrl-C again" tty)" = 2 ]'
  printf '\003' >&3
  status=0
  wait $pid || status=$?
  exec 3>&-
  exit_is 130
else
  skip "no script"
fi
