#!/bin/sh
# Disks that do not hold what was written, files that change while they are read: told by name.
. "$(dirname "$0")/lib.sh"
. "$ROOT/tests/cli/train_lib.sh"
. "$ROOT/tests/cli/process_lib.sh"
over_sockets

make_job job <<END
max_steps: 2
save_steps: 2
max_failed_saves: 1
END
sed -i '/^max_steps: 20/d; /^save_steps: 5/d' job/job.yaml

for p in flip cut; do
  "${CC:-cc}" -D_GNU_SOURCE -shared -fPIC -o $p.so "$ROOT/tests/cli/preload_$p.c" -ldl 2>err ||
    { cat err; exit 1; }
done
# flipped PART-OF-PATH BYTE COMMAND...: with a bit of each such file flipped inside write()
flipped() {
  part=$1 byte=$2
  shift 2
  status=0 t_cmd="FLIP=$part FLIP_AT=$byte $*"
  FLIP=$part FLIP_AT=$byte LD_PRELOAD=$PWD/flip.so "$@" >out 2>err </dev/null || status=$?
}

# A run that cannot export tries again for 13 s: meanwhile the others.
FLIP=export/model.safetensors FLIP_AT=3000 LD_PRELOAD=$PWD/flip.so \
  "$HYPER" train job/job.yaml output_dir=export >export.out 2>export.err </dev/null &
exporting=$!

for f in model.safetensors optimizer.safetensors config.json trainer_state.json MANIFEST.json tokenizer.json; do
  it "a bit of a checkpoint's $f that is flipped while it is written fails the save"
  rm -rf job/out
  flipped "/$f" 20 "$HYPER" train job/job.yaml
  err_has "/$f"
  err_has ": what is read back from byte 0 to"
  no_file job/out/checkpoint-2/MANIFEST.json
done

it "on several devices, too, in several processes, too"
flipped "model-part-00001" 2000 "$HYPER" train job/job.yaml output_dir=two strategy=tp=2
err_has "model-part-00001.safetensors: what is read back from byte 0 to"
no_file two/checkpoint-2
flipped "optimizer-part-00001" 2000 "$HYPER" launch -n 2 --max-restarts 0 -- \
  train job/job.yaml output_dir=three strategy=tp=2
err_has "optimizer-part-00001.safetensors: what is read back from byte 0 to"
no_file three/checkpoint-2
flipped nothing 0 "$HYPER" launch -n 2 -- train job/job.yaml output_dir=three strategy=tp=2
exit_is 0
run inspect three/checkpoint-2
exit_is 0
out_has "every size and hash agrees"


# cut PART-OF-PATH BYTES COMMAND...: each such file is cut to so many bytes once it is mapped
cut_to() {
  part=$1 bytes=$2
  shift 2
  status=0 t_cmd="CUT=$part CUT_TO=$bytes $*"
  CUT=$part CUT_TO=$bytes LD_PRELOAD=$PWD/cut.so "$@" >out 2>err </dev/null || status=$?
}

it "a file that becomes shorter while a command reads it is named, exit 2"
run train job/job.yaml output_dir=good
exit_is 0
mkdir m && cp good/config.json good/tokenizer.json m/
for bytes in 0 4096; do
  cp good/model.safetensors m/
  cut_to m/model.safetensors $bytes "$HYPER" logits --model m --tokens 1,2,3 --out l.safetensors
  exit_is 2
  err_has "hyper: m/model.safetensors: became shorter while it was read"
  one_message
  no_file l.safetensors
  cp good/model.safetensors m/
  cut_to m/model.safetensors $bytes "$HYPER" convert m n
  exit_is 2
  err_has "m/model.safetensors: became shorter"
done

it "its name cannot move the cursor"
odd=$(printf 'm\033[2J\nx')
mkdir "$odd" && cp m/config.json m/tokenizer.json "$odd/" && cp good/model.safetensors "$odd/"
cut_to model.safetensors 0 "$HYPER" logits --model "$odd" --tokens 1,2,3 --out l.safetensors
exit_is 2
err_has 'hyper: m\x1b[2J\nx/model.safetensors: became shorter while it was read'

it "what a convert that was killed left is removed by the next"
mkdir left && cp good/config.json good/tokenizer.json left/ && cp good/model.safetensors left/
for f in model.safetensors.new.tmp.999999999-0123abcd model.safetensors.index.json.new model-00001-of-00002.safetensors.new \
  mine.new; do echo x >left/$f; done
run convert good left
exit_is 0
err_has "left/model.safetensors.new.tmp.999999999-0123abcd: removed"
[ "$(ls left | grep new)" = mine.new ] || fail "$(ls left)"

it "a checkpoint that becomes shorter while a run resumes is named, and the lock goes with the run"
cp -r good short
cut_to optimizer.safetensors 4096 "$HYPER" train job/job.yaml output_dir=short max_steps=4
exit_is 2
err_has "checkpoint-2/optimizer.safetensors: became shorter"
no_file short/run.lock
no_file short/checkpoint-4

it "one that the system cannot read any more is a failure of the machine, exit 1"
rm -rf short && cp -r good short && cp good/checkpoint-2/optimizer.safetensors spare
CUT_SPARE=$PWD/spare
export CUT_SPARE
cut_to optimizer.safetensors 4096 "$HYPER" train job/job.yaml output_dir=short max_steps=4
unset CUT_SPARE
exit_is 1
err_has "checkpoint-2/optimizer.safetensors: input/output failure: could not be read any more"
no_file short/run.lock

it "any other SIGBUS ends the process as it did"
"$HYPER" train job/job.yaml max_steps=100000 output_dir=long >out 2>err </dev/null &
pid=$!
i=0
while [ ! -e long/trainer_log.jsonl ] && [ $i -lt 300 ]; do sleep 0.1; i=$((i + 1)); done
kill -BUS $pid
status=0
wait $pid 2>/dev/null || status=$?
exit_is 135
err_lacks "became shorter"

# Flips a bit in the middle of a file, or back.
flip_byte() {
  at=$(($(wc -c <"$1") / 2))
  byte=$(od -An -tu1 -j $at -N1 "$1" | tr -d ' ')
  printf "$(printf '\\%03o' $((byte ^ 1)))" | dd of="$1" bs=1 seek=$at conv=notrunc 2>/dev/null
}

run train job/job.yaml output_dir=parts strategy=dp=2,zero=1
exit_is 0
for c in good/checkpoint-2 parts/checkpoint-2; do
  it "a flipped byte in any file of $c is found wherever it is opened as a model"
  echo "Tom went home." >text.txt
  run logits --model $c --tokens 1,2,3 --out l.safetensors
  exit_is 0
  rm -f l.safetensors
  for f in $c/*; do
    flip_byte $f
    run logits --model $c --tokens 1,2,3 --out l.safetensors
    refused "$f: " "hash does not match"
    no_file l.safetensors
    run generate --model $c --prompt Tom --max-new-tokens 2
    refused "$f: " "hash does not match"
    run eval --model $c --data text.txt
    refused "$f: " "hash does not match"
    flip_byte $f
  done
  f=$(ls $c/optimizer*.safetensors | tail -1)
  flip_byte $f
  run train job/job.yaml model_name_or_path=$c train_from_scratch=false output_dir=again
  refused "$f: its hash does not match the manifest"
  no_file again
  flip_byte $f
  run tokenize --model $c Tom
  exit_is 0
  flip_byte $c/tokenizer.json
  run tokenize --model $c Tom
  refused "$c/tokenizer.json: its hash does not match"
  flip_byte $c/tokenizer.json
done

it "files that the manifest does not name, or that are missing, are refused by name"
echo "{}" >good/checkpoint-2/more.json
run logits --model good/checkpoint-2 --tokens 1,2,3 --out l.safetensors
refused "good/checkpoint-2/more.json: is not in the manifest"
rm good/checkpoint-2/more.json
mv good/checkpoint-2/tokenizer_config.json kept.json
run logits --model good/checkpoint-2 --tokens 1,2,3 --out l.safetensors
refused "good/checkpoint-2/tokenizer_config.json: is missing, the manifest names it"
run inspect good/checkpoint-2
refused "good/checkpoint-2/tokenizer_config.json: is missing"

it "nothing is written into a checkpoint"
ls -lA --full-time good/checkpoint-2 >before
run convert parts/checkpoint-2 good/checkpoint-2
refused "good/checkpoint-2: is a checkpoint of a run" "choose another folder"
run train job/job.yaml output_dir=good/checkpoint-2
refused "good/checkpoint-2: is a checkpoint of a run" "choose another folder"
echo '{"text": "Tom went home."}' >eval.jsonl
run train job/job.yaml output_dir=good/checkpoint-2 do_train=false do_eval=true eval_dataset=eval.jsonl packing=false
refused "good/checkpoint-2: is a checkpoint of a run"
ls -lA --full-time good/checkpoint-2 | same_file before /dev/stdin

it "a flipped bit of an export fails it, and leaves no model"
flipped "converted/" 3000 "$HYPER" convert parts/checkpoint-2 converted
exit_is 2
err_has "converted/model.safetensors.new: what is read back from byte 0 to"
no_file converted
status=0 t_cmd="train with flipped bits in its export"
wait $exporting || status=$?
mv export.out out
mv export.err err
exit_is 2
err_has "export/model.safetensors.new: what is read back from byte 0 to"
no_file export/model.safetensors
