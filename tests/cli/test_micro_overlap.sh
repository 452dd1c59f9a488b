# Micro-batches of a step overlap: the collectives of experts run during computation of another micro-batch, or of its other half.
. "$(dirname "$0")/lib.sh"
. "$ROOT/tests/cli/train_lib.sh"

make_job job </dev/null
cat >job/model/config.json <<'END'
{"model_type": "qwen3_moe", "vocab_size": 512, "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 6,
 "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16, "max_position_embeddings": 64,
 "num_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 48}
END
cat >four.yaml <<'END'
name: four
device: {flops: 5.0e9, bandwidth_gb_s: 2.5}
links: [{name: link, bandwidth_gb_s: 0.5, latency_us: 20}]
END

# overlap FILE WORD..: what is predicted of collectives.
overlap() {
  file=$1
  shift
  run explain job/job.yaml comm --json strategy=ep=4 hyper_parallel.cluster=four.yaml "$@"
  exit_is 0
  cp out "$file.json"
}
# share FILE LEAST: at least so many percent of the time of collectives is overlapped.
share() {
  all=$(json "$1.json" time_s) hidden=$(json "$1.json" overlapped_s)
  awk -v h="$hidden" -v a="$all" -v least="$2" 'BEGIN { exit !(100 * h >= least * a) }' ||
    fail "$1: $hidden s of $all s are overlapped, expected $2 %"
}
work() { # MICRO-BATCHES: bytes of work memory
  run explain job/job.yaml --json strategy=ep=4 hyper_parallel.cluster=four.yaml gradient_accumulation_steps="$1"
  exit_is 0
  json out work_bytes
}

it "collectives of a micro-batch overlap with computation of the next one"
overlap many gradient_accumulation_steps=16
share many 80
many=$(work 16) one=$(work 1)
[ "$many" -lt $((3 * one / 2)) ] || fail "$many bytes of work memory, $one of a micro-batch alone"

it "without gradients of weights a backward overlaps with the next forward alone"
overlap adapters finetuning_type=lora gradient_accumulation_steps=16
share adapters 80

it "halves of a micro-batch overlap with each other in each micro-batch"
overlap halves gradient_accumulation_steps=1 hyper_parallel.interleave=2
share halves 94
overlap many gradient_accumulation_steps=4 hyper_parallel.interleave=2
share many 92

it "halves overlap best where micro-batches do not"
sed 's/"hidden_size": 64/"hidden_size": 256/; s/"intermediate_size": 96/"intermediate_size": 704/; s/"num_attention_heads": 4/"num_attention_heads": 8/
     s/"num_key_value_heads": 2/"num_key_value_heads": 4/; s/"head_dim": 16/"head_dim": 32/; s/_size": 48/_size": 352/
     s/"max_position_embeddings": 64/"max_position_embeddings": 128/' job/model/config.json >wide.json
sed 's/bandwidth_gb_s: 0.5, latency_us: 20/bandwidth_gb_s: 0.125, latency_us: 200/' four.yaml >slow.yaml
overlap apart model_name_or_path=wide.json hyper_parallel.cluster=slow.yaml finetuning_type=lora cutoff_len=128 \
  per_device_train_batch_size=2 gradient_accumulation_steps=4 hyper_parallel.interleave=2
share apart 95

it "with memory for all micro-batches all of them overlap"
overlap roomy gradient_accumulation_steps=4 hyper_parallel.memory_limit=1GiB
share roomy 95

it "collectives of a stage overlap inside its rows, and params are gathered ahead of them"
stages() { # FILE WORD..
  file=$1
  shift
  run explain job/job.yaml comm --json hyper_parallel.cluster=four.yaml gradient_accumulation_steps=8 "$@"
  exit_is 0
  head -n 1 out >"$file.json"
}
stages serial strategy=pp=2,ep=2 hyper_parallel.overlap=false
share serial 0
[ "$(json serial.json overlapped_s)" = 0 ] || fail "overlap: false overlaps"
stages halves strategy=pp=2,ep=2 hyper_parallel.interleave=2
share halves 85
stages gathered strategy=pp=2,dp=2,zero=3
share gathered 70
stages paired strategy=pp=2,ep=2 "hyper_parallel.pipeline={schedule: dualpipe-v}"
stages alone strategy=pp=2,ep=2
awk -v a="$(json paired.json overlapped_s)" -v t="$(json paired.json time_s)" -v b="$(json alone.json overlapped_s)" \
  -v u="$(json alone.json time_s)" 'BEGIN { exit !(a / t > b / u + 0.1) }' || fail "pairs of dualpipe-v overlap no better than rows"
