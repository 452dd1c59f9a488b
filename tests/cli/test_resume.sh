#!/bin/sh
# Checkpoints of several devices: saved by parts, continued on any mesh, used as a model.
. "$(dirname "$0")/lib.sh"
. "$ROOT/tests/cli/model_lib.sh"
. "$ROOT/tests/cli/train_lib.sh"

MESH=strategy=dp=2,tp=2,zero=1
make_job job <<END
gradient_accumulation_steps: 2
END
fix_batch job/job.yaml
run train job/job.yaml output_dir=one
exit_is 0
run train job/job.yaml output_dir=four $MESH
exit_is 0

# The run in $1 as it was at step 5, in the folder $2.
back_to_5() {
  rm -rf "$2" && cp -r "$1" "$2"
  rm -r "$2"/checkpoint-1[05] "$2"/checkpoint-20 "$2/model.safetensors" "$2"/*_results.json
}

it "several devices save parts, and no tensor twice"
is_file four/checkpoint-5/model-part-00003.safetensors
is_file four/checkpoint-5/optimizer.parts.json
no_file four/checkpoint-5/model.safetensors
bytes() { tensors "$1" | awk '{ n = $2 == "F32" ? 4 : 0; gsub(/[][,]/, " "); for (i = 3; i <= NF; i++) n *= $i; all += n } END { print all }'; }
parts=0
for f in four/checkpoint-20/model-part-*.safetensors; do parts=$((parts + $(bytes $f))); done
[ $parts = "$(bytes four/model.safetensors)" ] || fail "the parts have $parts bytes"

it "the same mesh goes on with the same bits"
back_to_5 four b
run train job/job.yaml output_dir=b $MESH
exit_is 0
err_has "continuing from b/checkpoint-5"
same_file four/model.safetensors b/model.safetensors
for f in four/checkpoint-20/*.safetensors four/checkpoint-20/*.parts.json; do same_file $f b/checkpoint-20/${f##*/}; done

it "any other mesh goes on, to the losses of one device"
for s in devices=1 strategy=tp=2 strategy=tp=3 strategy=dp=4,zero=3,tp=2 strategy=dp=3,zero=2; do
  back_to_5 four b
  run train job/job.yaml output_dir=b $s
  exit_is 0
  err_has "continuing from b/checkpoint-5"
  close_losses one/trainer_log.jsonl b/trainer_log.jsonl 1e-5
done

it "several devices go on from where one was"
back_to_5 one b
run train job/job.yaml output_dir=b strategy=dp=2,zero=3,tp=2
exit_is 0
err_has "continuing from b/checkpoint-5"
close_losses one/trainer_log.jsonl b/trainer_log.jsonl 1e-5

it "a checkpoint by parts is a model, on any number of devices"
for s in dp=1 tp=2; do
  run logits --model four/checkpoint-20 --tokens 1,2,3,4 --out parts.safetensors --strategy $s
  exit_is 0
  run logits --model four --tokens 1,2,3,4 --out whole.safetensors --strategy $s
  same_file parts.safetensors whole.safetensors
done

it "convert makes a folder of it that Transformers reads"
run convert four/checkpoint-20 whole
exit_is 0
for f in model.safetensors config.json tokenizer.json; do same_file four/$f whole/$f; done
run convert one/checkpoint-20 whole-of-one
exit_is 0
same_file one/model.safetensors whole-of-one/model.safetensors
run convert four/checkpoint-20 four/checkpoint-20
refused "onto itself"
run convert job nowhere
refused "no weights there"
no_file nowhere

it "inspect shows mesh, layouts and files"
run inspect four/checkpoint-20
exit_is 0
out_has "checkpoint step 20"
out_has "mesh (2,2)(dp,tp), 4 devices"
out_has "optimizer-part-00003.safetensors"
grep -q 'layers.0.self_attn.q_proj.weight  *F32  *\[32, 32\]  *(tp,None)$' out || { fail "no layout"; t_show; }

it "files that are damaged, missing or of another model are named"
back_to_5 four b
mv b/checkpoint-5/optimizer-part-00002.safetensors kept
run train job/job.yaml output_dir=b $MESH resume_from_checkpoint=b/checkpoint-5
refused "b/checkpoint-5/optimizer-part-00002.safetensors"
cp b/checkpoint-5/optimizer-part-00001.safetensors b/checkpoint-5/optimizer-part-00002.safetensors
run train job/job.yaml output_dir=b $MESH resume_from_checkpoint=true
refused "optimizer-part-00002.safetensors" "the manifest"
mv kept b/checkpoint-5/optimizer-part-00002.safetensors
sed -i 's/"num_hidden_layers": 2/"num_hidden_layers": 1/' job/model/config.json
for s in $MESH devices=1; do
  run train job/job.yaml output_dir=b $s
  refused "num_hidden_layers of the model's config.json 2 -> 1"
  run train job/job.yaml output_dir=b $s resume_override=model
  refused 'b/checkpoint-5/model.parts.json: tensor "model.layers.1.' "a checkpoint of another model"
done
back_to_5 one c
run train job/job.yaml output_dir=c resume_override=model
refused 'c/checkpoint-5: tensor "model.layers.1.' "a checkpoint of another model"
sed -i 's/"num_hidden_layers": 1/"num_hidden_layers": 2/' job/model/config.json

it "a disk that is full leaves the last checkpoint good"
(trap '' XFSZ && ulimit -f 60 && run train job/job.yaml output_dir=b $MESH max_failed_saves=1 && exit_is 2 &&
  err_has "b/.tmp-checkpoint-10" && err_has "write failed")
[ "$(ls -d b/checkpoint-* b/.tmp*  2>/dev/null)" = b/checkpoint-5 ] || fail "$(ls -A b)"
run train job/job.yaml output_dir=b $MESH
exit_is 0
same_file four/model.safetensors b/model.safetensors

it "experts come back each to its place"
make_job moe <<END
max_steps: 1
END
sed -i '/^max_steps: 20/d' moe/job.yaml
fix_batch moe/job.yaml
write moe/model/config.json <<END
{"model_type": "mixtral", "architectures": ["MixtralForCausalLM"], "hidden_size": 16, "intermediate_size": 8,
 "num_hidden_layers": 1, "num_attention_heads": 2, "num_key_value_heads": 1, "vocab_size": 512,
 "num_local_experts": 12, "num_experts_per_tok": 2, "max_position_embeddings": 64, "rms_norm_eps": 1e-5,
 "rope_theta": 10000.0, "tie_word_embeddings": false, "bos_token_id": 1, "eos_token_id": 2}
END
run train moe/job.yaml output_dir=first
exit_is 0
cp moe/model/tokenizer* first/
for s in devices=1 strategy=dp=2,zero=3; do
  run train moe/job.yaml model_name_or_path=first train_from_scratch=false learning_rate=0 output_dir=again \
    overwrite_output_dir=true $s
  exit_is 0
  same_file first/model.safetensors again/model.safetensors
  run convert again/checkpoint-1 converted
  exit_is 0
  same_file first/model.safetensors converted/model.safetensors
  rm -r converted
done
