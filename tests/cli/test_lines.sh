#!/bin/sh
# Which checkpoint a run keeps and goes on from: damaged ones, rewinds, restarts after them.
. "$(dirname "$0")/lib.sh"
. "$ROOT/tests/cli/train_lib.sh"

make_job job </dev/null
run train job/job.yaml output_dir=first
exit_is 0

# A copy of the first run, in the folder $1; all copies are of one line.
fresh() { rm -rf "$1" && cp -r first "$1"; }
checkpoints() { ls -d "$1"/checkpoint-* | sed 's/.*-//' | sort -n | tr '\n' ' '; }
checkpoints_are() { # FOLDER "5 10 "
  [ "$(checkpoints "$1")" = "$2" ] || fail "$1 has the checkpoints $(checkpoints "$1"), want $2"
}
# Trains in the background without saving, until it has logged a step of its own; then kill -9.
killed_after_a_step() {
  : >out
  : >err
  "$HYPER" train job/job.yaml output_dir=$dir max_steps=100000 save_steps=100000 "$@" >out 2>err </dev/null &
  pid=$!
  t_cmd="train output_dir=$dir $*, killed"
  while kill -0 $pid 2>/dev/null && { ! grep -q "continuing from" err || ! grep -q "'loss'" out; }; do sleep 0.02; done
  kill -9 $pid 2>/dev/null || { fail "it ended by itself"; t_show; }
  wait $pid 2>/dev/null
  no_file $dir/train_results.json
}

it "a damaged checkpoint with the largest number costs no good one"
fresh a
mv a/checkpoint-5 a/checkpoint-500
printf x | dd of=a/checkpoint-500/optimizer.safetensors bs=1 seek=900 conv=notrunc 2>/dev/null
rm a/train_results.json
run train job/job.yaml output_dir=a max_steps=26 save_steps=3 save_total_limit=1
exit_is 0
err_has "save_total_limit: 1 keeps two checkpoints"
err_has "a/checkpoint-500: holds step 5"
checkpoints_are a "24 26 500 "

it "with the two newest damaged the third is taken, and both are named"
fresh a
rm a/train_results.json
printf x | dd of=a/checkpoint-20/optimizer.safetensors bs=1 seek=900 conv=notrunc 2>/dev/null
rm a/checkpoint-15/config.json
run train job/job.yaml output_dir=a
exit_is 0
err_has "a/checkpoint-20/optimizer.safetensors: its hash does not match"
err_has "a/checkpoint-15/config.json: is missing"
err_has "continuing from a/checkpoint-10"
same_file first/model.safetensors a/model.safetensors

it "a checkpoint that is named and is none ends the start, and nothing is trained"
fresh a
mkdir empty
rm a/train_results.json a/checkpoint-10/MANIFEST.json
: >a/checkpoint-5/MANIFEST.json
for named in empty job/job.yaml nosuch a a/checkpoint-10 a/checkpoint-5; do
  run train job/job.yaml output_dir=a resume_from_checkpoint=$named
  refused "$named"
  err_lacks "training example"
done
run train job/job.yaml output_dir=b resume_from_checkpoint=a/checkpoint-10
refused a/checkpoint-10
no_file b
same_history first a

it "a damaged checkpoint is told once and does not count"
fresh a
printf x | dd of=a/checkpoint-20/optimizer.safetensors bs=1 seek=900 conv=notrunc 2>/dev/null
rm a/train_results.json
run train job/job.yaml output_dir=a max_steps=19 save_steps=1 save_total_limit=2
exit_is 0
err_has "a/checkpoint-20/optimizer.safetensors: its hash does not match"
[ "$(grep -c "checkpoint-20/optimizer.safetensors" err)" = 1 ] || { fail "not told once"; t_show; }
checkpoints_are a "18 19 20 "

it "a rewind sets the branch after it aside, says so, and gives the same bits again"
fresh a
run train job/job.yaml output_dir=a resume_from_checkpoint=a/checkpoint-5 save_steps=3 save_total_limit=2
exit_is 0
err_has "continuing from a/checkpoint-5"
err_has "set aside"
err_has "a/checkpoint-20 is now a/abandoned-"
checkpoints_are a "18 20 "
checkpoints_are a/abandoned-* "10 15 20 "
same_file first/model.safetensors a/model.safetensors
run train job/job.yaml output_dir=a resume_from_checkpoint=true max_steps=22
err_has "continuing from a/checkpoint-20"

it "after a rewind that was killed before its first save, a run goes on from where the rewind began"
fresh a
dir=a killed_after_a_step resume_from_checkpoint=a/checkpoint-5
checkpoints_are a "5 "
run train job/job.yaml output_dir=a
exit_is 0
err_has "continuing from a/checkpoint-5"
same_file first/model.safetensors a/model.safetensors

it "so it does when it was killed before the branch was set aside"
fresh a
dir=a killed_after_a_step resume_from_checkpoint=a/checkpoint-5
mv a/abandoned-*/checkpoint-* a/ && rmdir a/abandoned-*
checkpoints_are a "5 10 15 20 "
run train job/job.yaml output_dir=a max_steps=8
exit_is 0
err_has "continuing from a/checkpoint-5"
checkpoints_are a "5 8 "
checkpoints_are a/abandoned-* "10 15 20 "

it "a rewind to a checkpoint that was set aside goes back there, not to what is older"
fresh a
run train job/job.yaml output_dir=a resume_from_checkpoint=a/checkpoint-5 max_steps=6
mv a/abandoned-* a/abandoned
dir=a killed_after_a_step resume_from_checkpoint=a/abandoned/checkpoint-20
run train job/job.yaml output_dir=a max_steps=22
exit_is 0
err_has "continuing from $WORK/a/abandoned/checkpoint-20 (step 20 of 22)"

it "a supervised restart goes on in the line of its own job, and in no other"
fresh a
export HYPER_JOB=one
dir=a killed_after_a_step resume_from_checkpoint=a/checkpoint-5 learning_rate=0.005 resume_override=learning_rate
run train job/job.yaml output_dir=a resume_from_checkpoint=a/checkpoint-5 max_steps=9 save_steps=3
err_has "continuing from a/checkpoint-5"
err_lacks "set aside"
run train job/job.yaml output_dir=a resume_from_checkpoint=a/checkpoint-5 max_steps=12 save_steps=3
err_has "continuing from a/checkpoint-9"
checkpoints_are a "5 6 9 12 "
export HYPER_JOB=two
run train job/job.yaml output_dir=a resume_from_checkpoint=a/checkpoint-6 max_steps=8
err_has "continuing from a/checkpoint-6"
checkpoints_are a "5 6 8 "
export HYPER_JOB=three
run train job/job.yaml output_dir=a overwrite_output_dir=true max_steps=3
err_lacks "continuing from"
err_has "checkpoints of an earlier run are deleted"
checkpoints_are a "3 "
run train job/job.yaml output_dir=a overwrite_output_dir=true max_steps=4
err_has "continuing from a/checkpoint-3"
checkpoints_are a "3 4 "

it "it deletes nothing, whatever lies there, and refuses to guess when run.line is damaged"
cp -r first/checkpoint-5 a/checkpoint-1
run train job/job.yaml output_dir=a overwrite_output_dir=true max_steps=5
err_has "continuing from a/checkpoint-4"
[ -e a/checkpoint-1/MANIFEST.json ] || fail "a/checkpoint-1 is gone"
rm -r a/checkpoint-1
sed -i 's/"step"/"stop"/; s/"from"/"form"/' a/run.line
run train job/job.yaml output_dir=a overwrite_output_dir=true max_steps=6
refused "a/run.line: its hash does not match" "an earlier try of this job" "overwrite_output_dir: true deletes them"
checkpoints_are a "3 4 5 "
run train job/job.yaml output_dir=a resume_from_checkpoint=true max_steps=6
exit_is 0
err_has "going on in the line of the newest checkpoint"
unset HYPER_JOB
sed -i 's/"step"/"stop"/; s/"from"/"form"/' a/run.line
run train job/job.yaml output_dir=a overwrite_output_dir=true max_steps=2
exit_is 0
err_has "a new line begins, as the configuration says"
checkpoints_are a "2 "

it "a checkpoint of another folder begins a new line, which goes back there until it has its own"
fresh b
rm -rf a
dir=a killed_after_a_step resume_from_checkpoint=b/checkpoint-10
run train job/job.yaml output_dir=a max_steps=12
exit_is 0
err_has "b/checkpoint-10 (step 10 of 12)"
checkpoints_are a "12 "
checkpoints_are b "5 10 15 20 "
rm -r a/checkpoint-12 b
run train job/job.yaml output_dir=a max_steps=12
refused "a: this run was begun from" "b/checkpoint-10, which cannot be used any more" "resume_from_checkpoint"

it "a folder whose run.line is damaged or missing goes on in the line of its newest"
fresh a
rm a/train_results.json
sed -i 's/"step"/"stop"/; s/"from"/"form"/' a/run.line
run train job/job.yaml output_dir=a max_steps=21
exit_is 0
err_has "a/run.line: its hash does not match"
err_has "continuing from a/checkpoint-20"
checkpoints_are a "5 10 15 20 21 "
rm a/run.line a/train_results.json
run train job/job.yaml output_dir=a max_steps=22
err_has "continuing from a/checkpoint-21"
checkpoints_are a "5 10 15 20 21 22 "

it "the best checkpoint stays next to the newest"
run train job/job.yaml output_dir=c val_size=0.1 eval_strategy=steps eval_steps=2 metric_for_best_model=loss \
  greater_is_better=true max_steps=12 save_steps=2 save_total_limit=2
exit_is 0
json_is c/trainer_state.json best_global_step 2
checkpoints_are c "2 10 12 "

it "where it lies in another folder, no path of this one is named for it"
best() { # OUT WORD...: goes on to step 14
  dir=$1
  shift
  run train job/job.yaml output_dir=$dir val_size=0.1 eval_strategy=steps eval_steps=2 metric_for_best_model=loss \
    greater_is_better=true max_steps=14 save_steps=2 save_total_limit=2 "$@"
  exit_is 0
  json_is $dir/trainer_state.json best_global_step 2
}
best d resume_from_checkpoint=c/checkpoint-12
json_is d/trainer_state.json best_model_checkpoint null
err_has "d/checkpoint-2 is not there"
rm c/train_results.json
best c
json_is c/trainer_state.json best_model_checkpoint c/checkpoint-2
checkpoints_are c "2 12 14 "

it "inspect tells the line of a checkpoint, and where it began"
run inspect a/checkpoint-20
exit_is 0
line=$(sed -n 's/.*"line": "\([0-9a-f]\{32\}\)", "parents": \[\].*/\1/p' first/run.line)
out_has "line       $line"
run train job/job.yaml output_dir=a resume_from_checkpoint=a/checkpoint-20 max_steps=23
run inspect a/checkpoint-23
out_has ", from step 20 of $line"
