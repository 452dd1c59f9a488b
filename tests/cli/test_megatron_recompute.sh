#!/bin/sh
# Megatron's keys of recomputation: the memory and the bits of the recompute that they mean.
. "$(dirname "$0")/lib.sh"
. "$ROOT/tests/cli/model_lib.sh"
. "$ROOT/tests/cli/train_lib.sh"
. "$ROOT/tests/cli/offload_lib.sh"

family_job llama
sed -i "s/^per_device_train_batch_size: .*/per_device_train_batch_size: 16/" job/job.yaml
run train job/job.yaml output_dir=kept hyper_parallel.recompute=none

full="recompute_granularity=full recompute_method"
some="recompute_granularity=selective recompute_modules"
bytes_of() {
  run explain job/job.yaml --json "$@"
  exit_is 0
  json out planned_bytes
}
bytes_with() { bytes_of "hyper_parallel.recompute=$1"; }

it "Megatron's keys take the memory of the recompute that they mean"
while read -r keys how; do
  have=$(bytes_of $(echo "$keys" | tr '|' ' ')) want=$(bytes_with "$how")
  [ "$have" = "$want" ] || fail "$keys takes $have, recompute=$how $want"
done <<END
$(echo $full | tr ' ' '|')=block|recompute_num_layers=1 1
$(echo $full | tr ' ' '|')=uniform|recompute_num_layers=2 full
recompute_granularity=selective [core_attn]
$(echo $some | tr ' ' '|')=mlp [mlp]
$(echo $some | tr ' ' '|')=layernorm,core_attn [input_layernorm,post_attention_layernorm,core_attn]
END
core=$(bytes_of recompute_granularity=selective)
none=$(bytes_with none)
[ "$core" -lt "$none" ] || fail "core_attn takes $core, none $none"

it "and give the bits of all activations kept"
for keys in "$full=block recompute_num_layers=1 strategy=pp=2" "recompute_granularity=selective" "$some=mlp,core_attn"; do
  run train job/job.yaml output_dir=some overwrite_output_dir=true $keys
  exit_is 0
  err_has "activations recomputed"
  same_file some/model.safetensors kept/model.safetensors
done

it "what the model does not have is refused by Megatron's names"
while read -r keys says; do
  run train job/job.yaml output_dir=refused $(echo "$keys" | tr '|' ' ')
  refused "$says"
done <<END
$(echo $full | tr ' ' '|')=block|recompute_num_layers=99 recompute_num_layers: 99 layers, but the model has
$(echo $full | tr ' ' '|')=uniform|recompute_num_layers=99 recompute_num_layers: 99 layers, but the model has
$(echo $some | tr ' ' '|')=core_attn,moe no module "moe"; they have core_attn, layernorm, mlp
$(echo $some | tr ' ' '|')=mla_up_proj no module "mla_up_proj"
$(echo $some | tr ' ' '|')=self_attn "self_attn" is not known; expected core_attn
END

it "modules of experts are those of layers with experts"
families() { # KEYS HOW: recompute_modules KEYS of this model, and recompute HOW
  have=$(bytes_of $some="$1") want=$(bytes_with "$2")
  [ "$have" = "$want" ] || fail "$1 takes $have, recompute=$2 $want"
}
family_job deepseek_v3
families mlp '["model.layers.0.mlp"]'
families moe '["model.layers.[1-9].mlp"]'
families shared_experts,mla_up_proj '[shared_experts,q_b_proj,kv_b_proj]'
run explain job/job.yaml --json $some=moe_act
exit_is 0
family_job qwen3_moe
families moe,core_attn '[mlp,core_attn]'
run train job/job.yaml output_dir=refused $some=mlp
refused 'no module "mlp"; they have core_attn, layernorm, moe, moe_act'
