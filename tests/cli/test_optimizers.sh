# Optimizers other than AdamW: LlamaFactory's numbers, meshes, resume, memory, refusals.
. "$(dirname "$0")/lib.sh"
. "$ROOT/tests/cli/train_lib.sh"
. "$ROOT/tests/cli/model_lib.sh"

# LlamaFactory rounds each operation of Muon's Newton-Schulz steps to bf16: an order of its sums alone moves the norms of
# gradients by 2e-4.  With these steps in f32 its numbers are ours.
follows_rounded() {
  awk '{ key = $1 " " $2 } NR == FNR { have[key] = $3; next } /^#/ { next }
    { n++; d = have[key] - $3; if (d < 0) d = -d; size = $3 < 0 ? -$3 : $3
      if (!(key in have) || d > ($2 == "grad_norm" ? 5e-4 : 3e-5) * size) { bad = 1; print "  " key " is " have[key] ", expected " $3 } }
    END { exit bad || n < 10 }' numbers "$1" || fail "$1: other numbers"
}
follows_its_precision() {
  case $1 in *muon.txt) follows_rounded "$1" ;; *) follows "$1" ;; esac
}
runs_follow optimizers follows_its_precision

make_job base </dev/null
sed -i 's/^max_steps: .*/max_steps: 4/; s/^save_steps: .*/save_steps: 2/' base/job.yaml
keys_of() {
  case $1 in muon) echo use_muon=true ;; lion) echo optim=lion_32bit ;; *) echo "optim=$1" ;; esac
}

for name in sgd adafactor lion muon; do
  keys=$(keys_of $name)
  it "$name: the same bits on meshes, pipelines, under a memory limit, with the update in the next step"
  run train base/job.yaml deterministic=layout output_dir=$name $keys
  exit_is 0
  for how in "strategy=dp=2,tp=2,zero=1 per_device_train_batch_size=2 memory_limit=90%" "strategy=pp=2,cp=2" \
    "strategy=dp=2,zero=3 per_device_train_batch_size=2" "hyper_parallel.update=next_step"; do
    run train base/job.yaml deterministic=layout output_dir=two overwrite_output_dir=true $keys $how
    exit_is 0
    same_file $name/model.safetensors two/model.safetensors
  done

  it "$name: sums that are split over devices change losses by less than 1e-6"
  run train base/job.yaml output_dir=one overwrite_output_dir=true $keys
  exit_is 0
  for how in dp=2,zero=2 dp=2,tp=2,zero=3; do
    run train base/job.yaml output_dir=two overwrite_output_dir=true $keys strategy=$how global_batch_size=4 per_device_train_batch_size=2
    exit_is 0
    close_losses one/trainer_log.jsonl two/trainer_log.jsonl 1e-6
  done

  it "$name: goes on from a checkpoint with the same bits, on another mesh, too"
  for how in "" strategy=dp=2,tp=2,zero=3; do
    run train base/job.yaml deterministic=layout output_dir=two overwrite_output_dir=true $keys $how resume_from_checkpoint=$name/checkpoint-2
    exit_is 0
    same_file $name/model.safetensors two/model.safetensors
  done
  run train base/job.yaml deterministic=layout output_dir=mesh overwrite_output_dir=true $keys strategy=dp=2,tp=2,zero=3 per_device_train_batch_size=2
  exit_is 0
  run train base/job.yaml deterministic=layout output_dir=two overwrite_output_dir=true $keys resume_from_checkpoint=mesh/checkpoint-2
  exit_is 0
  same_file $name/model.safetensors two/model.safetensors

  it "$name: a checkpoint of another optimizer is refused"
  run train base/job.yaml output_dir=three optim=adamw_torch resume_from_checkpoint=$name/checkpoint-2
  exit_is 2
  err_has "the checkpoint is of $name, this run uses another optim"
done

# state_bytes [KEYS]: of the optimizer, with these keys.
state_bytes() {
  run explain base/job.yaml memory --json "$@"
  exit_is 0
  json out model_optimizer_bytes
}

it "keeps the state that each optimizer has"
params=$(tensors adafactor/model.safetensors | sed 's/.*\[\(.*\)\]/\1/; s/, / /' | awk '{ n += $1 * ($2 ? $2 : 1) } END { print 4 * n }')
factors=$(tensors adafactor/model.safetensors | sed 's/.*\[\(.*\)\]/\1/; s/, / /' | awk '{ n += $1 + $2 } END { print 4 * n }')
[ "$(state_bytes optim=adafactor)" = "$factors" ] || fail "adafactor: expected a row and a column of each matrix"
[ "$(state_bytes optim=lion_32bit)" = "$params" ] || fail "lion: expected one moment"
[ "$(state_bytes optim=sgd)" = 0 ] || fail "sgd: expected none"
[ "$(state_bytes use_muon=true)" -lt $((2 * params)) ] || fail "muon: expected less than AdamW has"
tensors adafactor/checkpoint-4/optimizer.safetensors > list
grep -q '^row.model.layers.0.mlp.down_proj.weight F32 \[32\]$' list || fail "no means of rows"
grep -q '^col.model.layers.0.mlp.down_proj.weight F32 \[48\]$' list || fail "no means of columns"
grep -q '^v.model.norm.weight F32 \[32\]$' list || fail "no second moment of a vector"
tensors muon/checkpoint-4/optimizer.safetensors > list
grep -q '^v.model.embed_tokens.weight' list || fail "the embedding is not of AdamW"
grep -q '^v.model.layers.0.mlp.down_proj.weight' list && fail "a matrix of Muon has a second moment"
grep -q '^m.model.layers.0.mlp.down_proj.weight' list || fail "a matrix of Muon has no momentum"

it "tells which keys an optimizer does not use"
run train base/job.yaml output_dir=four optim=adafactor adam_beta1=0.8 max_steps=1
exit_is 0
err_has "adam_beta1: without effect: adafactor does not use it"
run train base/job.yaml output_dir=four overwrite_output_dir=true optim=sgd use_muon=true max_steps=1
exit_is 0
err_has "optim: without effect: use_muon is the optimizer"
run train base/job.yaml output_dir=five use_muon=true finetuning_type=lora loraplus_lr_ratio=4
exit_is 2
err_has "use_muon: true has no effect with loraplus_lr_ratio, which trains by optim"

it "trains stacks of experts, on meshes, and goes on with the same bits"
mkdir -p experts/model
cp base/model/tokenizer* experts/model/
sed 's/"model_type": "llama"/"model_type": "mixtral", "num_local_experts": 4, "num_experts_per_tok": 2/; s/LlamaForCausalLM/MixtralForCausalLM/' \
  base/model/config.json > experts/model/config.json
sed 's@base/@experts/@' base/job.yaml > experts/job.yaml
for name in adafactor muon; do
  keys=$(keys_of $name)
  run train experts/job.yaml deterministic=layout output_dir=experts/$name $keys
  exit_is 0
  run train experts/job.yaml deterministic=layout output_dir=two overwrite_output_dir=true $keys strategy=dp=2,ep=2 per_device_train_batch_size=2 \
    resume_from_checkpoint=experts/$name/checkpoint-2
  exit_is 0
  same_file experts/$name/model.safetensors two/model.safetensors
  run train experts/job.yaml deterministic=layout output_dir=two overwrite_output_dir=true $keys resume_from_checkpoint=experts/$name/checkpoint-2
  exit_is 0
  same_file experts/$name/model.safetensors two/model.safetensors
done
tensors experts/adafactor/checkpoint-4/optimizer.safetensors > list
grep -q '^row.model.layers.0.block_sparse_moe.experts.3.w1.weight F32 \[48\]$' list || fail "no means of rows of an expert"

it "takes the layout of means of rows and columns from a pattern for their params"
cat >> base/job.yaml <<END
hyper_parallel: {device_matrix: [2], alias_name: [x], tensor_map: {"*q_proj.weight": [x, None], "*down_proj.weight": [None, x]}}
END
run train base/job.yaml deterministic=layout output_dir=two overwrite_output_dir=true optim=adafactor
exit_is 0
same_file adafactor/model.safetensors two/model.safetensors
