# Adapters on several devices: the losses of one device, checkpoints that go on elsewhere, memory.
. "$(dirname "$0")/lib.sh"
. "$ROOT/tests/cli/train_lib.sh"
. "$ROOT/tests/cli/model_lib.sh"
. "$ROOT/tests/cli/process_lib.sh"

make_job base <<END
END
sed -i 's/^max_steps: 20$/max_steps: 4/' base/job.yaml
"$HYPER" train base/job.yaml >/dev/null 2>&1 || exit 1
sed "/^train_from_scratch/d; s|base/model|base/out|; s/finetuning_type: full/finetuning_type: lora/
     s|^output_dir: .*|output_dir: one|; s/^max_steps: .*/max_steps: 6/; s/^per_device.*/global_batch_size: 4/" \
  base/job.yaml > job.yaml
cat >> job.yaml <<END
lora_rank: 4
lora_dropout: 0.1
END
"$HYPER" train job.yaml >/dev/null 2>&1 || exit 1

for strategy in dp=2,zero=1 tp=2,sp cp=2 tp_y=2 dp=2,tp=2,zero=3; do
  it "has the losses of one device with $strategy"
  run train job.yaml output_dir=many strategy=$strategy overwrite_output_dir=true
  exit_is 0
  close_losses one/trainer_log.jsonl many/trainer_log.jsonl 1e-5
  tensors one/adapter_model.safetensors > names
  tensors_are many/adapter_model.safetensors < names
done

run train job.yaml output_dir=sizes use_dora=true
for strategy in dp=2,tp=2,zero=3; do
  it "has the losses of one device with use_dora and $strategy"
  run train job.yaml output_dir=many strategy=$strategy overwrite_output_dir=true use_dora=true
  exit_is 0
  close_losses sizes/trainer_log.jsonl many/trainer_log.jsonl 1e-5
done

it "has the bits of one device in a pipeline"
run train job.yaml output_dir=staged strategy=pp=2
exit_is 0
same_file one/adapter_model.safetensors staged/adapter_model.safetensors

it "has the bits of one device with deterministic: layout"
run train job.yaml output_dir=fixed deterministic=layout
run train job.yaml output_dir=fixed2 deterministic=layout strategy=dp=2,tp=2,zero=3
exit_is 0
same_file fixed/adapter_model.safetensors fixed2/adapter_model.safetensors

it "goes on on other devices with the same bits"
run train job.yaml output_dir=other deterministic=layout strategy=tp=2 resume_from_checkpoint=fixed2/checkpoint-5
exit_is 0
same_file fixed/adapter_model.safetensors other/adapter_model.safetensors
ls fixed2/checkpoint-5 | grep -q '^adapter_model.parts.json$' || fail "no shards of the adapter"
ls fixed2/checkpoint-5 | grep -q '^model' && fail "a checkpoint has frozen weights"

it "refuses shards where whole files are read"
run logits --model base/out --adapter fixed2/checkpoint-5 --tokens 1,2 --out x.st
exit_is 2
err_has "fixed2/checkpoint-5: is a checkpoint of several devices, whose adapter is in shards"

it "shards A and B as the weight of their layer is"
run explain job.yaml layouts strategy=tp=2
exit_is 0
for line in 'q_proj.lora_A.weight *f32.4,32. *(None,None) ' 'q_proj.lora_B.weight *f32.32,4. *(tp,None) ' \
  'o_proj.lora_A.weight *f32.4,32. *(None,tp) ' 'o_proj.lora_B.weight *f32.32,4. *(None,None) '; do
  grep -q "param *model.layers.1.self_attn.$line" out || fail "no line $line"
done

it "shards frozen weights with zero=3"
run explain job.yaml memory --json
exit_is 0
whole=$(json out parameter_bytes)
run explain job.yaml memory --json strategy=dp=2,zero=3
exit_is 0
[ "$(json out parameter_bytes)" -lt $((whole * 6 / 10)) ] || fail "more than about half of $whole bytes a device"

mkdir -p experts && cp base/out/tokenizer* experts/
vocab=$(sed -n 's/.*"vocab_size": \([0-9]*\).*/\1/p' base/model/config.json)
for family in mixtral deepseek_v3; do
  case $family in
    mixtral) kv=2 more='"num_local_experts": 4, "num_experts_per_tok": 2, "head_dim": 6' ;;
    *) kv=4 more='"n_routed_experts": 6, "num_experts_per_tok": 2, "moe_intermediate_size": 10, "n_shared_experts": 2,
      "n_group": 3, "topk_group": 2, "first_k_dense_replace": 1, "q_lora_rank": 11, "kv_lora_rank": 9,
      "qk_nope_head_dim": 5, "qk_rope_head_dim": 4, "v_head_dim": 7, "num_nextn_predict_layers": 0' ;;
  esac
  cat > experts/config.json <<END
{"model_type": "$family", "vocab_size": $vocab, "hidden_size": 28, "intermediate_size": 22, "num_hidden_layers": 2,
 "num_attention_heads": 4, "num_key_value_heads": $kv, "max_position_embeddings": 64, "tie_word_embeddings": false,
 "initializer_range": 0.1, $more}
END
  rm -rf moe*
  run train job.yaml model_name_or_path=experts train_from_scratch=true output_dir=moe max_steps=3
  exit_is 0
  for strategy in tp=2,etp=2 dp=2,zero=3,ep=2; do
    it "trains an adapter of $family with $strategy"
    run train job.yaml model_name_or_path=experts train_from_scratch=true output_dir=moe2 max_steps=3 strategy=$strategy \
      overwrite_output_dir=true
    exit_is 0
    close_losses moe/trainer_log.jsonl moe2/trainer_log.jsonl 1e-5
  done
done

it "writes the adapter of several processes whole"
over_sockets
run launch -n 2 -- train job.yaml output_dir=ranks strategy=dp=2,zero=3
exit_is 0
run train job.yaml output_dir=inside strategy=dp=2,zero=3
same_file inside/adapter_model.safetensors ranks/adapter_model.safetensors
run launch -n 2 -- train job.yaml output_dir=ranks2 strategy=dp=2,zero=3 resume_from_checkpoint=inside/checkpoint-5
exit_is 0
same_file inside/adapter_model.safetensors ranks2/adapter_model.safetensors
