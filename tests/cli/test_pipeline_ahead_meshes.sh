#!/bin/sh
# Post-validation where stages have several devices, and values that are kept from step to step lie
# on several streams: the bits of one device.
. "$(dirname "$0")/lib.sh"
. "$ROOT/tests/cli/model_lib.sh"
. "$ROOT/tests/cli/train_lib.sh"
. "$ROOT/tests/cli/offload_lib.sh"

# Computation alone takes time, so that stages are even.
write even.yaml <<END
name: even
device: {flops: 1e9, bandwidth_gb_s: 1000}
links: [{name: net, bandwidth_gb_s: 100, latency_us: 0.1}]
END
make_job job <<END
gradient_accumulation_steps: 6
hyper_parallel: {cluster: even.yaml, deterministic: layout}
END
LAYERS=8 family_job llama
sed -i 's/^per_device_train_batch_size: .*/per_device_train_batch_size: 2/' job/job.yaml
fix_batch job/job.yaml

one() { # KEY=VALUE...: the run of one device, which runs_ahead repeats
  given=$*
  rm -rf one
  run train job/job.yaml output_dir=one $given
  exit_is 0
}
runs_ahead() { # STRATEGY SCHEDULE
  rm -rf p
  run train job/job.yaml output_dir=p strategy="$1" "hyper_parallel.pipeline={schedule: $2}" $given
  exit_is 0
  err_has "post-validation: forwards of"
  same_file p/model.safetensors one/model.safetensors
}

it "values cross between stages ahead, with clipping, evaluations and checkpoints between steps"
one max_steps=8 max_grad_norm=2.5 eval_strategy=steps eval_steps=2 val_size=0.1 save_steps=3
runs_ahead pp=4 zb-2p
same_history p one
runs_ahead pp=2,dp=2,zero=3 zb-2p

it "values that are kept are made again only after their last use, on all streams"
one max_steps=4 finetuning_type=freeze freeze_trainable_layers=4 gradient_accumulation_steps=4 global_batch_size=8
for strategy in pp=4,dp=2 pp=4,dp=2,zero=3 pp=4,tp=2,sp; do runs_ahead $strategy zbv; done
