#!/bin/sh
# What several stages of a pipeline share: constants, padding, masks of experts, a tied embedding in halves of a
# micro-batch.  Each stage makes its own, when its rows run.
. "$(dirname "$0")/lib.sh"
. "$ROOT/tests/cli/model_lib.sh"
. "$ROOT/tests/cli/train_lib.sh"
. "$ROOT/tests/cli/offload_lib.sh"

make_job job <<END
gradient_accumulation_steps: 2
END
family_job deepseek_v3
fix_batch job/job.yaml
sed -i 's/^max_steps: .*/max_steps: 2/' job/job.yaml

# same_as FOLDER KEY=VALUE...: the weights of the run there.
same_as() {
  folder=$1
  shift
  rm -rf p
  run train job/job.yaml output_dir=p "$@"
  exit_is 0
  same_file p/model.safetensors "$folder/model.safetensors"
}

it "masks of experts that the backward makes again"
run train job/job.yaml output_dir=one
exit_is 0
for schedule in interleaved zbv; do
  same_as one strategy=pp=2 hyper_parallel.recompute=full "hyper_parallel.pipeline={schedule: $schedule}"
done

cat >job/model/config.json <<END
{"model_type": "gpt2", "vocab_size": $vocab, "n_embd": 32, "n_layer": 4, "n_head": 4, "n_positions": 64,
 "resid_pdrop": 0, "embd_pdrop": 0, "attn_pdrop": 0}
END

it "padding of dims that tp does not divide, on two stages of a mesh"
run train job/job.yaml output_dir=padded deterministic=layout
exit_is 0
for schedule in interleaved zbv; do
  same_as padded deterministic=layout strategy=pp=2,tp=3 "hyper_parallel.pipeline={schedule: $schedule}"
done

it "gradients of a tied embedding from both halves of a micro-batch"
run train job/job.yaml output_dir=half hyper_parallel.interleave=2
exit_is 0
for schedule in 1f1b zbv; do
  same_as half hyper_parallel.interleave=2 strategy=pp=2 "hyper_parallel.pipeline={schedule: $schedule}"
done
