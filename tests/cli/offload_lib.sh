# For scripts that run models under memory limits; sourced after lib.sh and train_lib.sh.

# family_job FAMILY: job/job.yaml trains a model of the family, of $LAYERS layers, whose weights and
# optimizer state are most of its memory.
LAYERS=${LAYERS:-4}
family_job() {
  [ -e job/job.yaml ] || make_job job </dev/null
  vocab=$(sed -n 's/.*"vocab_size": \([0-9]*\).*/\1/p' job/model/config.json)
  kv=2 more='"head_dim": 16'
  case $1 in
    qwen3_moe) more='"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 64, "head_dim": 16,
      "norm_topk_prob": true' ;;
    deepseek_v3) kv=4 more='"n_routed_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 64,
      "n_shared_experts": 1, "n_group": 2, "topk_group": 1, "first_k_dense_replace": 1, "q_lora_rank": 32,
      "kv_lora_rank": 32, "qk_nope_head_dim": 16, "qk_rope_head_dim": 8, "v_head_dim": 16,
      "num_nextn_predict_layers": 0' ;;
  esac
  cat >job/model/config.json <<END
{"model_type": "$1", "vocab_size": $vocab, "hidden_size": 64, "intermediate_size": 256, "num_hidden_layers": $LAYERS,
 "num_attention_heads": 4, "num_key_value_heads": $kv, "max_position_embeddings": 64, "tie_word_embeddings": false,
 "initializer_range": 0.1, $more}
END
  sed -i 's/^max_steps: .*/max_steps: 6/; s/^save_steps: .*/save_steps: 100/' job/job.yaml
  grep -q '^threads:' job/job.yaml || echo 'threads: 1' >>job/job.yaml
}

# limits_of KEY=VALUE...: $resident and $least bytes of the job.  That no smaller limit is accepted is
# test_explain's subject: `explain memory` looks for it, which takes seconds.
limits_of() {
  run explain job/job.yaml --json "$@"
  exit_is 0
  resident=$(json out planned_bytes)
  run train job/job.yaml output_dir=refused memory_limit=1 "$@"
  exit_is 2
  least=$(sed -n 's/.*set memory_limit to \([0-9]*\) bytes.*/\1/p' err)
  [ "${least:-0}" -gt 0 ] || { fail "no least limit"; t_show; }
}

# same_under SHARES KEY=VALUE...: the run in ./whole, without a limit, has the bits of runs under such
# percentages of its memory, but no less than the least.
same_under() {
  shares=$1
  shift
  rm -rf whole
  run train job/job.yaml output_dir=whole "$@"
  exit_is 0
  limits_of "$@"
  for share in $shares; do
    limit=$((resident * share / 100))
    [ "$limit" -ge "$least" ] || limit=$least
    rm -rf limited
    run train job/job.yaml output_dir=limited memory_limit=$limit "$@"
    exit_is 0
    [ "$share" -gt 50 ] || err_has "memory_limit: " # more may fit without offloading
    same_file limited/model.safetensors whole/model.safetensors
    same_history limited whole
  done
}

# slow_cluster: slow.yaml is a cluster file on which copies to the host take longer than computation.
slow_cluster() {
  cat >slow.yaml <<END
name: slow
device: {flops: 4e9, bandwidth_gb_s: 2.7}
links: [{name: none, bandwidth_gb_s: 1, latency_us: 1}]
tiers: [{name: host, read_gb_s: 0.02, write_gb_s: 0.02, latency_us: 1}]
END
}
