#!/bin/sh
# Post-validation: forwards of the next step run before the update of this one, with the bits of one
# device, in one process and in several.
. "$(dirname "$0")/lib.sh"
. "$ROOT/tests/cli/model_lib.sh"
. "$ROOT/tests/cli/train_lib.sh"
. "$ROOT/tests/cli/process_lib.sh"

make_job job <<END
gradient_accumulation_steps: 6
END
sed -i 's/"num_hidden_layers": [0-9]*/"num_hidden_layers": 6/' job/model/config.json
sed -i 's/^max_steps: .*/max_steps: 6/; s/^per_device_train_batch_size: .*/per_device_train_batch_size: 2/; s/^save_steps: .*/save_steps: 4/' job/job.yaml
cat >even.yaml <<END
name: even
device: {flops: 1e9, bandwidth_gb_s: 1000}
links: [{name: net, bandwidth_gb_s: 100, latency_us: 0.1}]
END
how="hyper_parallel.cluster=even.yaml strategy=pp=3"

# trained OUT KEY=VALUE...: on three stages, with the bits of the run in ./one.
trained() {
  out=$1
  shift
  rm -rf "$out"
  run train job/job.yaml output_dir="$out" $how "$@"
  exit_is 0
  same_file "$out/model.safetensors" one/model.safetensors
  same_history "$out" one
}

it "rows of the next step run before the update, which is told, and change no bit"
evaluated="eval_strategy=steps eval_steps=3 val_size=0.1"
run train job/job.yaml output_dir=one $evaluated max_grad_norm=100
exit_is 0
trained zbv "hyper_parallel.pipeline={schedule: zbv}" $evaluated max_grad_norm=100
err_has "post-validation: forwards of"
grep -q "measured: stage 0 F 3" zbv/report.html || fail "the report has no row"
! grep -q "measured: stage 0 F 0" zbv/report.html || fail "the last step has not gone on with what ran before it"
run explain job/job.yaml pipeline $how "hyper_parallel.pipeline={schedule: zbv}"
out_has "forwards of the next step before the update, on each device: "
run explain job/job.yaml pipeline $how "hyper_parallel.pipeline={schedule: zbv}" --json
[ "$(json out ahead.step_s | awk -v alone="$(json out ahead.alone_s)" '{ print ($1 < 0.99 * alone) }')" = 1 ] ||
  { fail "nothing is gained"; t_show; }
[ "$(json out step_s)" = "$(json out ahead.step_s)" ] || fail "the step is predicted as if nothing ran ahead"
run explain job/job.yaml ops $how "hyper_parallel.pipeline={schedule: zbv}" # 11 params: once, and once ahead
calls=$(awk '/loop adamw/ { for (i = 2; $i != "loop"; i++) n = $i; print n; exit }' out)
[ "${calls:-0}" -gt 11 ] && [ "$calls" -le 22 ] || fail "$calls updates of 11 params"
run explain job/job.yaml pipeline $how "hyper_parallel.pipeline={schedule: zbv}" --svg ahead.svg
grep -q "stage 0 F 6" ahead.svg || fail "the picture has no row of the next step"

it "also where some steps are clipped after all"
rm -rf one
norm=$(sed -n 's/.*"grad_norm": \([0-9.]*\).*/\1/p' zbv/trainer_state.json | sort -n | sed -n 4p)
run train job/job.yaml output_dir=one max_grad_norm="$norm"
exit_is 0
trained clipped "hyper_parallel.pipeline={schedule: zbv}" max_grad_norm="$norm"

it "samples of the next step are weighed as those of this one"
smoothed="label_smoothing_factor=0.1 packing=false max_grad_norm=100"
rm -rf plain
run train job/job.yaml output_dir=plain $smoothed
exit_is 0
run train job/job.yaml output_dir=smoothed $how "hyper_parallel.pipeline={schedule: zbv}" $smoothed
exit_is 0
same_file smoothed/model.safetensors plain/model.safetensors

it "a run goes on from a checkpoint with the same bits"
rm -rf clipped/checkpoint-6 clipped/model.safetensors
run train job/job.yaml output_dir=clipped $how "hyper_parallel.pipeline={schedule: zbv}" max_grad_norm="$norm"
exit_is 0
err_has "step 4"
same_file clipped/model.safetensors one/model.safetensors

it "post_validation: false, a memory limit, offloading, or a gradient of another stage turn it off"
run explain job/job.yaml pipeline $how "hyper_parallel.pipeline={schedule: zbv, post_validation: false}"
out_lacks "forwards of the next step"
run explain job/job.yaml pipeline $how "hyper_parallel.pipeline={schedule: zbv}" memory_limit=90%
out_lacks "forwards of the next step"
run explain job/job.yaml memory $how "hyper_parallel.pipeline={schedule: zbv}" # plans many limits
exit_is 0
run explain job/job.yaml pipeline $how "hyper_parallel.pipeline={schedule: zb-2p}" # tied, on two devices
out_lacks "forwards of the next step"
for away in offload=activations=host hyper_parallel.offload_policy=layer_ahead; do # without a limit, too
  trained away "hyper_parallel.pipeline={schedule: zbv}" max_grad_norm="$norm" $away
  err_lacks "post-validation: forwards of"
done
run train job/job.yaml output_dir=asked max_steps=1 strategy=pp=2 "hyper_parallel.pipeline={post_validation: true}"
exit_is 0
err_has "post_validation is ignored"
run train job/job.yaml output_dir=nowhere "hyper_parallel.pipeline={post_validation: maybe}"
refused "argument 2: hyper_parallel.pipeline.post_validation: "

if over_mpi; then
  it "processes have the bits of one device"
  rm -rf many
  run launch -n 3 -- train job/job.yaml output_dir=many $how "hyper_parallel.pipeline={schedule: zbv}" max_grad_norm="$norm"
  exit_is 0
  same_file many/model.safetensors one/model.safetensors
fi
