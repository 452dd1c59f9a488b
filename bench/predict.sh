#!/bin/sh
# Predicted against measured seconds of training steps: 10 models and sizes, in f32 and bf16, on one
# device.  Predictions learn from the runs before; the table is of the last round.
#   bench/predict.sh [ROUNDS]     3 rounds take about 5 minutes on 2 cores
# HYPER: the command (build/hyper).  What the machine learned before is left alone.
set -eu
cd "$(dirname "$0")/.."
hyper=${HYPER:-build/hyper}
rounds=${1:-3}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir -m 700 "$work/cache"
export HYPER_CACHE="$work/cache"

# NAME TYPE HIDDEN INTERMEDIATE LAYERS HEADS KV_HEADS VOCAB BATCH SEQ
models='llama-1m llama 128 352 4 4 4 4096 8 128
llama-15m llama 288 768 6 6 6 32000 4 256
llama-15m-long llama 288 768 6 6 6 32000 1 1024
llama-42m llama 512 1376 8 8 8 32000 2 256
llama-gqa llama 640 1728 6 10 2 16000 2 256
llama-110m llama 768 2048 12 12 12 32000 1 256
gpt2-30m gpt2 384 1536 6 6 6 50257 2 256
qwen3-30m qwen3 512 1536 6 8 4 24000 2 512
qwen2-20m qwen2 384 1024 6 6 2 32000 4 128
mixtral-small mixtral 256 512 4 4 2 8192 4 128'

config() { # TYPE HIDDEN INTERMEDIATE LAYERS HEADS KV VOCAB
  case $1 in
    gpt2)
      printf '{"model_type": "gpt2", "n_embd": %s, "n_inner": %s, "n_layer": %s, "n_head": %s, ' "$2" "$3" "$4" "$5"
      printf '"vocab_size": %s, "n_positions": 1024}\n' "$7" ;;
    *)
      printf '{"model_type": "%s", "hidden_size": %s, "intermediate_size": %s, "num_hidden_layers": %s, ' "$1" "$2" "$3" "$4"
      printf '"num_attention_heads": %s, "num_key_value_heads": %s, "vocab_size": %s, ' "$5" "$6" "$7"
      [ "$1" != mixtral ] || printf '"num_local_experts": 4, "num_experts_per_tok": 2, '
      printf '"head_dim": %s, "max_position_embeddings": 2048}\n' $(($2 / $5)) ;;
  esac
}

field() { sed -n "s/.*\"$1\": \([0-9.e+-]*\).*/\1/p"; }

"$hyper" bench cost >/dev/null
for round in $(seq 1 "$rounds"); do
  : >"$work/table"
  echo "$models" | while read -r name type h i l heads kv vocab batch seq; do
    config "$type" "$h" "$i" "$l" "$heads" "$kv" "$vocab" >"$work/config.json"
    for dtype in f32 bf16; do
      row=$("$hyper" bench step --model "$work/config.json" --batch "$batch" --seq "$seq" --dtype $dtype --json | tail -n 1)
      echo "$name $dtype $(echo "$row" | field predicted_s) $(echo "$row" | field step_s)" >>"$work/table"
    done
  done
  awk -v round="$round" '
    function off(r) { return r > 1 ? r - 1 : 1 / r - 1 }
    { r = $3 / $4; d = off(r); sum += d; n++; within += d <= 0.10; if (d > most) most = d }
    END { printf "round %d: off by %.1f %% in the mean, %.1f %% at most, %d of %d within 10 %%\n", round, 100 * sum / n, 100 * most, within, n }' "$work/table"
done
awk 'BEGIN { print "model dtype predicted_s measured_s predicted/measured" } { printf "%s %s %s %s %.2f\n", $1, $2, $3, $4, $3 / $4 }' "$work/table" | column -t
