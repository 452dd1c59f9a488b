#!/bin/sh
# Conversations as samples: templates, formats of data, cutting, packing; and stage sft beside LlamaFactory.
. "$(dirname "$0")/lib.sh"
. "$ROOT/tests/cli/train_lib.sh"

chats=$ROOT/tests/golden/chats
export SOURCE_DATE_EPOCH=1721995200 # 26 July 2024, the date in tool prompts of Llama 3

# samples DIR DATASET KEYS: the samples of a data set in DIR.
samples() {
  dir=$1
  set_name=$2
  shift 2
  run tokenize --model "$chats" --dataset-dir "$dir" --dataset "$set_name" cutoff_len=1024 "$@"
}

it "the samples of LlamaFactory, for every template"
n=0
while read -r sum template stage dataset keys; do
  [ "$sum" = "#" ] && continue
  n=$((n + 1))
  got=$("$HYPER" tokenize --model "$chats" --dataset-dir "$chats" --dataset "$dataset" --template "$template" stage="$stage" \
    cutoff_len=1024 $keys 2>/dev/null | md5sum | cut -d' ' -f1)
  [ "$got" = "$sum" ] || fail "other samples: $template $stage $dataset $keys"
done < "$chats/digests.txt"
[ "$n" -gt 600 ] || fail "only $n cases"

it "what LlamaFactory cannot write is refused, with the record"
samples "$chats" calls --template mistral
exit_is 2
err_has "calls.json: record 1: the function call:1:1"

mkdir data
cat > data/dataset_info.json <<'END'
{"chat": {"file_name": "chat.json", "formatting": "sharegpt"},
 "system": {"file_name": "chat.json", "formatting": "sharegpt", "columns": {"messages": "conversations", "system": "sistem"}},
 "alpaca": {"file_name": "alpaca.jsonl"},
 "table": {"file_name": "table.csv"},
 "pair": {"file_name": "pair.json", "formatting": "sharegpt", "ranking": true,
  "columns": {"messages": "conversations", "chosen": "chosen", "rejected": "rejected"}},
 "openai": {"file_name": "openai.json", "formatting": "openai", "columns": {"messages": "messages", "tools": "tools"},
  "tags": {"role_tag": "role", "content_tag": "content", "user_tag": "user", "assistant_tag": "assistant", "system_tag": "system"}},
 "shared": {"file_name": "shared.json", "formatting": "sharegpt", "columns": {"messages": "conversations", "tools": "tools"}},
 "row": {"file_name": "table.csv", "columns": {"prompt": "instruction", "query": "question", "response": "output"}},
 "mixed": {"file_name": "mixed.jsonl", "formatting": "sharegpt"},
 "images": {"file_name": "images.json", "formatting": "sharegpt", "columns": {"messages": "conversations", "images": "images"}},
 "tools": {"file_name": "tools.json", "formatting": "sharegpt", "columns": {"messages": "conversations", "tools": "tools"}},
 "tags": {"file_name": "chat.json", "formatting": "sharegpt", "tags": {"role_tag": "from"}},
 "column": {"file_name": "chat.json", "formatting": "sharegpt", "columns": {"mesages": "conversations"}},
 "format": {"file_name": "chat.json", "formatting": "sharegtp"},
 "none": {"file_name": "none.json", "formatting": "sharegpt"},
 "names": {"file_name": "names.json"},
 "one": {"file_name": "one.json", "columns": {"prompt": "instruction", "response": "output", "kto_tag": "kto_tag"}},
 "parquet": {"file_name": "x.parquet"}}
END
cat > data/chat.json <<'END'
[{"conversations": [{"from": "human", "value": "a"}, {"from": "gpt", "value": "b"}]},
 {"conversations": [{"from": "gpt", "value": "a"}, {"from": "human", "value": "b"}]},
 {"conversations": [{"from": "human", "value": "a"}, {"from": "narrator", "value": "b"}]},
 {"conversations": [{"from": "human", "value": "a"}]},
 {"conversations": [{"from": "system", "value": "s"}, {"from": "human", "value": "a"}, {"from": "gpt", "value": ""}]}]
END

it "records that do not fit are left out, and told"
samples data chat --template default
exit_is 0
[ "$(wc -l < out)" = 2 ] || fail "$(wc -l < out) samples, expected 2"
err_has "3 of 5 records are left out; the first is record 2 of data/chat.json: its roles are out of order"
err_has "an empty answer in 1 of the records"

it "nothing is left"
printf '[{"conversations": [{"from": "human", "value": "a"}]}]' > data/none.json
samples data none --template default
exit_is 2
err_has "no record is left to train on"

it "records that say something else than it seems are told"
printf '[{"conversations": [{"from": "human", "value": "a"}, {"from": "narrator", "value": "b"}]}, {"conversations": [{"from": "human", "value": "a"}, {"from": "gpt", "value": "b"}]}]' > data/none.json
samples data none --template default
exit_is 0
err_has "1 of 2 records are left out; the first is record 1 of data/none.json: "
err_has role
printf '[{"conversations": [{"from": "human", "value": "a"}, {"from": "gpt", "value": "b"}]}, {"conversations": [{"from": "human", "value": "<image>a"}, {"from": "gpt", "value": "b"}]}]' > data/none.json
samples data none --template default
exit_is 2
err_has "data/none.json: record 2 has <image>, and no file for it can be read: models of text alone are built (1 of 2 records have such words)"
for place in video audio; do
  sed "s/<image>/<$place>/" data/none.json > data/place.json
  samples data place.json --template default
  exit_is 2
  err_has "data/place.json: record 2 has <$place>, and no file for it can be read"
done
printf '[{"instruction": "a", "output": "b", "kto_tag": true}, {"instruction": "c", "output": "d", "kto_tag": true}]' > data/one.json
samples data one --template default stage=kto
exit_is 0
samples data one --template default
exit_is 2
err_has "2 of 2 records are left out; the first is record 1 of data/one.json: its answer is judged (column kto_tag), which is for stage kto"
printf '[{"conversations": [{"from": "human", "value": "a"}, {"from": "gpt", "value": "b"}]}]' > data/none.json
samples data none --template default stage=kto
exit_is 2
err_has "no column kto_tag judges its answer true or false"

it "empty answers are told where they are learned or compared, and a message without text is left out"
turns() { printf '[{"conversations": [{"from": "human", "value": "a"}, {"from": "gpt", "value": "%s"}, {"from": "human", "value": "c"}, {"from": "gpt", "value": "%s"}]}]' "$1" "$2" > data/none.json; }
turns "" d
samples data none --template default
err_has "an empty answer in 1 of the records"
samples data none --template default mask_history=true
exit_is 0
err_lacks "an empty answer"
for answers in '"", "d"' '"b", ""'; do
  printf '[{"conversations": [{"from": "human", "value": "a"}], "chosen": {"from": "gpt", "value": %s}, "rejected": {"from": "gpt", "value": %s}}]' "${answers%,*}" "${answers#*, }" > data/pair.json
  samples data pair --template default stage=dpo
  exit_is 0
  err_has "an empty answer in 1 of the records"
done
for message in '"from": "human"' '"from": "human", "value": null'; do
  printf '[{"conversations": [{%s}, {"from": "gpt", "value": "b"}]}]' "$message" > data/none.json
  samples data none --template default
  exit_is 2
  err_has "the first is record 1 of data/none.json: it has a message without text"
done

it "alpaca: jsonl and csv; a missing answer"
printf '{"instruction": "a", "output": "b"}\n{"instruction": "c", "input": "d", "output": "e"}\n{"instruction": "f"}\n' > data/alpaca.jsonl
printf 'instruction,input,output\na,,b\nc,d,e\n' > data/table.csv
samples data alpaca --template default
exit_is 0
err_has "1 of 3 records are left out; the first is record 3 of data/alpaca.jsonl: it has no response"
mv out alpaca.out
samples data table --template default
same_file alpaca.out out
printf '\357\273\277' | cat - data/table.csv > data/marked.csv # a byte order mark
samples data marked.csv --template default
same_file alpaca.out out

it "a path in place of a name: the format is found from the first record"
for file in "$chats/chats.json" "$chats/alpaca.json" "$chats/openai.json"; do
  samples none "$file" --template llama3
  exit_is 0
  mv out path.out
  samples "$chats" "$(basename "$file" .json)" --template llama3
  same_file path.out out
done

# refused DATASET SAYS KEYS
refused() {
  set_name=$1
  says=$2
  shift 2
  samples data "$set_name" --template default "$@"
  exit_is 2
  err_has "$says"
}
it "bad data and bad keys are refused with their place"
printf '{"conversations": [{"from": "human", "value": "a"}, {"from": "gpt", "value": "b"}]}\n{"instruction": "a", "output": "b"}\n' > data/mixed.jsonl
printf '[{"conversations": [{"from": "human", "value": "<image>a"}, {"from": "gpt", "value": "b"}], "images": ["x.png"]}]' > data/images.json
printf '[{"conversations": [{"from": "human", "value": "a"}, {"from": "gpt", "value": "b"}], "tools": "[{]"}]' > data/tools.json
refused system 'no record has "sistem"'
refused row 'data/table.csv: no record has "question"'
refused mixed 'data/mixed.jsonl:2'
refused mixed 'there is no "conversations" in the record'
refused images 'data/images.json:1'
refused images 'images, video and audio are not built'
refused tools 'data/tools.json: record 1: the tools:1:3'
refused tags 'needs role_tag, content_tag, user_tag and assistant_tag'
refused column 'mesages'
refused format 'expected alpaca, sharegpt or openai'
printf '[{"instruction": "a", "output": "b"}, {"conversations": []}]' > data/second.json
refused second.json 'data/second.json:1:39: there is no "instruction" in the record'
touch data/x.parquet
refused parquet 'to_json'
refused parquet "data/x.parquet: .parquet files are not read; convert it: python3 -c \"import datasets; datasets.load_dataset('parquet', data_files='data/x.parquet', split='train').to_json('data.jsonl')\""
printf '[{"question": "a", "output": "b"}]' > data/names.json
refused names 'data/names.json:1:2: there is no "instruction" in the record, the column of the prompt; it has "question", "output"; write "columns": {"prompt": NAME}'
refused mixed 'it has "instruction", "output"; write "columns": {"messages": NAME} for the file in dataset_info.json'
refused chat 'there is no template "lama3" (did you mean "llama3"?)' template=lama3
refused chat 'there is no tool_format "qwem"' tool_format=qwem
refused chat 'preference data' stage=dpo
refused chat 'keep one of them' train_on_prompt=true mask_history=true
refused chat 'template glm4, which learns its end token' template=glm4 train_on_prompt=true
refused alpaca 'neat_packing is for stage sft' stage=pt neat_packing=true
samples "$chats" pairs --template default
exit_is 2
err_has 'preference data is for stages rm and dpo'

it "a template that does not fit the tokenizer"
mkdir poor
sed 's/<|eot_id|>/<|other|>/g' "$chats/tokenizer.json" > poor/tokenizer.json
cp "$chats/tokenizer_config.json" poor/
run tokenize --model poor --dataset-dir "$chats" --dataset chats --template llama3
exit_is 2
err_has 'template llama3 ends texts with <|eot_id|>, which is no token'
run tokenize --model poor --dataset-dir "$chats" --dataset chats --template openchat-3.6
exit_is 0
err_has ', <|eot_id|>: written as pieces of text; is it the template of this model?'

for token in '<|user|>' '<|system|>' '<|observation|>' '[gMASK]'; do
  sed "s/${token#[}/x${token#[}/g" "$chats/tokenizer.json" > poor/tokenizer.json
  run tokenize --model poor --dataset-dir "$chats" --dataset chats --template chatglm3
  exit_is 2
  err_has "template chatglm3 writes the token $token, which the tokenizer does not have"
done

it "without template: it is made of the model's own"
mkdir own
cp "$chats"/tokenizer* own/
printf '%s' "{% for m in messages %}<|im_start|>{{ m.role }}
{{ m.content }}<|im_end|>
{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant
{% endif %}" > own/chat_template.jinja
run tokenize --model own --dataset-dir "$chats" --dataset alpaca
exit_is 0
err_has "it is made of the model's own chat template"
mv out own.out
samples "$chats" alpaca --template chatml
same_file own.out out
printf '%s' "{% if messages[0].role != 'system' %}<|im_start|>system
Be good.<|im_end|>
{% endif %}{% for m in messages %}<|im_start|>{{ m.role }}
{% if m.role == 'assistant' %}<think>

</think>

{% endif %}{{ m.content }}<|im_end|>
{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant
{% endif %}" > own/chat_template.jinja
run tokenize --model own --dataset-dir "$chats" --dataset chats
exit_is 0
mv out own.out
samples "$chats" chats --template qwen3 default_system="Be good." tool_format=default
cut -c1-400 own.out > own.cut
cut -c1-400 out > out.cut
same_file own.cut out.cut
printf '%s' "{{ messages[0].role }}" > own/chat_template.jinja
run tokenize --model own --dataset-dir "$chats" --dataset alpaca
exit_is 2
err_has "does not show the content of a message of role system"
rm own/chat_template.jinja
run tokenize --model own --dataset-dir "$chats" --dataset alpaca
err_has "messages are written as they are"

it "samples are cut, and those without a label are told"
samples "$chats" chats --template default cutoff_len=3
err_has 'samples are longer than cutoff_len 3 and are cut'
samples "$chats" alpaca --template alpaca default_system="$(printf 'long %.0s' 1 2 3 4 5 6 7 8 9)" mask_history=true cutoff_len=12
exit_is 0

it "a sample is cut as LlamaFactory's infer_seqlen cuts it, at every cutoff_len"
counts() { # tokens of the only sample, and those of them that are learned
  sed 's/.*"labels": \[\(.*\)\]}/\1/' out | awk -F', ' '{ for (i = 1; i <= NF; i++) n += $i != -100; print NF, n + 0 }'
}
for answer in "three four" "three four five six seven eight"; do
  printf '[{"instruction": "one two", "output": "%s"}]' "$answer" > data/cut.json
  samples data cut.json --template default
  whole=$(counts)
  for cutoff in $(seq $((${whole#* } + ${whole% *}))); do
    samples data cut.json --template default cutoff_len="$cutoff"
    echo "$whole $(counts) $cutoff" | awk '{
      source = $1 - $2; target = most = $2; room = $5
      if (target * 2 >= room) most = source * 2 < room ? room - source : int(room * (target / (source + target)))
      if (target > most) target = most
      if (source > room - target) source = room - target
      exit !($3 == source + target && $4 == target) }' || fail "cutoff_len $cutoff of $whole tokens and learned ones leaves $(counts)"
  done
done

it "openai data: a system message of its own is followed by a line break if there are tools"
tools='"tools": "[{\"name\": \"look\", \"description\": \"Looks.\", \"parameters\": {\"type\": \"object\", \"properties\": {}}}]"'
printf '[{"messages": [{"role": "system", "content": "detailed thinking on"}, {"role": "user", "content": "a"},
  {"role": "assistant", "content": "b"}], %s}]' "$tools" > data/openai.json
printf '[{"conversations": [{"from": "system", "value": "detailed thinking on\\n"}, {"from": "human", "value": "a"},
  {"from": "gpt", "value": "b"}], %s}]' "$tools" > data/shared.json
samples data openai --template qwen
exit_is 0
mv out openai.out
samples data shared --template qwen
same_file openai.out out

it "both answers of a pair have the prompt of the chosen one"
printf '[{"conversations": [{"from": "human", "value": "a"}],
  "chosen": {"from": "gpt", "value": "b"}, "rejected": {"from": "gpt", "value": "<think>c</think>d"}}]' > data/pair.json
samples data pair --template qwen3 stage=dpo enable_thinking=null
exit_is 0
prompt_of() { sed "s/.*\"$1_labels\": \[\([^]]*\)\].*/\1/" out | tr ',' '\n' | grep -c -- -100; }
[ "$(prompt_of chosen)" = "$(prompt_of rejected)" ] || fail "prompts of $(prompt_of chosen) and $(prompt_of rejected) tokens"

# job NAME TEMPLATE: a job of stage sft on conversations of the repository.
it "stage sft trains: the same bits on one device and two, and after a resume"
make_job job </dev/null
sed -i 's/^stage: pt/stage: sft/; s@^dataset: .*@dataset: alpaca,chats@; s/^max_steps: .*/max_steps: 6/; s/^cutoff_len: .*/cutoff_len: 200/' job/job.yaml
cp "$chats"/tokenizer* job/model/
sed -i 's/"vocab_size": [0-9]*/"vocab_size": 600/' job/model/config.json
printf 'dataset_dir: %s\ntemplate: qwen\n' "$chats" >> job/job.yaml
run train job/job.yaml deterministic=layout output_dir=one save_steps=3
exit_is 0
run train job/job.yaml deterministic=layout output_dir=two strategy=dp=2 per_device_train_batch_size=2 global_batch_size=4
exit_is 0
same_file one/model.safetensors two/model.safetensors
run train job/job.yaml deterministic=layout output_dir=three max_steps=6 save_steps=3 resume_from_checkpoint=one/checkpoint-3
exit_is 0
same_file one/model.safetensors three/model.safetensors

it "packs whose samples do not see each other: on one device and several"
for how in "strategy=cp=2" "strategy=tp=2" "strategy=pp=2" "memory_limit=90%"; do
  [ -d neat ] || run train job/job.yaml deterministic=layout output_dir=neat neat_packing=true
  run train job/job.yaml deterministic=layout output_dir=neat2 neat_packing=true overwrite_output_dir=true $how
  exit_is 0
  same_file neat/model.safetensors neat2/model.safetensors
done

it "other settings of the samples are other data for a resume"
run train job/job.yaml output_dir=one save_steps=3 max_steps=7 mask_history=true
exit_is 2
err_has "mask_history"

for job in sft-llama3 sft-qwen-shuffled; do
  it "LlamaFactory's run $job, step by step"
  need_data golden/llamafactory || continue
  run_cmd sh -c 'cd "$1" && shift && exec "$@"' - "$data" "$HYPER" train $job/config.yaml output_dir="$WORK/$job" save_strategy=no plot_loss=false
  exit_is 0
  numbers_of $job/trainer_state.json > numbers
  numbers_of "$data/$job/trainer_state.json" | grep -v "_runtime\|_per_second" > $job.numbers
  follows $job.numbers
done

runs_follow sft follows
