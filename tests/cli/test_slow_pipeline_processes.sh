#!/bin/sh
# Pipelines of several processes: a stage's devices are processes of their own, with the bits of a pipeline of
# one; processes that are killed, stopped or hang are named, and the job goes on.
. "$(dirname "$0")/lib.sh"
. "$ROOT/tests/cli/model_lib.sh"
. "$ROOT/tests/cli/train_lib.sh"
. "$ROOT/tests/cli/offload_lib.sh"
. "$ROOT/tests/cli/process_lib.sh"
over_sockets

make_job job <<END
gradient_accumulation_steps: 4
END
family_job llama
evaluated="eval_strategy=steps eval_steps=2 val_size=0.1"
brief="max_steps=3 save_steps=2"

launch() { # N VERB ...
  launch_n=$1
  shift
  run launch -n "$launch_n" -- "$@"
}
as() { # PROCESSES KEY=VALUE...: trains as one process, and as several
  processes=$1
  shift
  rm -rf one several
  run train job/job.yaml output_dir=one "$@"
  exit_is 0
  launch "$processes" train job/job.yaml output_dir=several "$@"
  exit_is 0
  same_file one/model.safetensors several/model.safetensors
  for f in one/checkpoint-*/*part*; do same_file "$f" "several/${f#*/}"; done
  same_history one several
}

it "stages as processes have the bits of stages of one process"
as 2 $brief strategy=pp=2 $evaluated
err_has "2 devices (a process each)"
as 3 $brief strategy=pp=3 verify_replicas_steps=1 "hyper_parallel.pipeline={schedule: zb-h1}"
for side in one several; do # the report has the measured rows of all stages, by one clock
  grep -o 'measured: [su][a-z0-9 FB]*' $side/report.html | sort >$side.rows
done
[ "$(sort -u one.rows | grep -c 'stage [012] F [0-3]$')" = 12 ] || fail "the report has not the measured rows of all stages"
same_file one.rows several.rows
as 2 $brief strategy=pp=2 "hyper_parallel.pipeline={schedule: zbv}"
as 4 $brief strategy=pp=2,dp=2,zero=1 $evaluated
grep -q 'measured: stage 1 B 0' several/report.html || fail "the report has no rows of the second stage"
as 4 $brief strategy=pp=2,tp=2,sp "hyper_parallel.pipeline={schedule: zbv}"
as 4 $brief strategy=pp=2,dp=2,zero=3 deterministic=layout verify_replicas_steps=1

it "and under a memory limit"
limits_of strategy=pp=2
as 2 $brief strategy=pp=2 memory_limit=$least

it "a run goes on with other stages and processes, or as one"
steady="lr_scheduler_type=constant warmup_ratio=0 save_steps=1"
run train job/job.yaml output_dir=all max_steps=3 $steady
launch 3 train job/job.yaml output_dir=parts $steady strategy=pp=3 max_steps=1
exit_is 0
launch 2 train job/job.yaml output_dir=parts $steady strategy=pp=2 max_steps=2 "hyper_parallel.pipeline={schedule: zbv}"
exit_is 0
run train job/job.yaml output_dir=parts $steady max_steps=3
exit_is 0
same_file all/model.safetensors parts/model.safetensors

it "logits, gradients and tokens are those of one device"
for verb in logits grads; do
  run $verb --model all --tokens 1,2,3,4,5 --out one.$verb
  launch 3 $verb --model all --tokens 1,2,3,4,5 --out pp.$verb --strategy pp=3
  exit_is 0
  same_file pp.$verb one.$verb
done
run generate --model all --tokens 1,2,3 --max-new-tokens 8 --temperature 0 --json
tokens=$(sed 's/.*"tokens": \(\[[^]]*\]\).*/\1/' out)
launch 2 generate --model all --tokens 1,2,3 --max-new-tokens 8 --temperature 0 --json --strategy pp=2
exit_is 0
out_has "\"tokens\": $tokens"

it "a trace has all processes in one file, by one clock"
launch 3 bench step --model all --strategy pp=3 --trace trace.json
exit_is 0
python3 - <<END || fail "the trace has not all processes"
import json
at = {}
for e in json.load(open("trace.json"))["traceEvents"]:
    if "dur" in e: at.setdefault(e["pid"], []).append((e["ts"], e["ts"] + e["dur"]))
assert sorted(at) == [0, 1, 2], sorted(at)
first, last = min(x for v in at.values() for x, _ in v), [max(y for _, y in v) for v in at.values()]
assert first >= 0 and max(last) - min(last) < 0.5 * (max(last) - first), (first, last)
END

it "bad input is refused once, by all processes"
for bad in strategy=pp=2 strategy=pp=3,dp=2; do
  launch 3 train job/job.yaml output_dir=nowhere $bad
  refused "3 processes were started"
done
launch 3 train job/job.yaml output_dir=nowhere strategy=pp=3 "hyper_parallel.pipeline={cut: [2, 1, 2]}"
refused "adds up to 5 layers, and the model has 4"
printf '0 F 0\n' >rows.txt
launch 2 train job/job.yaml output_dir=nowhere strategy=pp=2 "hyper_parallel.pipeline={schedule: rows.txt}"
refused "rows.txt: the rows are for 1 device, and the pipeline has 2"
no_file nowhere

# --- processes that end --------------------------------------------------------------------------

sed -i 's/^max_steps: .*/max_steps: 200/; s/^save_steps: .*/save_steps: 50/' job/job.yaml
three() { # LAUNCH-OPTIONS: in the background, as $launcher
  rm -rf several
  "$HYPER" launch -n 3 --restart-pause 0.2 "$@" -- train job/job.yaml strategy=pp=3 output_dir=several >out 2>err </dev/null &
  launcher=$!
  t_cmd="launch -n 3 $*"
}
run train job/job.yaml strategy=pp=3 output_dir=alone
exit_is 0

it "after kill -9 of the process of any stage the job goes on to the same bits"
goes_on_after_kill three 0 2

it "a stage that is stopped is named, with the stage that waits for it"
goes_on_after_stop three 2 1

it "a transfer that hangs is named with its value and the stages that wait"
printf 'device: {flops: 1e10, bandwidth_gb_s: 10}\nlinks: [{bandwidth_gb_s: 1, latency_us: 1e9}]\nemulate: true\n' >slow.yaml
rm -rf several
run launch -n 3 --watchdog 6 --max-restarts 0 -- train job/job.yaml strategy=pp=3 output_dir=several hyper_parallel.cluster=slow.yaml
exit_is 1
err_has " hangs: for "
err_has "in stream p2p, instruction "
err_has "{name=\"stage"

it "over MPI, too"
if over_mpi; then
  sed -i 's/^max_steps: .*/max_steps: 3/; s/^save_steps: .*/save_steps: 2/' job/job.yaml
  as 3 strategy=pp=3 $evaluated
  as 4 strategy=pp=2,dp=2,zero=1
  sed -i 's/^max_steps: .*/max_steps: 200/; s/^save_steps: .*/save_steps: 50/' job/job.yaml
  goes_on_after_kill three 1
  goes_on_after_stop three 2 1
fi
