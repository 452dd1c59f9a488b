#!/bin/sh
# Stages that learn preferences: dpo, kto, rm.
. "$(dirname "$0")/lib.sh"
. "$ROOT/tests/cli/train_lib.sh"

chats=$ROOT/tests/golden/chats

# Rewards are differences of log-probabilities of hundreds: told to 1e-3; losses and norms to 3e-5.
follows_closely() {
  awk '{ key = $1 " " $2 } NR == FNR { have[key] = $3; next } /^#/ { next }
    { n++; tight = $2 !~ /rewards|logits|kl|odds/; d = have[key] - $3; if (d < 0) d = -d; size = $3 < 0 ? -$3 : $3
      if (!(key in have) || d > (tight ? 3e-5 * size : 2e-3 * size + 1e-4)) { bad = 1; print "  " key " is " have[key] ", expected " $3 } }
    END { exit bad || n < 10 }' numbers "$1" || fail "$1: other numbers"
}

runs_follow preferences follows_closely

# make_preferences DIR STAGE DATASET: a job on the conversations of the repository.
make_preferences() {
  make_job "$1" </dev/null
  sed -i "s/^stage: pt/stage: $2/; s@^dataset: .*@dataset: $3@; s/^max_steps: .*/max_steps: 4/; s/^cutoff_len: .*/cutoff_len: 64/
          s/^per_device_train_batch_size: .*/per_device_train_batch_size: 2/; s/^save_steps: .*/save_steps: 2/" "$1/job.yaml"
  cp "$chats"/tokenizer* "$1/model/"
  sed -i 's/"vocab_size": [0-9]*/"vocab_size": 600/' "$1/model/config.json"
  printf 'dataset_dir: %s\ntemplate: qwen\n' "$chats" >> "$1/job.yaml"
}
make_preferences dpo dpo pairs
make_preferences kto kto judged
make_preferences rm rm pairs
sed -i 's/"model_type"/"summary_dropout_prob": 0.0, "model_type"/' rm/model/config.json

for stage in dpo kto rm; do
  it "stage $stage: the same bits on meshes, pipelines, under a memory limit, and after a resume"
  run train $stage/job.yaml deterministic=layout output_dir=$stage-one
  exit_is 0
  for how in "strategy=dp=2 per_device_train_batch_size=1 global_batch_size=2 hyper_parallel.recompute=full" "strategy=pp=2" \
    "strategy=tp=2,cp=2 memory_limit=90%"; do
    run train $stage/job.yaml deterministic=layout output_dir=$stage-two overwrite_output_dir=true $how
    exit_is 0
    same_file $stage-one/model.safetensors $stage-two/model.safetensors
  done
  run train $stage/job.yaml deterministic=layout output_dir=$stage-three resume_from_checkpoint=$stage-one/checkpoint-2
  exit_is 0
  same_file $stage-one/model.safetensors $stage-three/model.safetensors
  sed -n '/"step": 3/,$p' $stage-one/trainer_state.json | grep rewards > rewards.1
  sed -n '/"step": 3/,$p' $stage-three/trainer_state.json | grep rewards > rewards.2
  same_file rewards.1 rewards.2
done

it "every loss trains, and those that LlamaFactory does not compute say so"
for loss in sigmoid hinge ipo kto_pair orpo simpo; do
  run train dpo/job.yaml output_dir=loss overwrite_output_dir=true pref_loss=$loss pref_exact=true max_steps=2
  exit_is 0
  cp loss/trainer_log.jsonl $loss.jsonl
done
cmp -s sigmoid.jsonl hinge.jsonl && fail "hinge is the sigmoid's loss"
run train dpo/job.yaml output_dir=loss overwrite_output_dir=true pref_loss=hinge max_steps=1
err_has "pref_loss hinge is computed as LlamaFactory 0.9.5 with trl 0.24 computes it, by the sigmoid; pref_exact: true"
# at the start policy and reference are equal: log 2, 1, and (1 / 2 beta)^2
for row in "sigmoid 0.6931" "hinge 1.0" "ipo 25.0" "kto_pair 0.5"; do
  first=$(sed -n '1s/.*"loss": \([0-9.]*\).*/\1/p' "${row% *}.jsonl")
  case $first in ${row#* }*) ;; *) fail "${row% *} begins with $first" ;; esac
done

it "evaluations report rewards"
run train dpo/job.yaml output_dir=eval val_size=1 eval_strategy=steps eval_steps=2 per_device_eval_batch_size=1 plot_loss=true
exit_is 0
grep -q '"eval_rewards/margins"' eval/trainer_state.json || fail "no eval_rewards/margins"
grep -q '"accuracy": ' eval/trainer_log.jsonl || fail "no accuracy in trainer_log.jsonl"
for key in rewards/chosen rewards/margins logps/rejected logits/chosen eval_rewards/accuracies eval_logps/chosen; do
  grep -q "\"$key\": " eval/trainer_log.jsonl || fail "no $key in trainer_log.jsonl"
done
is_file eval/training_rewards_accuracies.png
grep -q "reward of chosen above rejected answers" eval/report.html || fail "no chart of rewards/margins"
run train kto/job.yaml output_dir=judged plot_loss=true max_steps=2
exit_is 0
grep -q '"kl": ' judged/trainer_log.jsonl || fail "no kl in trainer_log.jsonl"
is_file judged/training_rewards_chosen.png
run train rm/job.yaml output_dir=scored plot_loss=true max_steps=2 val_size=1 eval_strategy=steps eval_steps=1 per_device_eval_batch_size=1
exit_is 0
grep -q '"eval_accuracy": ' scored/trainer_log.jsonl || fail "no eval_accuracy in trainer_log.jsonl"
is_file scored/training_eval_accuracy.png
run train dpo/job.yaml output_dir=smooth val_size=1 do_eval=true per_device_eval_batch_size=1 dpo_label_smoothing=0.3 learning_rate=0.01
exit_is 0
want=$(json smooth/eval_results.json eval_rewards/margins | awk '{ printf "%.9g", 0.7 * log(1 + exp(-$1)) + 0.3 * log(1 + exp($1)) }')
json_near smooth/eval_results.json eval_loss "$want" 1e-4 # of one sample

it "the tokens by which an answer is longer weigh less, with the same bits on meshes"
run train dpo/job.yaml deterministic=layout output_dir=ld-one ld_alpha=0.3
exit_is 0
! cmp -s ld-one/model.safetensors dpo-one/model.safetensors || fail "ld_alpha made no difference"
for how in "strategy=dp=2,tp=2 per_device_train_batch_size=1 global_batch_size=2" "strategy=pp=2,cp=2"; do
  run train dpo/job.yaml deterministic=layout output_dir=ld-two overwrite_output_dir=true ld_alpha=0.3 $how
  exit_is 0
  same_file ld-one/model.safetensors ld-two/model.safetensors
done
run train dpo/job.yaml output_dir=ld-all ld_alpha=1 deterministic=layout
same_file dpo-one/model.safetensors ld-all/model.safetensors

it "adapters of the reference model are merged into it"
cat > adapter.yaml <<'END'
model_name_or_path: dpo-one
adapter_name_or_path: ref-adapter
export_dir: merged
infer_dtype: float32
END
run train kto/job.yaml model_name_or_path=dpo-one train_from_scratch=false finetuning_type=lora lora_rank=4 \
  output_dir=ref-adapter learning_rate=0.01
exit_is 0
run export adapter.yaml
exit_is 0
run train dpo/job.yaml output_dir=by-adapter ref_model=dpo-one ref_model_adapters=ref-adapter
exit_is 0
run train dpo/job.yaml output_dir=by-merged ref_model=merged
exit_is 0
run train dpo/job.yaml output_dir=by-base ref_model=dpo-one
exit_is 0
close_losses by-adapter/trainer_log.jsonl by-merged/trainer_log.jsonl 1e-6
! cmp -s by-adapter/model.safetensors by-base/model.safetensors || fail "the adapter made no difference"

it "a reference model of its own"
run train dpo/job.yaml output_dir=ref ref_model=dpo-one
exit_is 0
mkdir other && cp -r dpo/model/. other/
sed -i 's/"vocab_size": [0-9]*/"vocab_size": 700/' other/config.json
run train dpo/job.yaml output_dir=ref2 ref_model=other
exit_is 2
err_has "has a vocabulary of 700, the model that is trained one of 600"
sed -i 's/"vocab_size": [0-9]*/"vocab_size": 500/' other/config.json
run train dpo/job.yaml output_dir=ref2 ref_model=other
exit_is 2
err_has "has a vocabulary of 500, the model that is trained one of 600"
sed 's/"vocab_size": [0-9]*/"vocab_size": 600/' dpo/model/config.json > other/config.json
sed -i 's/"!":0/"?!?":0/' other/tokenizer.json
run train dpo/job.yaml output_dir=ref2 ref_model=other
exit_is 2
err_has 'ref_model: token 0 is "?!?" for other, and "!" for the model that is trained'
run train dpo/job.yaml output_dir=ref2 ref_model=nowhere
exit_is 2
err_has "nowhere"
run train dpo/job.yaml output_dir=ref2 ref_model=dpo-one pref_loss=orpo
exit_is 2
err_has "ref_model"

it "an adapter's reference is the model without it"
run train dpo/job.yaml output_dir=lora finetuning_type=lora lora_rank=2
exit_is 0
grep -q '"rewards/chosen": 0.0' lora/trainer_state.json || fail "the first rewards are not 0"

it "a reward model has a value head in a file of its own, and goes on from it"
[ -s rm-one/value_head.safetensors ] || fail "no value_head.safetensors"
run inspect rm-one/value_head.safetensors
out_has "v_head.summary.weight"
run inspect rm-one/model.safetensors
grep -q v_head out && fail "the value head is in model.safetensors, too"
run train rm/job.yaml output_dir=rm-on model_name_or_path=rm-one train_from_scratch=false max_steps=1 learning_rate=0
exit_is 0
same_file rm-one/value_head.safetensors rm-on/value_head.safetensors
grep -q "a new value head" err && fail "the value head was not read"
run train rm/job.yaml output_dir=rm-new model_name_or_path=dpo-one train_from_scratch=false max_steps=1
exit_is 0
err_has "a new value head"
run train rm/job.yaml output_dir=rm-lora finetuning_type=lora max_steps=2
exit_is 0
[ -s rm-lora/value_head.safetensors ] || fail "no value_head.safetensors next to an adapter"
run train rm/job.yaml output_dir=rm-eval val_size=1 eval_strategy=steps eval_steps=2 per_device_eval_batch_size=1
grep -q '"eval_accuracy"' rm-eval/trainer_state.json || fail "no eval_accuracy"

it "bad keys"
for row in "pref_beta=0|pref_beta" "pref_loss=odd|pref_loss" "dpo_label_smoothing=0.7|dpo_label_smoothing" \
  "pref_loss=ipo dpo_label_smoothing=0.1|sigmoid alone" "packing=true|packing is for stages pt and sft" "pref_bco_weight=1|pref_bco_weight" \
  "ref_model_adapters=a|adapters of ref_model, which is missing" "ld_alpha=2|out of range"; do
  run train dpo/job.yaml output_dir=bad ${row%|*}
  exit_is 2
  err_has "${row#*|}"
done
run train kto/job.yaml ld_alpha=0.5 output_dir=bad
exit_is 2
err_has "ld_alpha: it is for stage dpo; leave it out"
run train dpo/job.yaml output_dir=dpo-one pref_beta=0.2 max_steps=5
exit_is 2
err_has "pref_beta 0.1 -> 0.2"
run train kto/job.yaml dataset=alpaca output_dir=bad
exit_is 2
err_has "no record is left to train on"

it "an adapter is applied to the answers of other prompts, too"
run train kto/job.yaml train_from_scratch=false model_name_or_path=kto-one output_dir=adapter finetuning_type=lora lora_rank=4 lora_target=all learning_rate=0.02
exit_is 0
printf 'model_name_or_path: kto-one\nadapter_name_or_path: adapter\nexport_dir: merged\n' >merge.yaml
run export merge.yaml
exit_is 0
for how in "adapter model_name_or_path=kto-one finetuning_type=lora adapter_name_or_path=adapter" "merged model_name_or_path=merged ref_model=kto-one"; do
  run train kto/job.yaml train_from_scratch=false output_dir=on-$how learning_rate=1e-9
  exit_is 0
done
steps_of() { sed -n "s/.*\"$2\": \([-0-9.e]*\).*/\1/p" "$1/trainer_state.json"; }
for key in kl loss; do
  steps_of on-adapter $key >steps.1
  steps_of on-merged $key >steps.2
  paste steps.1 steps.2 | awk '{ d = $1 - $2; if (d < 0) d = -d; if (d > 1e-4 + 1e-3 * $2) bad = 1; if ($1 > 0.01) n++ } END { exit bad || !n }' ||
    fail "$key is $(tr '\n' ' ' <steps.1)with the adapter, $(tr '\n' ' ' <steps.2)with it merged"
done

it "stage kto: a record that is left out lends its response to none"
mkdir kto-data
write kto-data/dataset_info.json <<'END'
{"kto": {"file_name": "kto.json", "columns": {"prompt": "instruction", "response": "output", "kto_tag": "label"}}}
END
write kto-data/kto.json <<'END'
[{"instruction": "a", "output": "b", "label": true}, {"instruction": "c"}, {"instruction": "d", "output": "e", "label": false}]
END
run tokenize --dataset kto --dataset_dir kto-data --model kto/model --template qwen stage=kto
exit_is 0
err_has "1 of 3 records are left out; the first is record 2 of kto-data/kto.json: it has no response"
sed -i 's/false/true/' kto-data/kto.json
run train kto/job.yaml dataset=kto dataset_dir=kto-data output_dir=good
exit_is 2
err_has "the training data: all 2 answers are judged good; stage kto expects some of both: see the column kto_tag in dataset_info.json"
