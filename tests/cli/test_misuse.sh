# Wrong use from the command line: values, streams that are closed or full.
. "$(dirname "$0")/lib.sh"
. "$ROOT/tests/cli/train_lib.sh"

it "names what an option expects"
run generate --model m --prompt x --temperature hot
exit_is 2
err_has '--temperature: expected a number, found "hot"'
run eval --model m --memory-limit 5x
exit_is 2
err_has "4GiB"

it "keys that are true or false may stand without a value"
make_job bare </dev/null
sed -i '/^do_train/d' bare/job.yaml
bare() { # DTYPE SHUFFLING WORD..: trains a step with these
  want_dtype=$1 want_shuffle=$2
  shift 2
  run train "$@"
  exit_is 0
  for set in "\"dtype\": \"$want_dtype\"" "\"disable_shuffling\": \"$want_shuffle\""; do
    grep -qF "$set" bare/out/checkpoint-1/MANIFEST.json || { fail "not $set"; t_show; }
  done
}
bare bf16 false --bf16 bare/job.yaml --do-train --max_steps 1 --overwrite_output_dir
bare bf16 true --disable_shuffling max_steps=1 --overwrite_output_dir --plot_loss yes --bf16 bare/job.yaml
is_file bare/out/training_loss.png
bare f32 true bare/job.yaml --bf16 false --disable_shuffling max_steps=1 --overwrite_output_dir
run train bare/job.yaml --bf16 --fp16
refused "argument 2: fp16: true is not built"
run train bare/job.yaml --hyper_parallel.overlap --hyper-parallel.interleave 99
refused "hyper_parallel.interleave: 99 is out of range"
run train bare/job.yaml --seed
refused "--seed needs a value"

it "a flag is spelled as every option is"
for flag in "" --json=false json=false "--json false"; do
  # shellcheck disable=SC2086
  run explain bare/job.yaml $flag
  exit_is 0
  out_has "model          "
done
for flag in --json "--json true" json=true; do
  # shellcheck disable=SC2086
  run explain bare/job.yaml $flag
  exit_is 0
  json_is out batch 4
done
run explain bare/job.yaml --json=maybe
refused '--json: expected true or false, or nothing, found "maybe"'

it "fails when standard output cannot be written"
if [ -w /dev/full ]; then
  status=0
  "$HYPER" --help > /dev/full 2> err || status=$?
  t_cmd="--help > /dev/full"
  exit_is 1
  err_has "standard output: cannot be written"
fi

it "keeps its files apart from messages when the standard streams are closed"
make_job s <<END
END
run train s/job.yaml output_dir=open max_steps=5
exit_is 0
status=0
"$HYPER" train s/job.yaml output_dir=closed max_steps=5 <&- >&- 2>&- || status=$?
t_cmd="train with closed streams"
exit_is 0
same_history open closed
same_file open/model.safetensors closed/model.safetensors

it "refuses counts of tokens that make no sense"
for n in 0 -3; do
  run generate --model open --prompt x --max-new-tokens $n
  exit_is 2
  err_has "max_new_tokens $n"
done
run generate --model open --prompt x --top-k -1
exit_is 2
err_has "top_k -1"

it "names the place where a record of a data set breaks off"
printf '{"text": "a"}\n{"text":' > cut.jsonl
run train s/job.yaml dataset=cut.jsonl output_dir=cut
exit_is 2
err_has "cut.jsonl:2:"
err_has "a value"

it "files that are not there are told all at once, besides other errors"
run train s/job.yaml model_name_or_path=nowhere dataset=gone.jsonl eval_dataset=gone_too.jsonl eval_strategy=no \
  hyper_parallel.cluster=far.yaml max_steps=-5
exit_is 2
err_has "5 errors in the configuration"
for what in 'there is no folder "nowhere"' 'dataset "gone.jsonl": there is no file' 'dataset "gone_too.jsonl"' 'cluster "far.yaml"' max_steps; do
  err_has "$what"
done
mkdir -p named
echo '{"a": {"file_name": "not_here.txt"}}' > named/dataset_info.json
run train s/job.yaml dataset_dir=named dataset=a
exit_is 2
err_has 'names the file "named/not_here.txt", which does not exist'

it "explain needs no data, and says which are not there"
run explain s/job.yaml dataset=gone.jsonl
exit_is 0
err_has 'warning: argument 1: dataset: dataset "gone.jsonl": there is no file'
run explain s/job.yaml hyper_parallel.cluster=far.yaml
exit_is 2
