# finetuning_type freeze: what is trained, and what stays bit for bit.
. "$(dirname "$0")/lib.sh"
. "$ROOT/tests/cli/train_lib.sh"
. "$ROOT/tests/cli/model_lib.sh"

make_job base </dev/null
sed -i 's/^max_steps: 20$/max_steps: 2/' base/job.yaml
"$HYPER" train base/job.yaml >/dev/null 2>&1 || exit 1
sed "/^train_from_scratch/d; s|base/model|base/out|; s/finetuning_type: full/finetuning_type: freeze/
     s|^output_dir: .*|output_dir: last|; s/^max_steps: .*/max_steps: 10/; s/^per_device.*/global_batch_size: 4/" \
  base/job.yaml > job.yaml
B_=base/out/model.safetensors

# Names of the tensors that differ between two files with the same tensors.
changed() {
  st_head=$(od -An -tu8 -N8 "$1" | tr -d ' ')
  dd if="$1" bs=1 skip=8 count="$st_head" 2>/dev/null | tr '{' '\n' |
    sed -n 's/.*"data_offsets":\[\([0-9]*\),\([0-9]*\)\].*/\1 \2/p' > offsets
  dd if="$1" bs=1 skip=8 count="$st_head" 2>/dev/null | grep -o '"[a-z][^"]*":{"dtype"' | sed 's/":{.*//; s/"//' > names
  paste names offsets | while read -r name from to; do
    cmp -s -i $((8 + st_head + from)) -n $((to - from)) "$1" "$2" || echo "$name"
  done | sort
}
trains() { # OUT, and a pattern of the names that are trained
  changed "$B_" "$1/model.safetensors" > have
  sort names | grep -E "$2" > want
  cmp -s have want || { fail "other tensors than expected were trained"; diff want have | sed 's/^/    /'; }
}

it "trains the last layers, and leaves all else as it was"
run train job.yaml freeze_trainable_layers=1
exit_is 0
err_has "the others are frozen"
grep -q '^- freeze$' last/README.md || fail "the model card does not say freeze"
trains last '\.layers\.1\.'
[ "$(tensors last/checkpoint-10/optimizer.safetensors | wc -l)" = $((2 * $(wc -l < have))) ] || fail "optimizer state of more than is trained"

it "with a negative number the first layers, of them some modules, and modules outside"
run train job.yaml output_dir=first freeze_trainable_layers=-1 freeze_trainable_modules=self_attn freeze_extra_modules=embed_tokens
exit_is 0
trains first '\.layers\.0\.self_attn|embed_tokens'

it "a module outside is a part of any name, as in LlamaFactory"
run train job.yaml output_dir=norm freeze_trainable_layers=1 freeze_trainable_modules=mlp freeze_extra_modules=norm
exit_is 0
trains norm '\.1\.mlp|norm'

it "continues with the same bits, and on other devices with deterministic: layout"
run train job.yaml output_dir=again freeze_trainable_layers=1 resume_from_checkpoint=last/checkpoint-5
exit_is 0
same_file last/model.safetensors again/model.safetensors
run train job.yaml output_dir=many freeze_trainable_layers=1 deterministic=layout strategy=dp=2,tp=2,zero=3
exit_is 0
run train job.yaml output_dir=one freeze_trainable_layers=1 deterministic=layout
same_file one/model.safetensors many/model.safetensors

it "plans gradients of what is trained alone"
run explain job.yaml memory --json freeze_trainable_layers=1 gradient_accumulation_steps=2 per_device_train_batch_size=2
exit_is 0
part=$(json out model_gradient_bytes)
run explain job.yaml memory --json finetuning_type=full gradient_accumulation_steps=2 per_device_train_batch_size=2
[ "$part" -lt $(($(json out model_gradient_bytes) / 2)) ] || fail "$part bytes of gradients"

it "refuses modules that there are not, and nothing to train"
run train job.yaml output_dir=x freeze_trainable_modules=attn
exit_is 2
err_has "freeze_trainable_modules: \"attn\" is no module of base/out; it has: input_layernorm, self_attn, post_attention_layernorm, mlp"
run train job.yaml output_dir=x freeze_extra_modules=embed
exit_is 2
err_has "freeze_extra_modules: \"embed\" is no module of base/out; it has: embed_tokens, norm"
run train job.yaml output_dir=x freeze_trainable_layers=0
exit_is 2
err_has "nothing is trained"
[ ! -e x ] || fail "a refused run left a folder"
