#!/bin/sh
# hyper convert, and stories260K by its published figures.
. "$(dirname "$0")/lib.sh"
. "$ROOT/tests/cli/model_lib.sh"

it "convert writes a Hugging Face folder"
if need_data model/stories260K.bin; then
  run convert "$DATA/model/stories260K.bin" stories --tokenizer "$DATA/model/tok512.bin"
  exit_is 0
  for f in config.json model.safetensors tokenizer.json tokenizer_config.json; do is_file stories/$f; done
  json_is stories/config.json model_type llama
  json_is stories/config.json tie_word_embeddings true
  json_is stories/config.json num_key_value_heads 4
  [ "$(tensors stories/model.safetensors | wc -l)" = 47 ] || fail "not 47 tensors"
fi

it "convert twice gives the same bytes"
if stories; then
  run convert "$DATA/model/stories260K.bin" again --tokenizer "$DATA/model/tok512.bin"
  exit_is 0
  for f in config.json model.safetensors tokenizer.json; do same_file stories/$f again/$f; done
fi

it "convert without a tokenizer says what that costs"
if need_data model/stories260K.bin; then
  run convert "$DATA/model/stories260K.bin" bare
  exit_is 0
  err_has "--tokens only"
  no_file bare/tokenizer.json
fi

it "stories260K has the published tokens"
if stories; then
  run tokenize --model stories "$LILY"
  exit_is 0
  [ "$(wc -w <out)" = 45 ] || fail "$(wc -w <out) ids, want 45"
  out_has "1 403 407 261 378 432 383 286 261 376 298 315 421 395 317 426 "
fi

it "stories260K has the published likelihood"
if stories; then
  run eval --model stories --tokens "$("$HYPER" tokenize --model stories "$LILY" | tr ' ' ,)" --json
  exit_is 0
  json_is out tokens 44
  json_near out nll 0.324100 2e-6
  printf '%s' "$LILY" >lily.txt
  run eval --model stories --data lily.txt --json
  json_is out tokens 44
  json_near out nll 0.324100 2e-6
fi

it "stories260K has the published logits"
if stories; then
  run logits --model stories --tokens "$("$HYPER" tokenize --model stories "$LILY" | tr ' ' ,)" --out l
  exit_is 0
  [ "$(st_argmax l 0 512)" = 403 ] || fail "argmax at position 0 is $(st_argmax l 0 512)"
  near "$(st_float l 403)" 17.023516 1e-6 || fail "logit 403 at 0 is $(st_float l 403)"
  [ "$(st_argmax l $((43 * 512)) 512)" = 426 ] || fail "argmax at position 43 is not 426"
  near "$(st_float l $((43 * 512 + 426)))" 10.945148 1e-6 || fail "logit 426 at 43 is $(st_float l $((43 * 512 + 426)))"
fi

it "stories260K tells its published story, character for character"
if stories; then
  run generate --model stories --tokens 1 --json --temperature 0 --max-new-tokens 256
  exit_is 0
  json out text >story
  sed -n '/^Once upon a time/,/^```/p' "$DATA/model/stories260K.md" | sed '/^```/,$d' >want
  [ -s want ] || fail "no story in stories260K.md"
  same_file want story
fi

# --- bad input ------------------------------------------------------------------------------------

it "convert refuses what is no checkpoint"
echo "not a checkpoint, but some text that is long enough to hold a header" >text.bin
run convert text.bin to
refused text.bin
one_message 1
no_file to
run convert nowhere.bin to
refused nowhere.bin "No such file"
no_file to

it "convert refuses a checkpoint that is cut short"
if need_data model/stories260K.bin; then
  head -c 500000 "$DATA/model/stories260K.bin" >cut.bin
  run convert cut.bin to
  refused cut.bin "500000" "1056540"
  one_message 1
  no_file to
fi

it "convert writes nothing when the tokenizer is bad"
if need_data model/stories260K.bin; then
  head -c 3000 "$DATA/model/tok512.bin" >cut-tok.bin
  run convert "$DATA/model/stories260K.bin" to --tokenizer cut-tok.bin
  refused cut-tok.bin
  one_message 1
  no_file to
fi

it "convert refuses a file in place of the folder"
if need_data model/stories260K.bin; then
  echo mine >occupied
  run convert "$DATA/model/stories260K.bin" occupied
  refused occupied "not a folder"
  [ "$(cat occupied)" = mine ] || fail "the file was changed"
fi

it "convert names what is missing"
run convert one
refused "checkpoint and the folder"
run convert a b --tokeniser c
refused "--tokeniser" "did you mean --tokenizer"
