# Adapters: trained, saved as peft does, resumed, merged; refusals.
. "$(dirname "$0")/lib.sh"
. "$ROOT/tests/cli/train_lib.sh"
. "$ROOT/tests/cli/model_lib.sh"

make_job base <<END
max_steps: 8
END
sed -i 's/^max_steps: 20$//' base/job.yaml
"$HYPER" train base/job.yaml >/dev/null 2>&1 || exit 1
# lora DIR [KEY: VALUE lines]: DIR/job.yaml trains an adapter of that model into DIR/out.
lora() {
  mkdir -p "$1"
  sed "/^train_from_scratch/d; s|base/model|base/out|; s|base/out\$|base/out|; s/finetuning_type: full/finetuning_type: lora/
       s|^output_dir: .*|output_dir: $1/out|; s/^max_steps: 8/max_steps: 10/" base/job.yaml > "$1/job.yaml"
  echo "lora_rank: 4" >> "$1/job.yaml"
  cat >> "$1/job.yaml"
}
adapter_of() { cat "$1/adapter_model.safetensors"; }

it "trains an adapter of all linear layers, and writes peft's files"
lora a </dev/null
run train a/job.yaml
exit_is 0
err_has "adapter      LoRA of rank 4 for 14 linear layers"
grep -q '^library_name: peft$' a/out/README.md || fail "the model card does not name peft"
[ -e a/out/model.safetensors ] && fail "the frozen weights were written"
[ -e a/out/checkpoint-5/model.safetensors ] && fail "a checkpoint has the frozen weights"
json a/out/adapter_config.json peft_type > have; grep -q LORA have || fail "adapter_config.json has no peft_type"
[ "$(json a/out/adapter_config.json r)" = 4 ] || fail "r is not 4"
[ "$(json a/out/adapter_config.json lora_alpha)" = 8 ] || fail "lora_alpha is not twice the rank"
[ "$(tensors a/out/adapter_model.safetensors | wc -l)" = 28 ] || fail "expected A and B of 14 layers"
tensors a/out/adapter_model.safetensors | grep -q \
  '^base_model.model.model.layers.1.mlp.down_proj.lora_A.weight F32 \[4, 48\]$' || fail "no such A"
tensors a/out/adapter_model.safetensors | grep -q \
  '^base_model.model.model.layers.1.self_attn.k_proj.lora_B.weight F32 \[16, 4\]$' || fail "no such B"
[ "$(tensors a/out/checkpoint-10/optimizer.safetensors | wc -l)" = 56 ] || fail "optimizer state of more than the adapter"

it "continues from its checkpoint with the same bits"
lora b </dev/null
run train b/job.yaml max_steps=10 resume_from_checkpoint=a/out/checkpoint-5
exit_is 0
same_file a/out/adapter_model.safetensors b/out/adapter_model.safetensors
same_file a/out/checkpoint-10/optimizer.safetensors b/out/checkpoint-10/optimizer.safetensors

it "refuses to continue with another rank, and says so"
run train a/job.yaml lora_rank=2 max_steps=12
exit_is 2
err_has "lora_rank 4 -> 2"

it "a resume with an adapter of other tensors is refused"
for other in "lora_rank=2" "finetuning_type=full" "use_dora=true"; do
  run train a/job.yaml output_dir=a/out resume_from_checkpoint=true max_steps=12 $other
  exit_is 2
  err_has "the run would train other weights than those in the checkpoint: "
  err_has "${other%=*} "
  err_has "or begin anew with overwrite_output_dir: true"
  err_lacks resume_override
done

it "trains on the adapter of adapter_name_or_path"
lora c <<END
adapter_name_or_path: a/out
END
run train c/job.yaml
exit_is 0
cmp -s a/out/adapter_model.safetensors c/out/adapter_model.safetensors && fail "nothing was trained"
[ "$(json c/out/adapter_config.json lora_alpha)" = 8 ] || fail "lora_alpha is not the adapter's"
cp -r base/out moved
run train c/job.yaml model_name_or_path=moved output_dir=c/moved max_steps=1
exit_is 0
json_is c/moved/adapter_config.json base_model_name_or_path moved

it "merges all but the last of several adapters, and all with create_new_adapter"
lora d <<END
adapter_name_or_path: a/out,c/out
max_steps: 1
END
sed -i '/^max_steps: 10$/d' d/job.yaml
run train d/job.yaml
exit_is 0
run train d/job.yaml output_dir=d/new create_new_adapter=true lora_rank=2
exit_is 0
[ "$(json d/new/adapter_config.json r)" = 2 ] || fail "the new adapter has another rank"
for of in a/out,d/new:2 d/new,a/out:4; do
  run train d/job.yaml output_dir=d/last overwrite_output_dir=true adapter_name_or_path="${of%:*}"
  exit_is 0
  [ "$(json d/last/adapter_config.json r)" = "${of#*:}" ] || fail "of ${of%:*} it is not the last that is trained on"
done

it "with dropout it gives the same bits again, and other ones than without"
lora e <<END
lora_dropout: 0.3
END
run train e/job.yaml
exit_is 0
run train e/job.yaml output_dir=e/again
same_file e/out/adapter_model.safetensors e/again/adapter_model.safetensors
cmp -s a/out/adapter_model.safetensors e/out/adapter_model.safetensors && fail "dropout changed nothing"

it "accumulates micro-batches, and keeps to a memory limit, with the same bits"
lora f <<END
gradient_accumulation_steps: 2
END
run train f/job.yaml
exit_is 0
run train f/job.yaml output_dir=f/limited memory_limit=90%
exit_is 0
same_file f/out/adapter_model.safetensors f/limited/adapter_model.safetensors

it "with bf16 keeps frozen weights in bf16 and the adapter in f32"
lora g <<END
bf16: true
END
run train g/job.yaml
exit_is 0
tensors g/out/adapter_model.safetensors | grep -qv ' F32 ' && fail "the adapter is not f32"

it "plans gradients and optimizer state of the adapter alone"
run explain a/job.yaml memory --json gradient_accumulation_steps=2
exit_is 0
cp out lora.json
run explain base/job.yaml memory --json gradient_accumulation_steps=2
exit_is 0
numbers=$(tensors a/out/adapter_model.safetensors | sed 's/.*\[\(.*\), \(.*\)\]/\1 \2/' | awk '{ n += $1 * $2 } END { print 4 * n }')
[ "$(json lora.json model_gradient_bytes)" = "$numbers" ] || fail "gradients of more than the adapter's $numbers bytes"
[ "$(json lora.json model_optimizer_bytes)" = $((2 * numbers)) ] || fail "optimizer state of more than the adapter"
[ "$(json out model_optimizer_bytes)" -gt $((8 * numbers)) ] || fail "a full run is expected to have more"

it "merges an adapter in every command that runs a model"
TOKENS=3,1,4,1,5,9,2,6
run logits --model base/out --tokens $TOKENS --out plain.st
exit_is 0
run logits --model base/out --adapter a/out --tokens $TOKENS --out merged.st
exit_is 0
cmp -s plain.st merged.st && fail "the adapter changed nothing"
run logits --model base/out --adapter a/out,c/out --tokens $TOKENS --out both.st
exit_is 0
cmp -s both.st merged.st && fail "the second adapter changed nothing"
run eval --model base/out --adapter a/out --tokens $TOKENS --json
exit_is 0
run generate --model base/out --adapter a/out --tokens $TOKENS --max-new-tokens 4 --json
exit_is 0
run grads --model base/out --adapter a/out --tokens $TOKENS --out grads.st
exit_is 0
[ "$(tensors grads.st | wc -l)" = 29 ] || fail "expected the loss and gradients of 28 tensors"
tensors grads.st | grep -q '^grad.model.layers.0.mlp.up_proj.lora_B.weight F32' || fail "no gradient of B"
run logits --model base/out --adapter a/out --devices 2 --strategy tp=2 --tokens $TOKENS --out two.st
exit_is 0

it "says that an adapter is no model"
run logits --model a/out --tokens $TOKENS --out x.st
exit_is 2
err_has "a/out: is an adapter, not a model"

it "exports the merged model as a folder, with LlamaFactory's keys"
write merge.yaml <<END
model_name_or_path: base/out
adapter_name_or_path: a/out
template: default
finetuning_type: lora
export_dir: merged
export_size: 2
export_device: cpu
export_legacy_format: false
END
run export merge.yaml
exit_is 0
run logits --model merged --tokens $TOKENS --out exported.st
exit_is 0
same_file merged.st exported.st
[ -s merged/tokenizer.json ] || fail "no tokenizer"
tensors base/out/model.safetensors > names
tensors_are merged/model.safetensors < names
run export merge.yaml infer_dtype=bfloat16 export_dir=half
exit_is 0
[ "$(json half/config.json dtype)" = bfloat16 ] || fail "config.json has another dtype"
tensors half/model.safetensors | grep -qv ' BF16 ' && fail "not all tensors are bf16"
run export merge.yaml export_dir=base/out
exit_is 2
err_has "is the folder of model_name_or_path"
run export merge.yaml export_dir=unfit template=llama3
exit_is 2
err_has "template llama3 ends texts with <|eot_id|>, which is no token of the tokenizer"
[ ! -e unfit ] || fail "a refused export left a folder"
for type in full freeze; do # LlamaFactory: "Adapter is only valid for the LoRA method."
  run export merge.yaml finetuning_type=$type export_dir=unfit
  exit_is 2
  err_has "adapter_name_or_path: it belongs to finetuning_type lora"
  [ ! -e unfit ] || fail "a refused export left a folder"
done
run export merge.yaml finetuning_type=oft export_dir=unfit
exit_is 2
err_has "finetuning_type oft is not built"
run export merge.yaml export_quantization_bit=4
exit_is 2
err_has "quantized exports are not built"
sed -i '/^export_dir/d' merge.yaml
run export merge.yaml
exit_is 2
err_has "export_dir is missing"

it "trains modules of additional_target whole, an embedding apart from the head that it is tied to"
lora h <<END
additional_target: embed_tokens,norm
END
run train h/job.yaml
exit_is 0
tensors h/out/adapter_model.safetensors | grep -q '^base_model.model.model.embed_tokens.weight F32' || fail "no embedding"
tensors h/out/adapter_model.safetensors | grep -q '^base_model.model.model.norm.weight F32' || fail "no norm"
tensors h/out/adapter_model.safetensors | grep -q '^base_model.model.model.layers.1.input_layernorm.weight' || fail "norm is the end of its name"
run train h/job.yaml output_dir=h/again resume_from_checkpoint=h/out/checkpoint-5
exit_is 0
same_file h/out/adapter_model.safetensors h/again/adapter_model.safetensors
run train h/job.yaml output_dir=h/on adapter_name_or_path=h/out
exit_is 0
run train h/job.yaml model_name_or_path=half output_dir=h/half max_steps=1
exit_is 0
tensors h/half/adapter_model.safetensors | grep -v " F32 " > narrow
[ ! -s narrow ] || fail "tensors of an adapter that are not F32: $(cat narrow)"
run train h/job.yaml output_dir=h/trained val_size=8 do_eval=true
exit_is 0
run train h/job.yaml output_dir=h/read val_size=8 do_eval=true do_train=false adapter_name_or_path=h/trained
exit_is 0
loss_of() { sed -n 's/.*"eval_loss": \([0-9.]*\),*/\1/p' "h/$1/all_results.json"; }
awk -v a="$(loss_of trained)" -v b="$(loss_of read)" 'BEGIN { d = a - b; exit !(a > 0 && d < 1e-5 && d > -1e-5) }' ||
  fail "a loss of $(loss_of trained) when trained, of $(loss_of read) by its adapter"
write whole.yaml <<END
model_name_or_path: base/out
adapter_name_or_path: h/out
export_dir: whole
END
run export whole.yaml
exit_is 0
[ "$(json whole/config.json tie_word_embeddings)" = false ] || fail "the head is still tied"
tensors whole/model.safetensors | grep -q '^lm_head.weight' || fail "no head"
run logits --model base/out --adapter h/out --tokens $TOKENS --out merged.st
run logits --model whole --tokens $TOKENS --out exported.st
exit_is 0
same_file merged.st exported.st
run train h/job.yaml output_dir=x additional_target=wte
exit_is 2
err_has "additional_target \"wte\" matches no module of base/out; outside of its layers it has: model.embed_tokens, model.norm"
run train h/job.yaml output_dir=x additional_target=q_proj
exit_is 2
err_has "which lora_target names too"

it "with loraplus_lr_ratio B learns at another rate; with use_rslora the scale is another"
lora i <<END
loraplus_lr_ratio: 8
END
run train i/job.yaml max_steps=1 warmup_ratio=0
exit_is 0
run train i/job.yaml max_steps=1 warmup_ratio=0 loraplus_lr_ratio=1 output_dir=i/slow
exit_is 0
cmp -s i/out/adapter_model.safetensors i/slow/adapter_model.safetensors && fail "the same adapter"
run train a/job.yaml output_dir=i/rs use_rslora=true
exit_is 0
[ "$(json i/rs/adapter_config.json use_rslora)" = true ] || fail "adapter_config.json says nothing of it"
cmp -s a/out/adapter_model.safetensors i/rs/adapter_model.safetensors && fail "the same adapter"
run train a/job.yaml output_dir=x finetuning_type=full loraplus_lr_ratio=8
exit_is 2
err_has "belongs to finetuning_type lora"

it "with use_dora trains sizes of rows, merges and exports them"
lora j <<END
use_dora: true
END
run train j/job.yaml
exit_is 0
tensors j/out/adapter_model.safetensors | grep -q \
  '^base_model.model.model.layers.1.mlp.down_proj.lora_magnitude_vector F32 \[32\]$' || fail "no sizes"
run train j/job.yaml output_dir=j/again resume_from_checkpoint=j/out/checkpoint-5
exit_is 0
same_file j/out/adapter_model.safetensors j/again/adapter_model.safetensors
run logits --model base/out --adapter j/out --tokens $TOKENS --out merged.st
run export whole.yaml adapter_name_or_path=j/out export_dir=sized
exit_is 0
run logits --model sized --tokens $TOKENS --out exported.st
same_file merged.st exported.st
cmp -s plain.st merged.st && fail "the adapter changed nothing"
run train j/job.yaml output_dir=j/start max_steps=1 learning_rate=0
run logits --model base/out --adapter j/start --tokens $TOKENS --out start.st
for i in 0 100 2000; do
  awk -v a="$(st_float plain.st $i)" -v b="$(st_float start.st $i)" 'BEGIN { d = a - b; exit !(d < 1e-5 && d > -1e-5) }' ||
    fail "it does not start as the model"
done

it "with use_dora dropout is also before what the sizes add"
run train base/job.yaml output_dir=stranger seed=1 max_steps=1
for rate in 0.0 0.5; do # B is 0, and the sizes are those of another model
  sed -i "s/\"lora_dropout\": [0-9.]*/\"lora_dropout\": $rate/" j/start/adapter_config.json
  run train j/job.yaml model_name_or_path=stranger adapter_name_or_path=j/start output_dir=j/$rate max_steps=1 learning_rate=0
  exit_is 0
  sed -n 's/.*"loss": \([0-9.]*\).*/\1/p' j/$rate/trainer_log.jsonl > loss.$rate
done
[ -s loss.0.0 ] && cmp -s loss.0.0 loss.0.5 && fail "a loss of $(cat loss.0.0) with dropout and without"

it "refuses what does not fit, by key"
run train a/job.yaml output_dir=x lora_target=q_proj,w_proj
exit_is 2
err_has "lora_target \"w_proj\" matches no linear layer"
err_has "it has: q_proj, k_proj, v_proj, o_proj, gate_proj, up_proj, down_proj"
run train a/job.yaml output_dir=x lora_rank=17
exit_is 2
err_has "lora_rank 17 is above the dims of \"model.layers.0.self_attn.k_proj\""
run train a/job.yaml output_dir=x finetuning_type=full adapter_name_or_path=a/out
exit_is 2
err_has "belongs to finetuning_type lora"
run train a/job.yaml output_dir=x adapter_name_or_path=nowhere
exit_is 2
err_has "nowhere/adapter_config.json: there is no such file; expected the folder of an adapter"
[ ! -e x ] || fail "a refused run left a folder"
mkdir other && cp a/out/adapter_config.json other/
sed 's/layers.1.mlp/layers.9.mlp/g' a/out/adapter_model.safetensors > other/adapter_model.safetensors
run train a/job.yaml output_dir=x adapter_name_or_path=other
exit_is 2
err_has "other/adapter_model.safetensors: tensor \"base_model.model.model.layers.9.mlp"
err_has "expected an adapter of this model; this one is for base/out"
cp a/out/adapter_model.safetensors other/
sed -i 's|"base_model_name_or_path": "[^"]*"|"base_model_name_or_path": "hub/wide"|' other/adapter_config.json
make_job wide </dev/null
sed -i 's/"intermediate_size": 48/"intermediate_size": 64/' wide/model/config.json
run train wide/job.yaml max_steps=1
run generate --model wide/out --adapter other --prompt a
exit_is 2
err_has 'down_proj.lora_A.weight" is [4,48], the model of wide/out makes it [rank,64]; expected an adapter of this model; this one is for hub/wide'
run train a/job.yaml output_dir=x lora_dropout=1
exit_is 2
err_has "lora_dropout: 1; expected less than 1"
cp merge.yaml into.yaml && printf 'export_dir: a/out\n' >> into.yaml
run export into.yaml
exit_is 2
err_has "export_dir: is the folder of an adapter; write another one"
