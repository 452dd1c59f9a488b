#!/bin/sh
# deterministic: layout: loss and weights are those of one device, bit for bit, on every mesh.
# MESHES=all: on more of them, up to 35 devices; some: on those that differ most.
. "$(dirname "$0")/../cli/lib.sh"
. "$ROOT/tests/cli/model_lib.sh"
. "$ROOT/tests/cli/train_lib.sh"

# job FOLDER BATCH: with clipping and two micro-batches a step.
job() {
  make_job "$1" <<END
gradient_accumulation_steps: 2
max_grad_norm: 0.5
END
  sed -i "s/batch_size: 4/batch_size: $2/; s/cutoff_len: 32/cutoff_len: 16/" "$1/job.yaml"
  fix_batch "$1/job.yaml"
}
all() { [ "${MESHES:-some}" = all ]; }
# same_on FOLDER STRATEGY...: after $steps steps the job's history and weights are those of one device.
steps=8
all && steps=20
same_on() {
  folder=$1
  shift
  run train "$folder/job.yaml" output_dir="$folder/one-$steps" max_steps=$steps
  exit_is 0
  for s; do
    run train "$folder/job.yaml" output_dir="$folder/$s" "strategy=$s" deterministic=layout max_steps=$steps
    exit_is 0
    same_history "$folder/one-$steps" "$folder/$s"
    same_file "$folder/one-$steps/model.safetensors" "$folder/$s/model.safetensors"
  done
}

it "steps with clipping and accumulation have the bits of one device on every mesh"
job even 12
same_on even dp=2,tp=4,zero=3
if all; then
  same_on even dp=2 dp=3 dp=4 dp=2,zero=1 dp=3,zero=2 dp=4,zero=3 tp=2 tp=3 tp=4 dp=2,tp=2 dp=3,tp=2 dp=2,tp=3 dp=6,tp=2,zero=1
fi

it "without it another mesh has other bits"
run train even/job.yaml output_dir=run strategy=dp=2,tp=2 max_steps=$steps
exit_is 0
! cmp -s even/one-$steps/model.safetensors run/model.safetensors || fail "the runs were to differ"

it "sequence, context and two-dimensional tensor parallelism"
same_on even tp=2,tp_y=3,dp=2,sp cp=4:hybrid,zero=1
if all; then same_on even tp=2,sp tp=2,tp_y=2 cp=2 cp=2:allgather,tp=2,sp cp=2:ulysses; fi

it "degrees of five and seven, dropout, untied embeddings"
job odd 35
sed -i 's/"num_attention_heads": 4/"num_attention_heads": 5/; s/"hidden_size": 32/"hidden_size": 40/
  s/"num_key_value_heads": 2/"num_key_value_heads": 5/; s/"attention_bias"/"attention_dropout": 0.2, "attention_bias"/
  s/"intermediate_size": 48/"intermediate_size": 70/; s/"tie_word_embeddings": true/"tie_word_embeddings": false/' \
  odd/model/config.json
same_on odd dp=5,zero=2 tp=7
err_has "0.2 of attention weights"
if all; then same_on odd dp=5 dp=7,zero=3 tp=5 dp=5,tp=7,zero=1; fi

it "experts"
job moe 12
sed -i 's/"model_type": "[a-z0-9]*"/"model_type": "mixtral", "num_local_experts": 4, "num_experts_per_tok": 2/
  s/LlamaForCausalLM/MixtralForCausalLM/' moe/model/config.json
same_on moe ep=4,cp=2,sp,tp=2
if all; then same_on moe dp=3 tp=4 ep=2 ep=2,etp=2,tp=2,zero=1; fi

if all; then
  it "other norms, dropout everywhere"
  job gpt2 12
  write gpt2/model/config.json <<END
{"model_type": "gpt2", "vocab_size": 512, "n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 64,
 "embd_pdrop": 0.1, "attn_pdrop": 0.1, "resid_pdrop": 0.1, "bos_token_id": null, "eos_token_id": 0}
END
  same_on gpt2 dp=3,tp=2 dp=2,tp=2,zero=3
fi

it "a mesh and layouts of one's own, by the block's key"
cat >>even/job.yaml <<END
hyper_parallel:
  deterministic: layout
  leaves: 16
  device_matrix: [2, 2, 3]
  alias_name: [a, b, c]
  tensor_map:
    ids: [c, None]
    labels: [[a, c], b]
    "*.q_proj.weight": [a, None]
    "*.o_proj.weight": [None, [b, a]]
    "*.gate_proj.weight": [[c, a], b]
    "*.down_proj.weight": [b, c]
    "*norm.weight": [b]
    "*.embed_tokens.weight": [a, b]
END
run train even/job.yaml output_dir=own max_steps=$steps
exit_is 0
err_has "leaves: without effect"
same_history even/one-$steps own
same_file even/one-$steps/model.safetensors own/model.safetensors
sed -i '/^hyper_parallel:/,$d' even/job.yaml

it "a run goes on from its checkpoint on another mesh with the same bits"
o=even/dp=2,tp=4,zero=3
mv $o/checkpoint-5 kept
go_on() { # STRATEGY
  rm -rf $o/checkpoint-* $o/model.safetensors $o/all_results.json
  cp -r kept $o/checkpoint-5
  run train even/job.yaml output_dir=$o "strategy=$1" deterministic=layout max_steps=$steps
  exit_is 0
  err_has "checkpoint-5"
  same_history even/one-$steps $o
  same_file even/one-$steps/model.safetensors $o/model.safetensors
}
go_on tp=3
if all; then go_on dp=3,zero=1; fi

it "in bf16 too"
run train even/job.yaml output_dir=half bf16=true deterministic=layout max_steps=$steps
exit_is 0
run train even/job.yaml output_dir=halves bf16=true deterministic=layout strategy=dp=2,tp=2,zero=1 max_steps=$steps
exit_is 0
same_history half halves
same_file half/model.safetensors halves/model.safetensors

it "logits, and gradients of every family"
M=$CASES/llama-odd-heads
run logits --model "$M" --tokens 1,2,3 --out one
run logits --model "$M" --tokens 1,2,3 --out many --strategy tp=5 --deterministic layout
exit_is 0
same_file one many
for m in "$CASES"/*; do
  tokens=$(ids "$(basename "$m")" sequences.1)
  run grads --model "$m" --tokens "$tokens" --out one
  exit_is 0
  for s in $(all && echo tp=2) tp=3,dp=2; do
    run grads --model "$m" --tokens "$tokens" --out many --strategy $s --deterministic layout
    exit_is 0
    same_file one many
  done
done

it "another word is refused"
run logits --model "$M" --tokens 1 --out o --deterministic always
refused "--deterministic always: expected run or layout"
run train even/job.yaml output_dir=nowhere deterministic=always
refused "run or layout"
no_file nowhere
