#!/bin/sh
# Model folders that are damaged or contradict themselves: refused by file and place, exit 2, nothing
# written.  And hyper inspect and doctor.
. "$(dirname "$0")/lib.sh"
compile_quickly
. "$ROOT/tests/cli/model_lib.sh"
LC_ALL=C # sed on binary files
export LC_ALL

# m is refused by logits, with these words, in one message; no output is left.
bad() {
  run logits --model m --tokens 1,2 --out out.safetensors
  refused "$@"
  one_message 1
  no_file out.safetensors
}
# Key of config.json set to a value: refused, with the key and its place.
bad_key() {
  set_key "$1" "$2"
  bad m/config.json: "$1"
}

it "a size that is none is refused with its line"
for value in 0 -1 1.5 '"8"' 2147483648 1e30 true; do
  for key in vocab_size hidden_size num_hidden_layers num_attention_heads; do
    model mistral-window
    bad_key $key "$value"
  done
done
model mistral-window
set_key hidden_size null
run logits --model m --tokens 1,2 --out out.safetensors
refused "m/config.json:$(grep -n '"hidden_size"' m/config.json | cut -d: -f1):" "hidden_size"

it "sizes that contradict each other are refused"
model mistral-window
set_key num_key_value_heads 3
bad m/config.json num_attention_heads num_key_value_heads
model mistral-window
set_key head_dim 7
bad m/config.json head_dim
model gpt2-base-names
set_key n_head 3
bad m/config.json n_embd n_head
model qwen2-window-old
sed -i 's/"vocab_size": 64/"layer_types": ["full_attention"], &/' m/config.json
bad m/config.json layer_types num_hidden_layers

it "values out of range are refused"
model mistral-window
bad_key rms_norm_eps -1
model mistral-window
bad_key hidden_act '"swiglu"'
model mistral-window
bad_key tie_word_embeddings 1
model mistral-window
bad_key pad_token_id 64
model mistral-window
bad_key eos_token_id '"x"'
model mistral-window
bad_key sliding_window -1
model mistral-window
bad_key initializer_range -0.5

it "a rope scaling that is not whole is refused"
model llama-yarn-betas
set_key factor '"x"'
bad m/config.json rope_parameters.factor
model llama-yarn-betas
set_key beta_fast -1
bad m/config.json beta_fast
model llama-yarn-betas
set_key original_max_position_embeddings 0
bad m/config.json original_max_position_embeddings
model llama-yarn-betas
set_key rope_type '"spiral"'
bad m/config.json spiral yarn
model llama-yarn-betas
set_key rope_type '"llama3"'
bad m/config.json low_freq_factor
model llama-yarn-betas
set_key rope_type '"longrope"'
bad m/config.json short_factor
model llama-longrope
sed -i '/^ *1.1,$/d' m/config.json
bad m/config.json short_factor "expected head_dim / 2 = 4"
model llama-longrope
sed -i 's/^ *4.0,$/0,/' m/config.json
bad m/config.json "long_factor[2]"

it "a family that is not built is refused with those that are"
model mistral-window
set_key model_type '"bert"'
bad m/config.json bert "built are: llama, mistral, qwen2, qwen3, mixtral, qwen3_moe, deepseek_v3"

it "config.json that is no JSON, or not there, is refused"
model mistral-window
head -c 200 "$CASES/mistral-window/config.json" >m/config.json
bad m/config.json:
: >m/config.json
bad m/config.json:1:1
echo '{"model_type": "llama", "model_type": "llama"}' >m/config.json
bad m/config.json:1: model_type "already"
rm m/config.json
bad m/config.json "No such file"
rm -rf m
bad m "No such file"

it "weights that config.json makes another shape are refused by name"
for pair in vocab_size:65 intermediate_size:21 hidden_size:20; do
  model mistral-window
  set_key ${pair%:*} ${pair#*:}
  bad 'tensor "model.' "config.json makes it"
done
model mistral-window
set_key vocab_size 2147483647
bad 'tensor "model.embed_tokens.weight" is [64,16], config.json makes it [2147483647,16]'

it "a layer too many or too few is refused by name"
model mistral-window
set_key num_hidden_layers 3
bad 'tensor "model.layers.2.' missing
model mistral-window
set_key num_hidden_layers 1
bad 'tensor "model.layers.1.' "no place"
model llama-odd-heads
set_key tie_word_embeddings false
bad 'tensor "lm_head.weight" is missing'
model llama-odd-heads
set_key attention_bias true
bad 'tensor "model.layers.0.self_attn.q_proj.bias" is missing'
model qwen3-bias-tied
set_key attention_bias false
bad '_proj.bias" of the checkpoint has no place'

it "a tensor that is missing, or of another shape or dtype, is refused by name"
model mistral-window
sed -i 's/"model.norm.weight"/"model.norm.weighx"/' m/model.safetensors
bad 'tensor "model.norm.weight" is missing'
model mistral-window
sed -i 's/\("model.embed_tokens.weight":[^}]*\)\[64,16\]/\1[16,64]/' m/model.safetensors
bad 'tensor "model.embed_tokens.weight" is [16,64], config.json makes it [64,16]'
model mistral-window
sed -i 's/\("model.norm.weight":{"dtype":"\)F32/\1I32/' m/model.safetensors
bad 'tensor "model.norm.weight" is I32'

it "a tied head may be stored in place of the embedding, or next to it when it is the same"
model mistral-window
run logits --model m --tokens 1,2 --out table.safetensors
sed -i 's/"model.embed_tokens.weight":/"lm_head.weight"           :/' m/model.safetensors # the header keeps its size
run logits --model m --tokens 1,2 --out head.safetensors
exit_is 0
same_file head.safetensors table.safetensors
model qwen2-window-old
set_key tie_word_embeddings true
bad lm_head.weight model.embed_tokens.weight differ tie_word_embeddings
at() { grep -ao "\"$1\":[^}]*" m/model.safetensors | sed 's/.*\[\([0-9]*\),\([0-9]*\)\]$/\1 \2/'; }
start=$((8 + $(od -An -tu8 -N8 m/model.safetensors)))
set -- $(at model.embed_tokens.weight) $(at lm_head.weight)
tail -c +$((start + $1 + 1)) m/model.safetensors | head -c $(($2 - $1)) > table
dd if=table of=m/model.safetensors bs=1 seek=$((start + $3)) conv=notrunc 2>/dev/null
run logits --model m --tokens 1,2 --out out.safetensors
exit_is 0

it "tensors outside the decoder are told and left"
model qwen2-window-old
set_key tie_word_embeddings true
sed -i 's/"lm_head.weight":/"v_head.weight" :/' m/model.safetensors # the header keeps its size
run logits --model m --tokens 1,2 --out out.safetensors
exit_is 0
err_has 'not used, the first is "v_head.weight"'
rm -f out.safetensors

it "experts that do not fit together are refused by their keys"
model qwen3moe-fused
set_key num_experts_per_tok 4
bad m/config.json "num_experts_per_tok 4 is above the number of experts, 3"
model qwen3moe-fused
sed -i '1a "num_experts": 5,' m/config.json
bad m/config.json num_local_experts "another name of it: 5"
model qwen3moe-fused
set_key num_local_experts 5000
bad m/config.json "5000 experts"
for pair in n_group:4 topk_group:4 topk_group:1 num_key_value_heads:2; do
  model deepseekv3-yarn
  set_key ${pair%:*} ${pair#*:}
  bad m/config.json ${pair%:*} ${pair#*:}
done
model deepseekv3-yarn
sed -i '/"num_key_value_heads"/d' m/config.json # as many as there are heads
run logits --model m --tokens 1,2 --out out.safetensors
exit_is 0
rm -f out.safetensors
for word in scoring_func topk_method; do
  model deepseekv3-yarn
  sed -i "1a \"$word\": \"greedy\"," m/config.json
  bad m/config.json:2 $word greedy
done

it "an expert that is missing, or one more, or of another shape, is refused by name"
model mixtral-pad
sed -i 's/experts.3.w2.weight/experts.3.wx.weight/' m/model.safetensors
bad 'tensor "model.layers.0.block_sparse_moe.experts.3.w2.weight" is missing'
model mixtral-pad
set_key num_local_experts 5
bad 'gate.weight" is [4,16], config.json makes it [5,16]'
model mixtral-pad
set_key num_local_experts 3
bad 'gate.weight" is [4,16], config.json makes it [3,16]'
model qwen3moe-fused
set_key moe_intermediate_size 11
bad 'experts.gate_up_proj" is [3,24,16], config.json makes it [3,22,16]'

it "layers that guess tokens farther on are told and left"
model deepseekv3-yarn
set_key num_hidden_layers 1
bad 'tensor "model.layers.1.' "no place"
set_key num_nextn_predict_layers 1
run logits --model m --tokens 1,2 --out out.safetensors
exit_is 0
err_has 'not used, the first is "model.layers.1.'
rm -f out.safetensors

it "a weight file that is cut, damaged or something else is refused"
whole=$(wc -c <"$CASES/mistral-window/model.safetensors")
for n in 0 7 8 100 1000 $((whole - 1)); do
  model mistral-window
  head -c "$n" "$CASES/mistral-window/model.safetensors" >m/model.safetensors
  bad m/model.safetensors
done
model mistral-window
echo x >>m/model.safetensors
bad m/model.safetensors "truncated or damaged"
printf 'version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n' >m/model.safetensors
bad m/model.safetensors "git lfs pull"

it "what is no file in the place of the weights is refused for what it is"
instead() { # WORD...: of m/model.safetensors
  bad m/model.safetensors "$@"
  rm -rf m/model.safetensors
}
rm m/model.safetensors && mkdir m/model.safetensors
instead "is a folder, a file was expected"
mkfifo m/model.safetensors
instead "is a pipe, a file was expected"
ln -s /dev/null m/model.safetensors
instead "is a device, a file was expected"
: >m/model.safetensors
instead "is empty"
ln -s model.safetensors m/model.safetensors
instead "symbolic links that lead nowhere"
ln -s ../blobs/0123 m/model.safetensors
instead "a symbolic link to a file that is not there"
mkdir m/model.safetensors.index.json
bad m/model.safetensors.index.json "is a folder"
rmdir m/model.safetensors.index.json
: >m/model.safetensors
mv m/config.json kept && mkdir m/config.json
bad m/config.json "is a folder"
rmdir m/config.json && mv kept m/config.json
mkdir m/tokenizer.json
run tokenize --model m text
refused m/tokenizer.json "is a folder"
rmdir m/tokenizer.json

it "a folder without weights, and shards that do not fit their index"
rm m/model.safetensors
bad m "no model.safetensors"

it "an index and shards that do not belong together are refused"
model llama-bf16-shards
rm m/model-00002-of-00003.safetensors
bad m/model.safetensors.index.json model-00002-of-00003.safetensors missing
model llama-bf16-shards
sed -i 's|"model.norm.weight": "model-00003|"model.norm.weight": "model-00001|' m/model.safetensors.index.json
bad m/model.safetensors.index.json model.norm.weight "not of one save"
model llama-bf16-shards
sed -i 's|"model.norm.weight": "[^"]*"|"model.norm.weight": "../../../etc/passwd"|' m/model.safetensors.index.json
bad m/model.safetensors.index.json "../../../etc/passwd"
model llama-bf16-shards
head -c 100 "$CASES/llama-bf16-shards/model.safetensors.index.json" >m/model.safetensors.index.json
bad m/model.safetensors.index.json:

it "weights that are not numbers end grads, eval and generate"
model mistral-window
printf '\377\377\377\377' | dd of=m/model.safetensors bs=1 seek=$((whole - 4)) conv=notrunc 2>/dev/null
run grads --model m --tokens 1,2 --out out.safetensors
exit_is 1
err_has "the loss is not finite"
no_file out.safetensors
run eval --model m --tokens 1,2 --json
exit_is 1
err_has "the loss is not finite"
run generate --model m --tokens 1,2 --max-new-tokens 2 --json
exit_is 1
err_has "is not a number"
out_is ""

it "token ids out of range are refused with their place, and nothing is computed"
model mistral-window
for t in 64 1,2,64 2147483647; do
  run logits --model m --tokens $t --out out.safetensors
  refused "token id" "at place" "0..63"
  no_file out.safetensors
done
run grads --model m --tokens 1,64 --out out.safetensors
refused "token id 64 at place 1"
for text in '[[1],[2,64]]:[1][1]' '[[1],[2,"a"]]:[1][1]' '[[1],[]]:[1]' '[1]:[0]' '[]:no sequences' '[[1]:2:1' '[[-1]]:[0][0]'; do
  echo "${text%%:*}" >batch.json
  run logits --model m --batch batch.json --out out.safetensors
  refused batch.json "${text#*:}"
  one_message 1
  no_file out.safetensors
done
run grads --model m --tokens 1 --out out.safetensors
refused "at least two"

it "options are checked by kind and name"
run logits --model m --tokens 1 --out o --thread 2
refused "--thread" "did you mean --threads?"
run logits --model m --tokens 1 --out o thread=2
refused "--thread" "did you mean --threads?"
run logits --model m --tokens 1 --out o --threads many
refused "--threads" '"many"' "whole number"
run logits --model m --tokens 1 --out o --memory-limit much
refused "--memory-limit" '"much"'
run logits --model m --tokens 1 --out o --dtype fp8
refused "--dtype fp8" "f32 or bf16"
run logits --model m --tokens 1 --out o --devices 200
refused "200 devices" "at most 64"
run logits --model m --tokens 1 --out o --threads
refused "--threads needs a value"
run logits --model m --tokens 1 --out o extra
refused '"extra"'
run logits --model m --tokens 1
refused "--out"
run logits --model m --out o
refused "--tokens or --batch"
run logits --tokens 1 --out o
refused "--model DIR is missing"
run grads --model m --batch batch.json --out o
refused "--batch"
no_file o
run logit --model m
refused '"logit"' "logits"

it "an output that cannot be written is refused"
run logits --model m --tokens 1 --out nowhere/o
refused nowhere/o
mkdir -p occupied
run logits --model m --tokens 1 --out occupied
refused occupied
[ -d occupied ] || fail "the folder is gone"

it "a memory limit that is too small is refused, and names what does not fit"
run logits --model m --tokens 1 --out o --memory-limit 1KiB
refused "1024" "memory"
no_file o

it "inspect shows a model folder"
run inspect m
exit_is 0
out_has "mistral (MistralForCausalLM)"
out_has "2 layers, hidden 16, 4 heads over 2 of 6 dims, mlp 20, vocabulary 64"
out_has "sliding window"
out_has "20 tensors"
run inspect --all m/model.safetensors
exit_is 0
[ "$(grep -c '^  ' out)" = 20 ] || fail "not 20 tensors"

it "inspect refuses what it does not know"
run inspect nowhere
refused nowhere
run inspect
refused "give one path"
mkdir -p hollow
run inspect hollow
refused hollow config.json
run inspect m/config.json
refused m/config.json

it "doctor says what the machine has"
run doctor
exit_is 0
out_has "hyper "
for word in cpu memory compiler packed; do grep -qE "^(ok|--) +$word " out || fail "no line on $word"; done
run doctor now
refused '"now"'

it "every verb's help has its usage and an example"
for verb in logits grads generate eval tokenize inspect convert doctor bench train; do
  run $verb --help
  exit_is 0
  out_has "usage: hyper"
  out_has "example: hyper $verb"
done
