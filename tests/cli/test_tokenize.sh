#!/bin/sh
# hyper tokenize: its forms, and what it refuses.
. "$(dirname "$0")/lib.sh"
. "$ROOT/tests/cli/model_lib.sh"
DEMO=$ROOT/examples/demo/model # a tokenizer that ships with the project

# A tokenizer of characters with a special token, bos in front: a=0 b=1 c=2 <s>=3 </s>=4.
mkdir tiny
write tiny/tokenizer.json <<'END'
{"version": "1.0", "truncation": null, "padding": null, "normalizer": null, "pre_tokenizer": null, "decoder": {"type": "Fuse"},
 "added_tokens": [
  {"id": 3, "content": "<s>", "single_word": false, "lstrip": false, "rstrip": false, "normalized": false, "special": true},
  {"id": 4, "content": "</s>", "single_word": false, "lstrip": false, "rstrip": false, "normalized": false, "special": true}],
 "post_processor": {"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
  "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
  "special_tokens": {"<s>": {"id": "<s>", "ids": [3], "tokens": ["<s>"]}}},
 "model": {"type": "BPE", "dropout": null, "unk_token": null, "continuing_subword_prefix": null, "end_of_word_suffix": null,
  "fuse_unk": false, "byte_fallback": false, "vocab": {"a": 0, "b": 1, "c": 2}, "merges": []}}
END

it "tokenize prints ids with spaces between"
run tokenize --model tiny abca
exit_is 0
out_is "3 0 1 2 0"

it "tokenize --json prints a list"
run tokenize --model tiny --json abc
exit_is 0
out_is "[3, 0, 1, 2]"

it "--no-special leaves out only what the post-processor adds"
run tokenize --model tiny --no-special 'ab</s>'
exit_is 0
out_is "0 1 4"

it "special tokens written in the text are matched"
run tokenize --model tiny --json 'a</s><s>b'
out_is "[3, 0, 4, 3, 1]"

it "empty text gives []"
run tokenize --model tiny --no-special --json ""
exit_is 0
out_is "[]"
run tokenize --model "$DEMO" --json ""
exit_is 0
out_is "[]"
run_cmd sh -c "printf '' | '$HYPER' tokenize --model '$DEMO' --json -"
exit_is 0
out_is "[]"

it "- reads standard input to its end, byte for byte"
printf 'ab\n\n' >text # a newline is no token of `tiny`, but of the demo's byte-level one
run_cmd sh -c "'$HYPER' tokenize --model '$DEMO' --json - <text"
exit_is 0
cp out with
run_cmd sh -c "printf 'ab' | '$HYPER' tokenize --model '$DEMO' --json -"
exit_is 0
! cmp -s out with || fail "the newlines at the end made no difference"
run_cmd sh -c "'$HYPER' tokenize --model '$DEMO' - <text | '$HYPER' tokenize --model '$DEMO' --decode -"
printf 'ab\n\n\n' | cmp -s - out || fail "decoding does not give the text back"

it "the words of the command line are one text"
run tokenize --model "$DEMO" --json one two
cp out words
run tokenize --model "$DEMO" --json "one two"
same_file words out

it "from the first word of the text on, all words are text"
run tokenize --model "$DEMO" --json "one model=x --json -- --help json=true true"
cp out words
run tokenize --model "$DEMO" --json one model=x --json -- --help json=true true
exit_is 0
same_file words out
run tokenize --model "$DEMO" --json=true -- true
cp out words
run tokenize --json model="$DEMO" true
same_file words out
run tokenize --model "$DEMO" -- --json
cp out with
run_cmd sh -c "printf %s --json | '$HYPER' tokenize --model '$DEMO' -"
same_file with out
run tokenize --help
out_has "ends the options"

it "--decode prints the text"
run tokenize --model tiny --decode "3 0 1 2"
exit_is 0
out_is "<s>abc"
run tokenize --model tiny --decode --no-special "[3, 0, 1, 2]"
out_is "abc"
run tokenize --model tiny --decode --json 0,1
out_is '"ab"'

it "text beyond ASCII comes back"
run_cmd sh -c "printf 'na\303\257ve \360\237\230\200 \344\270\255' | '$HYPER' tokenize --model '$DEMO' - | '$HYPER' tokenize --model '$DEMO' --decode -"
exit_is 0
[ "$(cat out)" = "$(printf 'na\303\257ve \360\237\230\200 \344\270\255')" ] || fail "got $(cat out)"

it "a folder may hold tokenizer files only, or be named by its tokenizer.json"
run tokenize --model tiny/tokenizer.json abc
exit_is 0
out_is "3 0 1 2"

it "GPT-2 and Qwen2 give the recorded ids"
if need_data tokenizer/gpt2.tokenizer.json && need_data tokenizer/qwen2.vocab.json; then
  mkdir -p gpt2 qwen2
  cp "$DATA/tokenizer/gpt2.tokenizer.json" gpt2/tokenizer.json
  for f in vocab.json merges.txt tokenizer_config.json; do cp "$DATA/tokenizer/qwen2.$f" qwen2/$f; done
  run tokenize --model gpt2 " Hello World"
  exit_is 0
  out_is "18435 2159"
  run tokenize --model qwen2 "Hello World"
  out_is "9707 4337"
fi

# --- bad input ------------------------------------------------------------------------------------

it "tokenize names what is missing"
run tokenize --model tiny
refused "the text is missing"
run tokenize abc
refused "--model"
run tokenize --model nowhere abc
refused nowhere
one_message 1
mkdir -p hollow
run tokenize --model hollow abc
refused hollow "tokenizer.json"

it "tokenize refuses ids that are none"
run tokenize --model tiny --decode "0 x"
refused '"x"'
run tokenize --model tiny --decode "0 -1"
refused '"-1"'
run tokenize --model tiny --decode "0 5"
refused "token id 5" "0..4"

it "tokenize refuses a damaged tokenizer.json and says where"
mkdir -p cut
head -c 300 tiny/tokenizer.json >cut/tokenizer.json
run tokenize --model cut abc
refused "cut/tokenizer.json:"
one_message 1
sed 's/"BPE"/"Bpe2"/' tiny/tokenizer.json >cut/tokenizer.json
run tokenize --model cut abc
refused "cut/tokenizer.json:" "Bpe2"
one_message 1

it "tokenize refuses an option that does not exist and names the nearest"
run tokenize --model tiny --no-specials abc
refused "--no-specials" "did you mean --no-special?"
