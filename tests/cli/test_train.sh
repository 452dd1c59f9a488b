# hyper train: determinism, resuming, signals, limits, refusals.
. "$(dirname "$0")/lib.sh"
. "$ROOT/tests/cli/train_lib.sh"

it "trains, logs and exports"
make_job a <<END
plot_loss: true
val_size: 0.1
eval_strategy: steps
eval_steps: 10
END
run train a/job.yaml
exit_is 0
for f in model.safetensors config.json tokenizer.json trainer_log.jsonl trainer_state.json all_results.json \
  train_results.json training_loss.png training_loss.svg report.html checkpoint-20/MANIFEST.json; do
  [ -s a/out/$f ] || fail "a/out/$f is not there"
done
[ "$(grep -c '"loss"' a/out/trainer_log.jsonl)" = 20 ] || fail "trainer_log.jsonl has not 20 losses"
run generate --model a/out --prompt "Once" --max-new-tokens 5 --temperature 0 --json
exit_is 0

it "gives the same bits twice"
make_job b <<END
END
make_job c <<END
END
run train b/job.yaml
exit_is 0
run train c/job.yaml
exit_is 0
same_file b/out/model.safetensors c/out/model.safetensors
same_file b/out/checkpoint-20/optimizer.safetensors c/out/checkpoint-20/optimizer.safetensors
same_history b/out c/out

it "gives the same bits with 1 and 2 threads, with recomputation and without, of optimized kernels too"
run train b/job.yaml output_dir=one threads=1 hyper_parallel.recompute=full
exit_is 0
CC=$TEST_CC run train b/job.yaml output_dir=two threads=2 hyper_parallel.recompute=none
exit_is 0
same_file one/model.safetensors b/out/model.safetensors
same_file two/model.safetensors b/out/model.safetensors

it "gives the same bits with every instruction set"
for isa in plain avx2 avx512; do
  HYPER_ISA=$isa run train b/job.yaml output_dir=$isa
  exit_is 0
  same_file $isa/model.safetensors b/out/model.safetensors
done

it "tells where the time of a run went, and where that of a step would go"
run report a/out
exit_is 0
out_has "the 5 widest gaps:"
grep -q '^ .* bytes .* loop adamw .* model' out || fail "no optimizer"
grep -q ' einsum dW *32x48x128 f32 .* model.layers.\*.mlp$' out || fail "no gradient of a weight"
grep -q '^predicted were [1-9][0-9.]* ' out || fail "no predicted time"
run report a/out --json
exit_is 0
same_file out a/out/op_times.json
mkdir -p old
sed 's/"predicted_s":[^,]*,//g' a/out/op_times.json >old/op_times.json
run report old # of a version without predictions
exit_is 0
out_has "the 5 widest gaps:"
out_lacks "predicted"
run report nowhere
refused "nowhere/op_times.json: there is no such file"
run explain a/job.yaml time --json
exit_is 0
cp out time.json
for key in run_s limit_s peak_flop_per_s kinds.0.time_s kinds.0.gap_s kinds.0.moved_bytes; do
  [ -n "$(json time.json $key)" ] || fail "no $key"
done
run explain a/job.yaml ops
exit_is 0
out_has "at the limits of a device a run takes"
out_has "einsum forward"

it "continues after SIGTERM with the same bits"
make_job t <<END
END
"$HYPER" train t/job.yaml > out 2> err < /dev/null &
pid=$!
while [ ! -d t/out/checkpoint-5 ] && kill -0 $pid 2>/dev/null; do sleep 0.01; done
kill -TERM $pid 2>/dev/null
status=0
wait $pid || status=$?
t_cmd="train, ended by SIGTERM"
exit_is 0
run train t/job.yaml
exit_is 0
same_file t/out/model.safetensors b/out/model.safetensors
same_history t/out b/out

it "leaves a finished run as it is"
cp t/out/model.safetensors before
run train t/job.yaml
exit_is 0
err_has "finished"
same_file t/out/model.safetensors before

it "only evaluates with do_train: false"
cp -r b/out b/before
run train b/job.yaml do_train=false do_eval=true val_size=0.2
exit_is 0
err_lacks "training example"
json b/out/eval_results.json eval_loss > value
[ -s value ] || fail "no eval_loss"
for f in model.safetensors trainer_log.jsonl trainer_state.json train_results.json; do same_file b/out/$f b/before/$f; done
json_is b/out/all_results.json train_loss "$(json b/before/all_results.json train_loss)"
run train b/job.yaml do_train=false do_eval=true val_size=0.2 output_dir=only
exit_is 0
[ "$(ls only | tr '\n' ' ')" = "all_results.json eval_results.json " ] || fail "it left $(ls only)"
# As in Transformers, which divides by the 32 labels of a row, with label smoothing by its 31 predictions.
run train b/job.yaml do_train=false do_eval=true val_size=0.2 output_dir=smooth label_smoothing_factor=1e-30
exit_is 0
json_near smooth/eval_results.json eval_loss "$(json only/eval_results.json eval_loss | awk '{ print $1 * 32 / 31 }')" 1e-3

it "passes over a damaged checkpoint and says so"
make_job d <<END
END
run train d/job.yaml
rm -f d/out/train_results.json
printf x | dd of=d/out/checkpoint-20/optimizer.safetensors bs=1 seek=900 conv=notrunc 2>/dev/null
run train d/job.yaml
exit_is 0
err_has "checkpoint-20"
err_has "continuing from d/out/checkpoint-15"
same_file d/out/model.safetensors b/out/model.safetensors

it "begins at step 0 when there is no checkpoint, unless one is asked for"
mkdir -p e
run train b/job.yaml output_dir=e resume_from_checkpoint=true
exit_is 2
err_has "no checkpoint"
run train b/job.yaml output_dir=e resume_from_checkpoint=e/checkpoint-7
exit_is 2

it "refuses a second run in the same folder"
make_job l <<END
max_steps: 100000
END
sed -i '/^max_steps: 20/d' l/job.yaml
"$HYPER" train l/job.yaml > l.out 2>&1 < /dev/null &
pid=$!
while [ ! -s l/out/run.lock ] && kill -0 $pid 2>/dev/null; do sleep 0.01; done
run train l/job.yaml
exit_is 2
err_has "another run"
kill -9 $pid
wait $pid 2>/dev/null

it "takes a key as an option too, before the file or after it, as explain does"
run train --output-dir opt b/job.yaml --max-steps=5 --dtype bf16
exit_is 0
run train b/job.yaml output_dir=key max_steps=5 dtype=bf16
exit_is 0
same_file opt/model.safetensors key/model.safetensors
run explain b/job.yaml --per-device-train-batch-size 3 memory
exit_is 0
out_has "3 x 32 tokens"
run explain b/job.yaml --json packing=true
exit_is 0
for pair in model_type:llama batch:4 seq:31; do json_is out "${pair%:*}" "${pair#*:}"; done
json_near out optimizer_bytes $((2 * $(json out parameter_bytes))) 0.02 # tables of rope have no state
run explain b/job.yaml schedule --json --svg s.svg
refused --json --svg
run train b/job.yaml --lerning-rate 1
refused lerning_rate learning_rate
run train b/job.yaml --max-steps
refused --max-steps

it "accumulates gradients like a larger batch"
run train b/job.yaml output_dir=big per_device_train_batch_size=4 max_steps=5 save_strategy=no
exit_is 0
run train b/job.yaml output_dir=acc per_device_train_batch_size=2 gradient_accumulation_steps=2 max_steps=5 save_strategy=no
exit_is 0
close_losses big/trainer_log.jsonl acc/trainer_log.jsonl 1e-5

it "tells the gradient's norm before clipping, also of a run that does not clip"
for norm in 1e-3 0; do
  run train b/job.yaml output_dir=clip$norm max_steps=3 save_strategy=no max_grad_norm=$norm
  exit_is 0
done
json_is clip0/trainer_state.json log_history.0.grad_norm "$(json clip1e-3/trainer_state.json log_history.0.grad_norm)"

it "counts tokens with padding or without, as told"
for text in One "One day" "One day a cat" "One day a cat was sad"; do printf '{"text": "%s"}\n' "$text"; done > four.jsonl
seen() { # KEY=VALUE...: tokens that a run over four.jsonl tells
  run train b/job.yaml dataset=four.jsonl packing=false max_steps=1 save_strategy=no overwrite_output_dir=true \
    output_dir=seen "$@"
  exit_is 0
  json seen/trainer_state.json num_input_tokens_seen
}
each=$(seen per_device_train_batch_size=1 gradient_accumulation_steps=4 include_num_input_tokens_seen=all)
[ "$(seen include_num_input_tokens_seen=non_padding)" = "$each" ] || fail "without padding: not $each"
[ "$(seen include_num_input_tokens_seen=all)" -gt "$each" ] || fail "with padding: not above $each"

it "counts total_flos without any embedding"
make_job g <<END
END
vocab=$(json g/model/config.json vocab_size)
write g/model/config.json <<END
{"model_type": "gpt2", "vocab_size": $vocab, "n_embd": 16, "n_layer": 1, "n_head": 2, "n_positions": 32}
END
run train g/job.yaml max_steps=2
exit_is 0
json_is g/out/all_results.json total_flos $((6 * (12 * 16 * 16 + 15 * 16) * 2 * 4 * 32))

it "trains in bf16 near f32"
run train b/job.yaml output_dir=half bf16=true
exit_is 0
close_losses b/out/trainer_log.jsonl half/trainer_log.jsonl 2e-2

it "refuses a memory limit that is too small and names one that does"
run train b/job.yaml output_dir=m memory_limit=300KiB
exit_is 2
err_has "what needs less: a smaller batch or cutoff_len, recompute: full, --dtype bf16"
need=$(sed -n 's/.*set memory_limit to \([0-9]*\) bytes.*/\1/p' err | head -1)
[ -n "$need" ] || fail "no minimum is named: $(cat err)"
if [ -n "$need" ]; then
  run train b/job.yaml output_dir=m memory_limit="$need"
  exit_is 0
  same_file m/model.safetensors b/out/model.safetensors
fi

it "names the same least for any limit below it, whatever a step and its evaluations consist of"
lengths="packing=false cutoff_len=64 max_steps=8"
eval="val_size=0.3 eval_strategy=steps eval_steps=4 per_device_eval_batch_size=64"
sums="gradient_accumulation_steps=2"
for keys in "$lengths $eval" "$lengths $sums per_device_train_batch_size=40" "max_steps=8 $eval" "" "gradient_accumulation_steps=3" "$lengths"; do
  run train b/job.yaml output_dir=least save_strategy=no memory_limit=1KiB $keys
  refused "memory limit 1024 bytes"
  need=$(sed -n 's/.*set memory_limit to \([0-9]*\) bytes.*/\1/p' err)
  run train b/job.yaml output_dir=least save_strategy=no memory_limit=$((need - 1)) $keys
  refused "set memory_limit to $need bytes"
  run train b/job.yaml output_dir=least save_strategy=no memory_limit="$need" $keys
  exit_is 0
  case $keys in *eval*) out_has "eval_loss" ;; esac
  rm -rf least
done
least=$need

# Of three micro-batches an epoch, its last step has one, whose gradients are in work memory next to
# the sums of those of the others.
it "names a least that is enough for the short step at the end of an epoch"
make_job short </dev/null
sed -i 's/"intermediate_size": 48/"intermediate_size": 1024/' short/model/config.json
short="output_dir=short/out packing=false max_samples=3 per_device_train_batch_size=1 cutoff_len=8
  gradient_accumulation_steps=2 save_strategy=no offload=none"
least_of() { # KEY=VALUE...
  run train short/job.yaml memory_limit=1KiB $short "$@"
  refused "memory limit 1024 bytes"
  need=$(sed -n 's/.*set memory_limit to \([0-9]*\) bytes.*/\1/p' err)
}
least_of max_steps=1
long=$need
least_of max_steps=4
[ "$long" -lt "$need" ] || fail "the longer step needs $long bytes, and both $need"
run train short/job.yaml memory_limit="$long" $short max_steps=4
refused "set memory_limit to $need bytes"
no_file short/out
run train short/job.yaml memory_limit="$need" $short max_steps=4
exit_is 0

it "what does not fit is on the host where it may be, with the same bits"
run train short/job.yaml memory_limit="$long" $short max_steps=4 offload=auto output_dir=short/auto
exit_is 0
err_has " on host ("
err_has " without the limit"
same_file short/auto/model.safetensors short/out/model.safetensors

it "refuses a memory limit that the evaluation does not keep before the first step"
run train b/job.yaml output_dir=late memory_limit="$least" $lengths $eval
refused "set memory_limit to" "too small for the evaluation" "a smaller per_device_eval_batch_size takes less"
err_lacks "smaller inputs"
no_file late
need=$(sed -n 's/.*set memory_limit to \([0-9]*\) bytes.*/\1/p' err)
run train b/job.yaml output_dir=late memory_limit=$((need - 1)) $lengths $eval
refused "set memory_limit to $need bytes"
run train b/job.yaml output_dir=late memory_limit="$need" $lengths $eval
exit_is 0
run train b/job.yaml output_dir=few memory_limit="$((need - 1))" $lengths $eval per_device_eval_batch_size=4
exit_is 0
run train b/job.yaml output_dir=step memory_limit=1KiB
refused "set memory_limit to"
err_lacks "eval"

it "names step and tensor of a loss that is not finite"
run train b/job.yaml output_dir=n learning_rate=1e6 weight_decay=1e6 warmup_ratio=0 save_steps=1
exit_is 1
err_has "step "
grep -Eq 'the loss is -?(nan|inf)|is not finite' err || { fail "no word of a number that is not finite"; t_show; }

it "refuses an unknown key with the place and the nearest"
run train b/job.yaml lerning_rate=1
exit_is 2
err_has "learning_rate"
