# export_size counts in GB of 10^9 bytes, as Transformers reads LlamaFactory's "1GB".
. "$(dirname "$0")/lib.sh"
. "$ROOT/tests/cli/model_lib.sh"

# An embedding of 10^9 bytes, in a file with holes, and a layer: two files of 1 GB, or one of 1 GiB.
mkdir model
write model/config.json <<'END'
{"model_type": "llama", "hidden_size": 16, "intermediate_size": 16, "num_attention_heads": 2, "num_key_value_heads": 1,
 "num_hidden_layers": 1, "vocab_size": 15625000, "max_position_embeddings": 16, "tie_word_embeddings": true}
END
at=0 header=
tensor() { # NAME ROWS COLUMNS
  end=$((at + 4 * $2 * $3))
  case $3 in 1) dims=$2 ;; *) dims=$2,$3 ;; esac
  header="$header${header:+, }\"model.$1.weight\": {\"dtype\": \"F32\", \"shape\": [$dims], \"data_offsets\": [$at, $end]}"
  at=$end
}
tensor embed_tokens 15625000 16
tensor layers.0.input_layernorm 16 1
for name in q o; do tensor layers.0.self_attn.${name}_proj 16 16; done
for name in k v; do tensor layers.0.self_attn.${name}_proj 8 16; done
tensor layers.0.post_attention_layernorm 16 1
for name in gate up down; do tensor layers.0.mlp.${name}_proj 16 16; done
tensor norm 16 1
header="{$header}"
n=${#header}
{
  printf "\\$(printf %o $((n % 256)))\\$(printf %o $((n / 256)))\\0\\0\\0\\0\\0\\0"
  printf %s "$header"
} >model/model.safetensors
truncate -s $((8 + n + at)) model/model.safetensors
write export.yaml <<'END'
model_name_or_path: model
export_dir: written
export_size: 1
END

it "a file of 1 GB holds 10^9 bytes"
if [ "$(df -Pk . | awk 'NR == 2 { print $4 }')" -lt 2500000 ]; then
  skip "needs 2.5 GB of disk"
else
  run export export.yaml
  exit_is 0
  [ "$(ls written/*.safetensors | wc -l)" = 2 ] || fail "$(ls written/*.safetensors), expected two files"
  [ "$(tensors written/model-00001-of-00002.safetensors)" = "model.embed_tokens.weight F32 [15625000, 16]" ] || fail "more than 10^9 bytes in a file"
  rm -rf written
  run export export.yaml export_size=2
  exit_is 0
  is_file written/model.safetensors
fi
