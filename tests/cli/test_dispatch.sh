#!/bin/sh
# Tokens of experts by rows: the bits of all rows, in fewer bytes, on devices and processes.
. "$(dirname "$0")/lib.sh"
. "$ROOT/tests/cli/model_lib.sh"
. "$ROOT/tests/cli/train_lib.sh"
. "$ROOT/tests/cli/process_lib.sh"
over_sockets

make_job job <<END
gradient_accumulation_steps: 2
END
fix_batch job/job.yaml
sed -i "s|^max_steps: .*|max_steps: 4|; s|^save_steps: .*|save_steps: 2|" job/job.yaml
vocab=$(sed -n 's/.*"vocab_size": \([0-9]*\).*/\1/p' job/model/config.json)

model_of() { # FAMILY: a small one, with more experts than a token has on any device
  case $1 in
    mixtral) more='"num_local_experts": 8, "num_experts_per_tok": 1' ;;
    qwen3_moe) more='"num_experts": 16, "num_experts_per_tok": 2, "moe_intermediate_size": 10, "norm_topk_prob": true' ;;
    deepseek_v3) more='"n_routed_experts": 12, "num_experts_per_tok": 2, "moe_intermediate_size": 10,
      "n_shared_experts": 1, "n_group": 3, "topk_group": 2, "first_k_dense_replace": 1, "q_lora_rank": 11,
      "kv_lora_rank": 9, "qk_nope_head_dim": 5, "qk_rope_head_dim": 4, "v_head_dim": 7, "num_nextn_predict_layers": 0' ;;
  esac
  kv=2
  [ "$1" = deepseek_v3 ] && kv=4
  cat >job/model/config.json <<END
{"model_type": "$1", "vocab_size": $vocab, "hidden_size": 28, "intermediate_size": 22, "num_hidden_layers": 2,
 "num_attention_heads": 4, "num_key_value_heads": $kv, "max_position_embeddings": 64, "tie_word_embeddings": false,
 "head_dim": 6, "initializer_range": 0.1, $more}
END
}

train() { # DIR KEY=VALUE ...
  dir=$1
  shift
  run train job/job.yaml "output_dir=$dir" overwrite_output_dir=true "$@"
  exit_is 0
}

# received DIR: bytes that device 0 received of others in tokens and results of experts and the like.
received() {
  tr '{' '\n' <"$1/op_times.json" | sed -n '/"kind": "\(dispatch\|combine\|all_gather\|reduce_scatter\)/s/.*"moved_bytes": \([^,]*\).*/\1/p' |
    awk '{ sum += $1 } END { printf "%.0f", sum }'
}

it "three families give the bits of all rows, in fewer bytes"
for family in mixtral qwen3_moe deepseek_v3; do
  model_of $family
  for strategy in ep=4 dp=2,tp=2,ep=4,sp,zero=3; do
    train all "strategy=$strategy" hyper_parallel.dispatch=all
    train rows "strategy=$strategy" hyper_parallel.dispatch=rows
    same_file all/model.safetensors rows/model.safetensors
    same_history all rows
    a=$(received all) r=$(received rows)
    awk -v a="$a" -v r="$r" 'BEGIN { exit !(r > 0 && r < 0.95 * a) }' ||
      fail "$family by $strategy: rows take $r bytes of $a"
  done
done

it "processes move the rows that devices of one process move"
model_of qwen3_moe
for s in 3:ep=3 4:dp=2,tp=2,ep=4,sp; do
  train one "strategy=${s#*:}" hyper_parallel.dispatch=rows
  run launch -n "${s%%:*}" -- train job/job.yaml "strategy=${s#*:}" hyper_parallel.dispatch=rows \
    output_dir=several overwrite_output_dir=true
  exit_is 0
  same_file one/model.safetensors several/model.safetensors
  same_history one several
  near "$(received several)" "$(received one)" 0.1 ||
    fail "processes received $(received several) bytes, devices $(received one)"
done

it "a run goes on with the other way"
rm -rf again
train one strategy=ep=4 hyper_parallel.dispatch=all
train again strategy=ep=4 hyper_parallel.dispatch=rows max_steps=2
run train job/job.yaml output_dir=again strategy=ep=4 hyper_parallel.dispatch=all
exit_is 0
same_file one/model.safetensors again/model.safetensors

it "explain expects the rows of a uniform router, and a plan takes rows where they are faster"
run explain job/job.yaml comm --json strategy=ep=4 hyper_parallel.dispatch=rows hyper_parallel.cluster=dgx-h100
exit_is 0
for word in '"dispatch"' '"combine"' '"expected_bytes"'; do out_has "$word"; done
run explain job/job.yaml comm strategy=ep=4 hyper_parallel.dispatch=all
exit_is 0
out_lacks dispatch

it "another word is refused"
run train job/job.yaml strategy=ep=4 hyper_parallel.dispatch=some
refused dispatch some auto rows all
