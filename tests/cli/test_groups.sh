#!/bin/sh
# Modules of a model on groups of unlike devices, each by a strategy of its own: the numbers of one device.
. "$(dirname "$0")/lib.sh"
. "$ROOT/tests/cli/model_lib.sh"
. "$ROOT/tests/cli/train_lib.sh"
. "$ROOT/tests/cli/offload_lib.sh"
. "$ROOT/tests/cli/process_lib.sh"
over_sockets

make_job job <<END
gradient_accumulation_steps: 3
END
LAYERS=6 family_job llama
fix_batch job/job.yaml # 4 samples of a micro-batch on every mesh
sed -i 's/^max_steps: .*/max_steps: 2/' job/job.yaml
exact="deterministic=layout"

# trained GROUPS KEY=VALUE...: into ./g
trained() {
  groups=$1
  shift
  rm -rf g
  run train job/job.yaml output_dir=g "hyper_parallel.groups={$groups}" "$@"
  exit_is 0
}
# as_one GROUPS: the bits of one device where sums are not split; or nearly: else its losses.
as_one() {
  trained "$1" $exact
  same_file g/model.safetensors exact/model.safetensors
  same_history g exact
}
nearly() {
  trained "$1"
  close_losses g/trainer_log.jsonl one/trainer_log.jsonl 1e-5
}
alone() { # KEY=VALUE...: the runs of one device, the exact one with these keys
  rm -rf one exact
  run train job/job.yaml output_dir=one
  exit_is 0
  run train job/job.yaml output_dir=exact $exact "$@"
  exit_is 0
}
alone

it "groups of one device each have the bits of one device, in whatever order they are written"
trained "a: {devices: 0, module: model.layers.0-1}, b: {devices: 1, module: [model.layers.2-5, model.norm, lm_head]}"
same_file g/model.safetensors one/model.safetensors
same_history g one
trained "head: {devices: 0, module: lm_head}, ids: {devices: 2, module: model.embed_tokens}, rest: {devices: 1, module: model.layers}"
same_file g/model.safetensors one/model.safetensors

two="a: {devices: 0-1, module: model.layers.0-2, strategy: dp=2}"
it "groups of 1 + 3 and 2 + 1 + 4 devices, dp=2 beside tp=3 and dp=3: the numbers of one device"
as_one "a: {devices: 0, module: model.layers.0}, b: {devices: 1-3, module: model.layers.1-5, strategy: tp=3}"
as_one "a: {devices: 0-1, module: model.layers.0-1}, b: {devices: 2, module: model.layers.2}, c: {devices: 3-6, module: model.layers.3-5, strategy: 'dp=2,tp=2,zero=3'}"
as_one "$two, b: {devices: 2-4, module: model.layers.3-5, strategy: 'tp=3,sp'}"
as_one "$two, b: {devices: 2-4, module: model.layers.3-5, strategy: 'dp=3,zero=1'}"
err_has "groups.b: 1 of 3 data-parallel replicas have no rows: a micro-batch has 4 samples"
unlike="b: {devices: [1, 3], module: model.layers.3-5, strategy: 'cp=2'}, a: {devices: [0, 2], module: model.layers.0-2, strategy: 'tp=2'}"
as_one "$unlike"
nearly "$unlike"

it "the replicas of a run are those of the group that has most"
sed '/^global_batch_size/d' job/job.yaml >plain.yaml
run train plain.yaml output_dir=h per_device_train_batch_size=1 \
  "hyper_parallel.groups={$two, b: {devices: 2-4, module: model.layers.3-5}}"
exit_is 0
err_has "groups.a: micro-batches of 3 samples over 2 data-parallel replicas are padded to 4"
run train plain.yaml output_dir=three per_device_train_batch_size=1 strategy=dp=3
close_losses h/trainer_log.jsonl three/trainer_log.jsonl 1e-5

it "a group may be a pipeline, whose layers are cut by time or by hand, with schedules of a stage a mesh"
piped="a: {devices: 0-1, module: model.layers.0-2, strategy: pp=2}, b: {devices: 2-4, module: model.layers.3-5, strategy: tp=3}"
trained "$piped" $exact
same_file g/model.safetensors exact/model.safetensors
err_has "layers on the stages, by predicted time"
sed -n 's/.*pipeline: \[\(.*\)\] layers.*/\1/p' err | grep -q ', 3$' || fail "the layers of group b are not its own"
for schedule in gpipe zb-h1 zb-2p; do
  trained "$piped" $exact "hyper_parallel.pipeline={schedule: $schedule, cut: [2, 1, 3]}"
  same_file g/model.safetensors exact/model.safetensors
done
for schedule in zbv interleaved; do
  run train job/job.yaml output_dir=nowhere "hyper_parallel.groups={$piped}" "hyper_parallel.pipeline={schedule: $schedule}"
  refused "argument 3: hyper_parallel.pipeline.schedule" "6 stages on 3 meshes; groups have one stage on each mesh"
done
run train job/job.yaml output_dir=nowhere "hyper_parallel.groups={$piped}" "hyper_parallel.pipeline={cut: [2, 2, 2]}"
refused "hyper_parallel.pipeline.cut: 4 layers on the 2 stages of groups.a, which has 3 layers"

it "logits, gradients, loss and generated tokens are those of one device"
cat >groups.yaml <<END
hyper_parallel:
  groups:
    a: {devices: 0-1, module: model.layers.0-2, strategy: dp=2}
    b: {devices: 2-4, module: model.layers.3-5, strategy: dp=3}
    c: {devices: 5-6, module: lm_head, strategy: tp=2}
END
for verb in logits grads; do
  run $verb --model one --tokens 1,2,3,4,5 --out one.$verb --deterministic layout
  exit_is 0
  run $verb --model one --tokens 1,2,3,4,5 --out g.$verb --deterministic layout --groups groups.yaml
  exit_is 0
  same_file g.$verb one.$verb
done
seq 1 60 | paste -sd, >ids
run eval --model one --tokens "$(cat ids)" --seq 8 --json
nll=$(json out nll)
run eval --model one --tokens "$(cat ids)" --seq 8 --json --groups groups.yaml
exit_is 0
json_near out nll "$nll" 1e-5
run generate --model one --tokens 1,2,3 --max-new-tokens 12 --temperature 0 --json
tokens=$(sed 's/.*"tokens": \(\[[^]]*\]\).*/\1/' out)
run generate --model one --tokens 1,2,3 --max-new-tokens 12 --temperature 0 --json --groups groups.yaml
exit_is 0
out_has "\"tokens\": $tokens"
run bench compile --model one --seq 16 --batch 2 --groups groups.yaml --json
exit_is 0
json_is out devices 7
json_is out micro_batches 1
one=$(json out instructions)
run bench compile --model one --seq 16 --batch 2 --groups groups.yaml --accumulate 4 --json
json_is out micro_batches 4
[ "$(json out instructions)" -gt $((2 * one)) ] || fail "not the instructions of 4 micro-batches"
run bench limits --groups groups.yaml
refused "--groups: there is no model with layers for them; write --strategy"
run generate --model one --tokens 1,2,3 --groups groups.yaml --strategy tp=2
refused "--strategy tp=2 contradicts --groups groups.yaml"
run generate --model one --tokens 1,2,3 --groups job/job.yaml
refused "--groups job/job.yaml: the file has no groups"

it "a run goes on with other groups, on one device, and back"
steady="lr_scheduler_type=constant warmup_ratio=0 save_steps=1 $exact"
run train job/job.yaml output_dir=all max_steps=4 $steady
exit_is 0
goes_on() { # STEPS KEY=VALUE...
  steps=$1
  shift
  run train job/job.yaml output_dir=parts max_steps=$steps $steady "$@"
  exit_is 0
}
goes_on 1 "hyper_parallel.groups={$two, b: {devices: 2-4, module: model.layers.3-5, strategy: 'dp=3,zero=2'}}"
goes_on 2 "hyper_parallel.groups={a: {devices: 0, module: model.layers.0}, b: {devices: 1-3, module: model.layers.1-5, strategy: tp=3}}"
goes_on 3
goes_on 4 "hyper_parallel.groups={$piped}"
same_file parts/model.safetensors all/model.safetensors

it "each device of a group may be a process"
launched="a: {devices: 0, module: model.layers.0}, b: {devices: 1-2, module: model.layers.1-5, strategy: tp=2}"
for groups in "a: {devices: [0, 2], module: model.layers.0, strategy: dp=2}, b: {devices: 1, module: model.layers.1-5}" "$launched"; do
  trained "$groups"
  rm -rf threads processes
  mv g threads
  run launch -n 3 -- train job/job.yaml output_dir=processes "hyper_parallel.groups={$groups}"
  exit_is 0
  same_file processes/model.safetensors threads/model.safetensors
  same_history processes threads
done
run launch -n 2 -- train job/job.yaml output_dir=nowhere "hyper_parallel.groups={$launched}"
exit_is 2
err_has "3 device"
run launch -n 3 -- train job/job.yaml output_dir=nowhere "hyper_parallel.groups={a: {devices: 0-2, module: model.layers.0-3}}"
refused "model.layers.4 is in no group"
no_file nowhere

it "explain and the report tell of all groups"
for view in layouts comm memory pipeline; do
  run explain job/job.yaml $view "hyper_parallel.groups={$launched}"
  exit_is 0
done
run explain job/job.yaml layouts "hyper_parallel.groups={$launched}"
out_has "mesh 0" "mesh 1"
run explain job/job.yaml pipeline "hyper_parallel.groups={$launched}"
out_has "2 stages on 2 devices of the pipeline"
for stage in 0 1; do
  grep -q "measured: stage $stage F 0" threads/report.html || fail "the report has no rows of stage $stage"
done

it "each layer is on the devices of its group, in layouts by its strategy"
run explain job/job.yaml pipeline --json "hyper_parallel.groups={$piped}" "hyper_parallel.pipeline={cut: [1, 2, 3]}"
exit_is 0
python3 - <<END || fail "layers are on other stages"
import json
blocks = {(b["block"], b["stage"]) for b in json.load(open("out"))["blocks"]}
assert blocks == {(0, 0), (1, 0), (2, 1), (3, 1), (4, 2), (5, 2), (6, 2), (0, 2)}, blocks
END
run explain job/job.yaml layouts "hyper_parallel.groups={a: {devices: 0-1, module: model.layers.0, strategy: 'dp=2,zero=3'},
  b: {devices: 2-3, module: model.layers.1-5, strategy: tp=2}, c: {devices: 4-6, module: lm_head, strategy: tp=3}}"
exit_is 0
awk '/^mesh [0-9]$/ { print } $1 == "param" && $2 ~ /^(model.*(q_proj|embed_tokens|model.norm)|lm_head).weight/ { print $2, $4 }' out >where
write want <<END
mesh 0
model.embed_tokens.weight (dp,None)
model.layers.0.self_attn.q_proj.weight (dp,None)
mesh 1
$(for i in 1 2 3 4 5; do echo "model.layers.$i.self_attn.q_proj.weight (tp,None)"; done)
mesh 2
lm_head.weight (tp:171,None)
END
same_file where want

bad() { # GROUPS MESSAGE...
  groups=$1
  shift
  printf 'hyper_parallel:\n  groups: {%s}\n' "$groups" | cat job/job.yaml - >bad.yaml
  run train bad.yaml output_dir=nowhere
  refused "$@"
  one_message
}
line=$(($(wc -l <job/job.yaml) + 2))
it "groups that do not fit are refused in their line"
bad "a: {devices: 0, module: model.layer.0-5}" "bad.yaml:$line:" "a.module: the model has no module \"model.layer.0\", did you mean \"model.layers.0\"?"
bad "a: {devices: 0, module: model.layers.0-4}" "bad.yaml:$line:" "model.layers.5 is in no group"
bad "a: {devices: 0, module: model.layers}, b: {devices: 1, module: model.layers.5}" "model.layers.5 is of groups.a, too (bad.yaml:$line:"
bad "a: {devices: 0-1, module: model.layers}, b: {devices: 1, module: lm_head}" "bad.yaml:$line:" "device 1 is of groups.a, too"
bad "a: {devices: 0, module: model.layers}, b: {devices: 2, module: lm_head}" "device 1 is in no group"
bad "a: {devices: 0-2, module: model.layers, strategy: tp=2}" "a.strategy: strategy \"tp=2\"" "is 2 devices, of 3"
bad "a: {devices: 0-6, module: model.layers, strategy: pp=7}" "7 stages, and the group has 6 layers"
bad "a: {devices: [], module: model.layers}" "a.devices: is empty"
bad "a: {devices: 0, module: model.layers, strateg: dp=1}" "a.strateg: unknown key" "strategy"
run train job/job.yaml output_dir=nowhere "hyper_parallel.groups={a: {devices: 0, module: model.layers}}" "hyper_parallel.pipeline={cut: [3, 3]}"
refused "argument 3: hyper_parallel.pipeline.cut: the groups say their layers"
good="hyper_parallel.groups={a: {devices: 0-1, module: model.layers}}"
for other in strategy=tp=2 hyper_parallel.strategy=tp=2 tensor_model_parallel_size=2 "hyper_parallel.device_matrix=[2]"; do
  run train job/job.yaml output_dir=nowhere "$good" "$other"
  refused "contradicts groups (argument 2"
done
run train job/job.yaml output_dir=nowhere "$good" devices=3
refused "3 devices, and the groups have 2"

for family in gpt2 qwen3_moe deepseek_v3; do
  it "$family on groups"
  rm -rf job
  make_job job <<END
gradient_accumulation_steps: 2
END
  LAYERS=4 family_job $family
  layers=model.layers
  if [ $family = gpt2 ]; then
    layers=transformer.h
    cat >job/model/config.json <<END
{"model_type": "gpt2", "vocab_size": $vocab, "n_embd": 32, "n_layer": 4, "n_head": 4, "n_positions": 64,
 "resid_pdrop": 0, "embd_pdrop": 0, "attn_pdrop": 0}
END
  fi
  fix_batch job/job.yaml
  sed -i 's/^max_steps: .*/max_steps: 2/' job/job.yaml
  more=dp=3,ep=3
  [ $family != gpt2 ] || more=tp=3
  alone
  as_one "dense: {devices: 0-1, module: $layers.0, strategy: tp=2}, rest: {devices: 2-4, module: $layers.1-3, strategy: '$more'}"
  err_lacks "ep and etp have no effect"
done
it "experts on a group of 6 devices beside dense layers on 2"
experts="dense: {devices: 0-1, module: model.layers.0, strategy: tp=2}, experts: {devices: 2-7, module: [model.layers.1-3, model.norm, lm_head], strategy: 'dp=3,ep=3,tp=2'}"
as_one "$experts"
nearly "$experts"
trained "dense: {devices: 0-1, module: model.layers.0, strategy: ep=2}, rest: {devices: 2, module: model.layers.1-3}"
err_has "groups.dense: ep and etp have no effect: none of its layers has experts"
