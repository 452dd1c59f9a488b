#!/bin/sh
# Pipelines: stages of a model on meshes of their own, with the bits of one device.
. "$(dirname "$0")/lib.sh"
. "$ROOT/tests/cli/model_lib.sh"
. "$ROOT/tests/cli/train_lib.sh"
. "$ROOT/tests/cli/offload_lib.sh"

make_job job <<END
gradient_accumulation_steps: 6
END
family_job llama
sed -i 's/"num_hidden_layers": [0-9]*/"num_hidden_layers": 6/' job/model/config.json
sed -i 's/^max_steps: .*/max_steps: 3/; s/^per_device_train_batch_size: .*/per_device_train_batch_size: 1/' job/job.yaml
evaluated="eval_strategy=steps eval_steps=2 val_size=0.1"
run train job/job.yaml output_dir=one $evaluated
exit_is 0

# piped NAME KEY=VALUE...: the run has the bits of one device.
piped() {
  rm -rf p
  run train job/job.yaml output_dir=p $evaluated "$@"
  exit_is 0
  same_file p/model.safetensors one/model.safetensors
  same_history p one
}

it "each schedule, any number of stages, gives the bits of one device"
for schedule in gpipe 1f1b interleaved zb-h1 zb-2p zbv v-half v-min dualpipe-v; do
  piped strategy=pp=3 "hyper_parallel.pipeline={schedule: $schedule}"
done
for stages in 2 6; do piped strategy=pp=$stages; done
piped "hyper_parallel.pipeline={stages: 4, schedule: zb-h1}"
piped pipeline_model_parallel_size=2 virtual_pipeline_model_parallel_size=3 # Megatron's keys
run explain job/job.yaml pipeline pipeline_model_parallel_size=2 virtual_pipeline_model_parallel_size=3
out_has "interleaved; 6 stages on 2 devices"

it "layers are cut by hand"
piped "hyper_parallel.pipeline={cut: [1, 4, 1]}"
piped "hyper_parallel.pipeline={cut: [0, 3, 3, 0]}" # the embedding alone, and the head alone
piped strategy=pp=2 "hyper_parallel.pipeline={cut: [1, 2, 2, 1], schedule: zbv}"
cut_refused() { # CUT MESSAGE
  run train job/job.yaml output_dir=nowhere "hyper_parallel.pipeline={cut: $1}"
  refused "argument 2: hyper_parallel.pipeline.cut: $2"
}
cut_refused "[3, 4]" "adds up to 7 layers, and the model has 6"
cut_refused "[3, 2]" "adds up to 5 layers, and the model has 6"
cut_refused "[3, 0, 3]" "no layer on stage 1; only the first stage"
cut_refused "[9, 0]" "9 layers on stage 0, and the model has 6"
cut_refused "[1, 1, 1, 1, 1, 1, 1]" "adds up to 7 layers"

it "Megatron's keys say the layers of stages"
stages_are() { # CUT SCHEDULE KEY=VALUE...: layers of each stage
  cut=$1 schedule=$2
  shift 2
  run explain job/job.yaml pipeline --json "$@"
  json_is out schedule "$schedule"
  found=$(python3 -c 'import json
of = json.load(open("out"))["blocks"]
last = max(b["stage"] for b in of)
print([sum(b["stage"] == s and b["block"] > 0 for b in of) for s in range(last + 1)])')
  [ "$found" = "$cut" ] || fail "layers of stages are $found, not $cut"
}
megatron_refused() { # MESSAGE KEY=VALUE...
  message=$1
  shift
  run train job/job.yaml output_dir=nowhere "$@"
  refused "$message"
}
pp2=pipeline_model_parallel_size=2 pp3=pipeline_model_parallel_size=3 two=virtual_pipeline_model_parallel_size=2
first=decoder_first_pipeline_num_layers last=decoder_last_pipeline_num_layers
layers=num_layers_per_virtual_pipeline_stage group=microbatch_group_size_per_virtual_pipeline_stage
stages_are "[1, 2, 2, 1]" interleaved $pp2 "pipeline_model_parallel_layout=Et|(tt|)*2tL"
stages_are "[1, 4, 1]" 1f1b $pp3 $first=1 $last=1
stages_are "[1, 2, 1, 2]" interleaved:3 $pp2 $two $first=2 $group=3
stages_are "[1, 1, 1, 1, 1, 1]" interleaved:4 $pp3 $layers=1 $group=4
piped $pp2 $two $first=2 $group=4 # the last group has two
megatron_refused "argument 2: pipeline_model_parallel_layout: adds up to 3 layers, and the model has 6" "pipeline_model_parallel_layout=Ett|tL"
megatron_refused "argument 3: $first: 5 of 6 layers are given, and 1 left for 2 other devices" $pp3 $first=5
megatron_refused "argument 3: $first: 3 layers on device 0 of the pipeline; expected a multiple of its 2 stages" $pp2 $first=3 $two
megatron_refused "argument 3: $layers: 2 layers of a stage: expected a divisor of the layers of a device, and the model has 6 for pp=2" $pp2 $layers=2

it "so does a file of rows"
{
  echo "placement 0 1"
  for i in 0 1 2 3 4 5; do echo "0 F $i"; done
  for i in 0 1 2 3 4 5; do echo "1 F $i"; echo "1 B $i # its gradient"; done
  for i in 0 1 2 3 4 5; do echo "0 B $i"; done
} >rows.txt
piped strategy=pp=2 "hyper_parallel.pipeline={schedule: rows.txt}"

it "a schedule that cannot run is refused with its rows"
sed 's/^1 F 3$/1 F 2/' rows.txt >twice.txt
run train job/job.yaml output_dir=nowhere strategy=pp=2 "hyper_parallel.pipeline={schedule: twice.txt}"
refused "twice.txt: stage 1 F 2 (line 14) does again"
grep -v '^0 B 5$' rows.txt >less.txt
run train job/job.yaml output_dir=nowhere strategy=pp=2 "hyper_parallel.pipeline={schedule: less.txt}"
refused "less.txt: stage 0"
sed 's/^0 B 2$/0 B x/; s/^0 B 3$/0 B 2/; s/x/3/' rows.txt >order.txt
run train job/job.yaml output_dir=nowhere strategy=pp=2 "hyper_parallel.pipeline={schedule: order.txt}"
refused "order.txt: stage 0 B 2 (line 23) comes after stage 0 B 3 (line 22); gradients"
run train job/job.yaml output_dir=nowhere strategy=pp=3 "hyper_parallel.pipeline={schedule: rows.txt}"
refused "rows.txt: the rows are for 2 devices, and the pipeline has 3"
run train job/job.yaml output_dir=nowhere strategy=pp=2 gradient_accumulation_steps=4 "hyper_parallel.pipeline={schedule: rows.txt}"
refused "rows.txt:6: microbatch"
head -c 70000 /dev/zero | tr '\0' 7 >long.txt
run train job/job.yaml output_dir=nowhere strategy=pp=2 "hyper_parallel.pipeline={schedule: long.txt}"
refused "long.txt:1: stage"
(cat rows.txt && printf "0 U 0\n1 U 0\n") >update.txt
run train job/job.yaml output_dir=nowhere strategy=pp=2 "hyper_parallel.pipeline={schedule: update.txt}"
refused "update.txt: stage 0 U 0 (line 26): leave rows of U out"
run train job/job.yaml output_dir=nowhere strategy=pp=7
refused "argument 2: strategy: 7 stages of a pipeline, and the model has 6 layers"
run train job/job.yaml output_dir=nowhere strategy=pp=7 "hyper_parallel.pipeline={schedule: zb-h1}"
refused "argument 2: strategy: 7 stages of a pipeline, and the model has 6 layers" # the schedule adds none
one="gradient_accumulation_steps=1 global_batch_size=null"
run train job/job.yaml output_dir=nowhere strategy=pp=2 $one "hyper_parallel.pipeline={schedule: rows.txt}"
refused 'rows.txt:3: microbatch' 'expected a number from 0 to 0'
printf '0 B 0\n0 F 0\n1 F 0\n1 B 0\n' > one.txt
run train job/job.yaml output_dir=nowhere strategy=pp=2 $one "hyper_parallel.pipeline={schedule: one.txt}"
refused 'stage 0 B 0 (line 1) needs stage 0 F 0 (line 2), which does not come before it'
run train job/job.yaml output_dir=nowhere strategy=pp=2 "hyper_parallel.pipeline={schedule: zbw}"
refused "argument 3: hyper_parallel.pipeline.schedule: no pipeline schedule" '"zbw", did you mean zbv?'
run train job/job.yaml output_dir=nowhere strategy=pp=2 "hyper_parallel.pipeline={schedule: '1f1b '}"
refused "argument 3: hyper_parallel.pipeline.schedule: no pipeline schedule" "did you mean 1f1b?"
few="gradient_accumulation_steps=4 global_batch_size=null"
for verb in train explain; do
  run $verb job/job.yaml output_dir=nowhere strategy=pp=3 $few "hyper_parallel.pipeline={schedule: dualpipe-v}"
  refused "argument 5: hyper_parallel.pipeline.schedule: dualpipe-v needs at least 6 micro-batches a step" \
    "not 4; take more of them (gradient accumulation), or zbv"
done
run train job/job.yaml output_dir=nowhere pipeline_model_parallel_size=3 $few pp_schedule=DualPipeV
refused "argument 5: pp_schedule: dualpipe-v needs at least 6"
few_samples() { # STORIES MESSAGE: two epochs
  head -n "$1" stories.jsonl > few.jsonl
  run train job/job.yaml output_dir=nowhere strategy=pp=3 dataset=few.jsonl max_steps=-1 num_train_epochs=2 "hyper_parallel.pipeline={schedule: dualpipe-v}"
  refused "argument 6: hyper_parallel.pipeline.schedule: $2: dualpipe-v needs at least 6"
}
few_samples 1 "an epoch has 3 micro-batches"
few_samples 3 "the last step of an epoch of 10 micro-batches has the remaining 4 of gradient_accumulation_steps 6"
run train job/job.yaml output_dir=nowhere strategy=pp=2 dataset=few.jsonl max_steps=-1 num_train_epochs=2 "hyper_parallel.pipeline={schedule: rows.txt}"
refused "the last step of an epoch of 10 micro-batches has the remaining 4 of gradient_accumulation_steps 6: " "rows.txt:6: microbatch"
run train job/job.yaml output_dir=nowhere strategy=pp=2 hyper_parallel.pipeline.stages=4
refused "argument 3: hyper_parallel.pipeline.stages: 1f1b has 1 stage a device"
run train job/job.yaml output_dir=nowhere pipeline_model_parallel_size=4 pp_schedule=zbv
refused "argument 3: pp_schedule: 8 stages of a pipeline, and the model has 6 layers"
run train job/job.yaml output_dir=nowhere pipeline_model_parallel_size=2 virtual_pipeline_model_parallel_size=4
refused "argument 3: virtual_pipeline_model_parallel_size: 8 stages of a pipeline"
run train job/job.yaml output_dir=nowhere strategy=pp=2 hyper_parallel.update=next_step
refused "update: end"
no_file nowhere

it "a run goes on with other stages, another schedule, or on one device"
steady="lr_scheduler_type=constant warmup_ratio=0 save_steps=1"
run train job/job.yaml output_dir=all $steady
exit_is 0
run train job/job.yaml output_dir=parts $steady strategy=pp=3 max_steps=1
exit_is 0
run inspect parts/checkpoint-1
out_has "model-part-00002.safetensors"
run train job/job.yaml output_dir=parts $steady strategy=pp=2 max_steps=2 "hyper_parallel.pipeline={schedule: zbv}"
exit_is 0
run train job/job.yaml output_dir=parts $steady max_steps=3
exit_is 0
same_file parts/model.safetensors all/model.safetensors

it "memory limits and recomputation of each stage keep the bits"
piped strategy=pp=3 hyper_parallel.recompute=full
limits_of strategy=pp=3
piped strategy=pp=3 memory_limit=$least
err_has "memory_limit: "
run train job/job.yaml output_dir=nowhere strategy=pp=3 memory_limit=$((least - 1))
refused "set memory_limit to $least bytes"
run bench step --model job/model --strategy pp=3 --accumulate 6 --batch 1 --seq 48 --memory-limit 4MB --json
exit_is 0

it "under a limit a stage's collectives run beside its computation, with the same bits"
cat >links.yaml <<END
name: links
device: {flops: 4e9, bandwidth_gb_s: 2.7}
links: [{name: net, bandwidth_gb_s: 0.1, latency_us: 1}]
tiers: [{name: host, read_gb_s: 1, write_gb_s: 1, latency_us: 1}]
END
sharded="strategy=pp=2,dp=2,zero=3 hyper_parallel.cluster=links.yaml deterministic=layout gradient_accumulation_steps=2"
run train job/job.yaml output_dir=free $sharded
exit_is 0
resident=$(json free/op_times.json memory.planned_bytes)
run train job/job.yaml output_dir=tight $sharded memory_limit=$((resident * 9 / 10))
exit_is 0
same_file tight/model.safetensors free/model.safetensors
run explain job/job.yaml comm $sharded memory_limit=$((resident * 9 / 10)) --json
[ "$(json out overlapped_s | awk '{ print ($1 > 0) }')" = 1 ] || { fail "nothing overlaps"; t_show; }

it "with deterministic: layout all products have the bits of one device"
fix_batch job/job.yaml
run train job/job.yaml output_dir=layout deterministic=layout
exit_is 0
for s in pp=2,dp=2 pp=3,tp=2,sp pp=2,dp=2,zero=3,cp=2; do
  rm -rf p
  run train job/job.yaml output_dir=p deterministic=layout strategy=$s
  exit_is 0
  same_file p/model.safetensors layout/model.safetensors
done

it "a step of one micro-batch does not update before the norm of all stages is known"
rm -rf layout
run train job/job.yaml output_dir=layout deterministic=layout gradient_accumulation_steps=1 max_steps=3
exit_is 0
for s in pp=2,dp=2 pp=3,tp=2 pp=2,dp=2,zero=1; do
  rm -rf p
  run train job/job.yaml output_dir=p deterministic=layout gradient_accumulation_steps=1 max_steps=3 strategy=$s
  exit_is 0
  same_file p/model.safetensors layout/model.safetensors
done

it "logits, gradients and generated tokens are those of one device"
M=one
for verb in logits grads; do
  run $verb --model $M --tokens 1,2,3,4,5 --out one.$verb
  run $verb --model $M --tokens 1,2,3,4,5 --out pp.$verb --strategy pp=3
  exit_is 0
  same_file pp.$verb one.$verb
done
run generate --model $M --tokens 1,2,3 --max-new-tokens 8 --temperature 0 --json
tokens=$(sed 's/.*"tokens": \(\[[^]]*\]\).*/\1/' out)
run generate --model $M --tokens 1,2,3 --max-new-tokens 8 --temperature 0 --json --strategy pp=2
exit_is 0
out_has "\"tokens\": $tokens"


it "explain tells the rows, the bubble and its causes, and draws them"
run explain job/job.yaml pipeline strategy=pp=3 "hyper_parallel.pipeline={schedule: zb-h1}"
exit_is 0
out_has "zb-h1; 3 stages on 3 devices of the pipeline, 6 micro-batches"
out_has "0 F 0"
run explain job/job.yaml pipeline strategy=pp=3
out_has "schedule       1f1b;" # the default
run explain job/job.yaml pipeline --json strategy=pp=3 "hyper_parallel.pipeline={schedule: gpipe}"
exit_is 0
python3 - <<END || fail "the rows of pipeline --json are not those of gpipe"
import json
x = json.load(open("out"))
rows = [r for r in x["rows"] if r["device"] == 0]
assert [r["action"] for r in rows] == ["F"] * 6 + [rows[-1]["action"]] * 6, rows
assert len(x["rows"]) == 36 and x["schedule"] == "gpipe" and len(x["stages"]) == 3
assert 0 < x["bubble"] < 1 and x["step_s"] > x["rows_s"] >= max(r["end_s"] for r in x["rows"]) > 0
d = x["devices"][0]
assert abs(d["busy_s"] + d["idle_s"] - x["rows_s"]) < 1e-9 and d["in_flight"] == 6
END
run explain job/job.yaml pipeline strategy=pp=3 --svg pipe.svg
exit_is 0
grep -q "stage 2 F 5" pipe.svg || fail "no row in the picture"
run explain job/job.yaml pipeline
refused "the job has no pipeline"
for view in memory comm schedule ops layouts; do
  run explain job/job.yaml $view --json strategy=pp=3
  exit_is 0
  python3 -m json.tool <out >/dev/null || fail "$view --json of a pipeline is no JSON"
done
run explain job/job.yaml layouts strategy=pp=2,tp=2
exit_is 0
out_has "mesh 1" "lm_head.weight"

it "the report has the pipeline as planned, and below it as measured"
run train job/job.yaml output_dir=seen strategy=pp=3
exit_is 0
python3 - <<END || fail "not all rows are in the report"
import re
page = open("seen/report.html").read()
svg = [s for s in re.findall("<svg.*?</svg>", page, re.S) if "measured: stage" in s][0]
for stage in range(3):
    for micro in range(6):
        for action in "FB":
            assert f">stage {stage} {action}" in svg or f"stage {stage} {action}" in svg
            assert f"measured: stage {stage} {action} {micro}" in svg, (stage, action, micro)
    assert f"measured: update of device {stage}" in svg
assert svg.index("predicted") < svg.index("measured, with the update")
END

it "a trace has all devices by one clock"
run bench step --model job/model --strategy pp=3 --trace trace.json
exit_is 0
cat >clock.py <<END
import json, sys
at = {}
for e in json.load(open(sys.argv[1]))["traceEvents"]:
    if "dur" in e: at.setdefault(e["pid"], []).append((e["ts"], e["ts"] + e["dur"], e["name"]))
assert sorted(at) == [0, 1, 2], sorted(at)
begin, end = ([f(x[i] for x in v) for v in at.values()] for i, f in ((0, min), (1, max)))
assert min(begin) >= 0 and max(end) - min(end) < 0.5 * (max(end) - min(begin)), (begin, end)
# the k-th value that the last device receives is sent before that by the first or the second
sends = sorted(x[0] for d in (0, 1) for x in at[d] if x[2].startswith("send"))
takes = sorted(x[1] for x in at[2] if x[2].startswith("recv"))
assert takes and all(s < t for s, t in zip(sends, takes)), (sends, takes)
END
python3 clock.py trace.json || fail "the trace has not all devices by one clock"

it "large values in chunks: a stage does not wait for its own gradient"
cat >chunks.yaml <<END
name: chunks
device: {flops: 4e10, bandwidth_gb_s: 2.7}
links: [{name: none, bandwidth_gb_s: 1, latency_us: 1}]
kernels: {chunk_bytes: 4194304}
END
run explain job/job.yaml strategy=pp=3 hyper_parallel.cluster=chunks.yaml hyper_parallel.recompute=none cutoff_len=8192
exit_is 0
out_has "predicted"
