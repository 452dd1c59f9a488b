#!/bin/sh
# predict_with_generate and do_predict: answers of the model to an evaluation set, and their figures.
. "$(dirname "$0")/lib.sh"
. "$ROOT/tests/cli/train_lib.sh"
. "$ROOT/tests/cli/process_lib.sh"

for golden in "$ROOT"/tests/golden/predictions/*.txt; do
  it "LlamaFactory's answers and figures: $(basename "$golden" .txt)"
  need_data golden/llamafactory || continue
  run_cmd sh -c 'cd "$1" && shift && exec "$@"' - "$data" "$HYPER" train sft-llama3/config.yaml threads=1 output_dir="$WORK/golden" \
    overwrite_output_dir=true save_strategy=no $(sed -n 's/^# key //p' "$golden")
  exit_is 0
  same_file golden/generated_predictions.jsonl "${golden%.txt}.jsonl"
  sed -n '/bleu\|rouge/s/^ *"\(.*\)": \([0-9.]*\),*$/\1 \2/p' golden/all_results.json > figures
  grep -v '^#' "$golden" > recorded
  same_file figures recorded
  grep -q predict_runtime golden/predict_results.json || fail "predict_results.json has no runtime"
done

it "LlamaFactory's answers end at special tokens that the tokenizer lists"
for key in additional_special_tokens extra_special_tokens; do
  need_data golden/llamafactory || break
  rm -rf special && cp -rL "$data/model" special && chmod -R u+w special
  sed -i "s/^{/{\"$key\": [\"U\", \" him\"],/" special/tokenizer_config.json
  write special.yaml <<END
model_name_or_path: special
stage: sft
do_predict: true
predict_with_generate: true
finetuning_type: full
eval_dataset: alpaca
dataset_dir: $data/data
template: default
cutoff_len: 60
output_dir: ends
overwrite_output_dir: true
per_device_eval_batch_size: 2
do_sample: false
max_new_tokens: 12
max_samples: 3
repetition_penalty: 1.3
END
  run train special.yaml
  exit_is 0
  same_file ends/generated_predictions.jsonl "$ROOT/tests/golden/predictions/special_tokens.jsonl"
done

chats=$ROOT/tests/golden/chats
make_job job <<END
dataset_dir: $chats
template: qwen
eval_dataset: alpaca
predict_with_generate: true
do_predict: true
do_sample: false
max_new_tokens: 12
per_device_eval_batch_size: 3
END
cp "$chats"/tokenizer* job/model/
sed -i 's/"vocab_size": [0-9]*/"vocab_size": 600/' job/model/config.json
sed -i 's/^stage: pt/stage: sft/; s/^dataset: .*/dataset: chats/; s/^max_steps: .*/max_steps: 4/; s/^cutoff_len: .*/cutoff_len: 64/; s/^save_steps: .*/save_steps: 2/' job/job.yaml

it "the same answers on meshes and pipelines, under a memory limit, and after a resume"
run train job/job.yaml deterministic=layout output_dir=one
exit_is 0
err_has "generating answers to"
out_has "***** predict metrics *****"
is_file one/generated_predictions.jsonl
for how in "strategy=dp=2 per_device_train_batch_size=2 global_batch_size=4" "strategy=tp=2" "strategy=pp=2" "strategy=cp=2" "memory_limit=90%"; do
  run train job/job.yaml deterministic=layout output_dir=two overwrite_output_dir=true $how
  exit_is 0
  same_file one/generated_predictions.jsonl two/generated_predictions.jsonl
done
run train job/job.yaml deterministic=layout output_dir=three resume_from_checkpoint=one/checkpoint-2
exit_is 0
same_file one/generated_predictions.jsonl three/generated_predictions.jsonl

it "an evaluation during training has figures of answers in the log and in the report, and no loss"
run train job/job.yaml output_dir=eval eval_strategy=steps eval_steps=2
exit_is 0
[ "$(grep -c '"current_steps": [24], .*"eval_rouge-1": .*"eval_bleu-4": ' eval/trainer_log.jsonl)" = 2 ] || fail "no figures in trainer_log.jsonl"
grep -q eval_loss eval/trainer_log.jsonl && fail "there is a loss"
grep -q "BLEU-4 of answers" eval/report.html || fail "no figures in report.html"
grep -q '"eval_rouge-l"' eval/eval_results.json || fail "no figures in eval_results.json"

it "a memory limit that is a share of what generation alone needs"
run train job/job.yaml do_train=false model_name_or_path=one train_from_scratch=false output_dir=share memory_limit=95%
exit_is 0
err_has "memory_limit: 95% of"
same_file one/generated_predictions.jsonl share/generated_predictions.jsonl

it "without training: a model answers, and an adapter does; drawn answers depend on the seed alone"
run train job/job.yaml do_train=false model_name_or_path=one train_from_scratch=false output_dir=only
exit_is 0
same_file one/generated_predictions.jsonl only/generated_predictions.jsonl
[ "$(ls only | tr '\n' ' ')" = "all_results.json generated_predictions.jsonl predict_results.json " ] || fail "other files: $(ls only)"
run train job/job.yaml finetuning_type=lora model_name_or_path=one train_from_scratch=false output_dir=lora
exit_is 0
run train job/job.yaml finetuning_type=lora do_train=false model_name_or_path=one train_from_scratch=false adapter_name_or_path=lora output_dir=applied
exit_is 0
same_file lora/generated_predictions.jsonl applied/generated_predictions.jsonl
for seed in 1 1 2; do
  run train job/job.yaml do_train=false model_name_or_path=one train_from_scratch=false output_dir=drawn do_sample=true temperature=2.0 top_p=1.0 seed=$seed
  exit_is 0
  cat drawn/generated_predictions.jsonl >> drawn.$seed
done
run train job/job.yaml do_train=false model_name_or_path=one train_from_scratch=false output_dir=top do_sample=true temperature=2.0 top_k=1
exit_is 0
same_file one/generated_predictions.jsonl top/generated_predictions.jsonl
run train job/job.yaml do_train=false model_name_or_path=one train_from_scratch=false output_dir=full dataloader_drop_last=true per_device_eval_batch_size=5
exit_is 0
[ "$(wc -l < full/generated_predictions.jsonl)" = $(($(wc -l < one/generated_predictions.jsonl) / 5 * 5)) ] || fail "answers of the last batch, which is short"
cat drawn/generated_predictions.jsonl drawn/generated_predictions.jsonl > twice
n=$(wc -l < drawn/generated_predictions.jsonl)
head -n "$n" drawn.1 > first
tail -n "$n" drawn.1 > second
same_file first second
cmp -s first drawn.2 && fail "the seed has no effect"

it "records without a response are answered"
write questions.json <<END
[{"instruction": "Say hi"}, {"instruction": "Name a cat", "input": "a black one"}]
END
run train job/job.yaml do_train=false model_name_or_path=one train_from_scratch=false dataset=null eval_dataset=questions.json dataset_dir=. output_dir=questions
exit_is 0
[ "$(grep -c '"label": "\\n"' questions/generated_predictions.jsonl)" = 2 ] || fail "not two answers"
grep -q '"predict_rouge-1": 0.0' questions/predict_results.json || fail "rouge-1 is not 0"

it "Chinese text is told of once"
write chinese.json <<END
[{"instruction": "a", "output": "你好"}, {"instruction": "b", "output": "世界"}]
END
run train job/job.yaml do_train=false do_eval=true model_name_or_path=one train_from_scratch=false dataset=null eval_dataset=chinese.json dataset_dir=. output_dir=chinese
exit_is 0
[ "$(grep -c "ROUGE compares Chinese texts character by character" err)" = 1 ] || fail "not told once"

it "Ctrl-C while answers are generated leaves no half of them, and the next run completes them"
set -- job/job.yaml output_dir=stopped max_new_tokens=2000 per_device_eval_batch_size=1 max_samples=40
rm -f err # of the test before
"$HYPER" train "$@" > out 2> err &
pid=$!
for i in $(seq 100); do
  grep -q "generating answers" err 2>/dev/null && break
  sleep 0.1
done
sleep 0.2
kill -INT $pid
status=0
{ wait $pid || status=$?; } 2>/dev/null
exit_is 0
err_has "SIGINT: stopped before the evaluation was over; run it again to complete it"
no_file stopped/generated_predictions.jsonl
no_file stopped/predict_results.json
is_file stopped/model.safetensors
run train job/job.yaml output_dir=stopped max_samples=40
exit_is 0
is_file stopped/generated_predictions.jsonl
rm stopped/generated_predictions.jsonl
run train job/job.yaml output_dir=stopped max_samples=40
exit_is 0
err_has "stopped has no generated_predictions.jsonl: generate it by a run with do_train: false"

# evaluate MARK WORDS: without training, a sample at a time, 10,000 samples; Ctrl-C once standard error
# has MARK, to the process and those that it started.
evaluate() {
  mark=$1
  shift
  rm -rf ended err # of the test before
  t_cmd=$*
  setsid "$@" train job/job.yaml do_train=false model_name_or_path=one train_from_scratch=false dataset=null eval_dataset=many.json dataset_dir=. \
    output_dir=ended per_device_eval_batch_size=1 $how > out 2> err < /dev/null &
  pid=$!
  i=0
  until grep -q "$mark" err 2>/dev/null || [ $i -ge 600 ]; do
    sleep 0.05
    i=$((i + 1))
  done
  kill -INT -$pid
  status=0
  { wait $pid || status=$?; } 2>/dev/null
  exit_is 0
  [ "$(tr '\r' '\n' < err | grep -c "SIGINT: stopped before the evaluation was over; run it again to complete it")" = 1 ] || fail "not told once"
  [ ! -e ended ] || [ -z "$(ls -A ended)" ] || fail "left behind: $(ls -A ended)"
  no_orphan "Ctrl-C"
}
awk 'BEGIN { for (i = 0; i < 10000; i++) printf "%s{\"instruction\": \"Say %d\", \"output\": \"%d\"}", i ? ",\n" : "[", i, i; print "]" }' > many.json

it "Ctrl-C ends an evaluation without training after a batch, and says so once, in one process and in several"
over_sockets
how=
evaluate "generating answers" "$HYPER"
how="strategy=dp=2"
evaluate "generating answers" "$HYPER" launch -n 2 --
how="predict_with_generate=false do_predict=false do_eval=true strategy=dp=2"
evaluate "samples from" "$HYPER" launch -n 2 --

it "what does not go together, and what is not built, is refused by name before anything is written"
refuses() { # MESSAGE KEY=VALUE...
  message=$1
  shift
  run train job/job.yaml output_dir=refused "$@"
  exit_is 2
  err_has "$message"
  no_file refused
}
refuses "write predict_with_generate: true, too" predict_with_generate=false
refuses "it is for stage sft; leave it out" stage=pt
refuses "predict_with_generate and compute_accuracy do not go together" compute_accuracy=true
refuses "beam search is not built; write num_beams: 1" num_beams=2
refuses "beam search is not built" generation_num_beams=2
refuses "there is no loss with predict_with_generate: true" prediction_loss_only=true
refuses "it needs the loss of evaluations" eval_strategy=steps eval_steps=2 metric_for_best_model=loss
refuses "predictions are of one data set: write eval_on_each_dataset: false" eval_on_each_dataset=true
refuses "evaluation needs data; write eval_dataset" eval_dataset=null
refuses "to generate answers to" memory_limit=4MiB max_new_tokens=30000 per_device_eval_batch_size=8
