# hyper train, refused, stopped or begun again: what is left behind, and what is made good.
. "$(dirname "$0")/lib.sh"
. "$ROOT/tests/cli/train_lib.sh"

make_job j </dev/null
# Refused with these words, and nothing left of output_dir=new/run or in a folder that was there.
leaves_nothing() { # OVERRIDE WORD...
  t_override=$1
  shift
  run train j/job.yaml output_dir=new/run "$t_override"
  refused "$@"
  no_file new
  mkdir there
  run train j/job.yaml output_dir=there "$t_override"
  refused "$@"
  rmdir there || fail "something was left in the folder: $(ls -A there)"
  rm -rf there
}

it "a run that is refused leaves no folder and no file"
leaves_nothing dataset=nothere nothere
leaves_nothing cutoff_len=1000 cutoff_len "has 512 positions"
leaves_nothing memory_limit=100KiB "memory limit"
leaves_nothing hyper_parallel.memory_limit=1MiB "memory limit"
leaves_nothing resume_from_checkpoint=true "no checkpoint"
leaves_nothing model_name_or_path="$ROOT" "no tokenizer there"
mv j/model/config.json kept && sed 's/"head_dim": 8/"head_dim": 7/' kept >j/model/config.json
leaves_nothing seed=1 "head_dim 7 is odd"
mv kept j/model/config.json

it "a run that is refused keeps the checkpoints that it was to begin without"
run train j/job.yaml output_dir=old max_steps=2
exit_is 0
run train j/job.yaml output_dir=old overwrite_output_dir=true memory_limit=1MiB
exit_is 2
is_file old/checkpoint-2/MANIFEST.json
no_file old/run.lock

it "an output folder that cannot be is refused by name"
: >file
run train j/job.yaml output_dir=file
refused "file: exists and is not a folder"
run train j/job.yaml output_dir=file/run
refused "file/run: cannot create the folder"
run train j/job.yaml 'output_dir=""'
refused output_dir "is empty"

# Sends $1 while the first step is being compiled; compiling ends when the file `go` is there.
stop_while_compiling() {
  rm -rf cache marks new && mkdir marks
  write slow-cc <<END
#!/bin/sh
case "\$1" in --version) exec cc --version ;; esac
: >"$WORK/marks/begun.\$\$"
n=0
while [ ! -e "$WORK/marks/go" ] && [ \$n -lt 600 ]; do sleep 0.05; n=\$((n + 1)); done
: >"$WORK/marks/done"
END
  chmod +x slow-cc
  CC=$WORK/slow-cc HYPER_CACHE=$WORK/cache "$HYPER" train j/job.yaml output_dir=new/run >out 2>err </dev/null &
  pid=$!
  while [ -z "$(ls marks)" ] && kill -0 $pid 2>/dev/null; do sleep 0.01; done
  kill -$1 $pid
  status=0
  wait $pid || status=$?
  t_cmd="train, SIG$1 while it compiles"
}

it "a signal before the first step ends it at once, with a word and nothing left behind"
for sig in TERM INT USR1 HUP; do
  stop_while_compiling $sig
  [ "$status" -gt 128 ] || { fail "exit code $status, want that of a signal"; t_show; }
  err_has "SIG$sig: stopped before the first step"
  no_file marks/done
  no_file new
  : >marks/go
done

it "a run does not write over the checkpoint that it starts from"
run train j/job.yaml output_dir=j/../j/model
refused output_dir "the folder of model_name_or_path"

it "a finished run whose model is gone or damaged has it written again"
run train j/job.yaml output_dir=end max_steps=4
exit_is 0
cp end/model.safetensors whole
cp end/train_results.json results
again() { # what is missing
  run train j/job.yaml output_dir=end max_steps=4
  exit_is 0
  err_has "writing it again"
  same_file end/model.safetensors whole
  is_file end/config.json
  is_file end/tokenizer.json
  same_file end/train_results.json results
  run train j/job.yaml output_dir=end max_steps=4
  err_has "nothing to do"
}
rm end/model.safetensors
again
rm end/config.json end/tokenizer.json
again
head -c 500 whole >end/model.safetensors
again
no_file end/run.lock

it "a run that was killed while it wrote its last files writes them again"
# the results come last: without them a run is not known as finished
make_job last </dev/null
run train last/job.yaml
exit_is 0
cp -r last/out kept
for gone in "README.md train_results.json" "trainer_state.json README.md train_results.json" \
  "all_results.json trainer_state.json README.md train_results.json"; do
  for f in $gone; do rm last/out/$f; done
  run train last/job.yaml
  exit_is 0
  for f in $gone; do is_file last/out/$f; done
  same_file kept/model.safetensors last/out/model.safetensors
  same_history kept last/out
done
run train last/job.yaml
err_has "nothing to do"

it "a run that was killed between its last save and what makes room for it makes room"
rm -r last/out
run train last/job.yaml save_total_limit=4
exit_is 0
rm last/out/train_results.json
run train last/job.yaml save_total_limit=2
exit_is 0
[ "$(echo last/out/checkpoint-*)" = "last/out/checkpoint-15 last/out/checkpoint-20" ] || fail "left: $(ls last/out)"

it "a file of a process that ends only while the next run goes on is removed at its end"
rm -r last/out
mkdir last/out
sleep 100 &
writer=$!
echo half >last/out/model.safetensors.new.tmp.$writer
"$HYPER" train last/job.yaml max_steps=200 save_steps=50 >out 2>err </dev/null &
pid=$!
while [ ! -e last/out/checkpoint-50 ] && kill -0 $pid; do sleep 0.01; done
is_file last/out/model.safetensors.new.tmp.$writer
kill $writer
{ wait $pid; } 2>/dev/null
no_file last/out/model.safetensors.new.tmp.$writer
is_file last/out/model.safetensors
