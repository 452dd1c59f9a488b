#!/bin/sh
# Several devices as one: the same job by `strategy` gives the numbers of one device.  By more
# strategies: tests/torture/test_products.sh.
. "$(dirname "$0")/lib.sh"
. "$ROOT/tests/cli/model_lib.sh"
. "$ROOT/tests/cli/train_lib.sh"

make_job job <<END
gradient_accumulation_steps: 2
END
fix_batch job/job.yaml
run train job/job.yaml output_dir=one
exit_is 0

it "training by data parallelism gives one device's losses"
run train job/job.yaml output_dir=dp strategy=dp=2
exit_is 0
close_losses one/trainer_log.jsonl dp/trainer_log.jsonl 1e-5

it "tensor parallelism, with sharded optimizer state and params, too"
for s in dp=4,zero=3:2 dp=3,tp=3,zero=1 tp=2,sp,cp=2 cp=2:ulysses,tp_y=2,zero=3; do
  run train job/job.yaml output_dir=s "strategy=$s" overwrite_output_dir=true
  exit_is 0
  close_losses one/trainer_log.jsonl s/trainer_log.jsonl 1e-5
done

it "a mesh and layouts of one's own, by patterns of names, too"
cat >>job/job.yaml <<END
hyper_parallel:
  device_matrix: [2, 2]
  alias_name: [rows, cols]
  tensor_map:
    ids: [rows, None]
    labels: [rows, null]
    "*.q_proj.weight": [cols, None]
    "*.o_proj.weight": [None, cols]
    "*.gate_proj.weight": [[cols, rows], None]
    "*.embed_tokens.weight": [rows, cols]
END
run train job/job.yaml output_dir=own
exit_is 0
close_losses one/trainer_log.jsonl own/trainer_log.jsonl 1e-5
run explain job/job.yaml layouts
out_has "((cols,rows),None)"
run train job/job.yaml output_dir=uneven 'hyper_parallel.device_matrix=[3, 2]'
exit_is 0
close_losses one/trainer_log.jsonl uneven/trainer_log.jsonl 1e-5
run explain job/job.yaml layouts 'hyper_parallel.device_matrix=[3, 2]'
grep -q '^input  *ids  *i32\[4,32\]  *(rows:2,None)  *i32\[2,32\]  33.3 % padding' out || fail "no padded rows"
out_has "padding: "
cp job/job.yaml job/two.yaml
cat >>job/two.yaml <<END
    "*.weight": [rows, None]
END
run train job/two.yaml output_dir=wrong
refused 'two.yaml'
err_has 'contradicts (cols,None)'
err_has 'tensor_map.*.q_proj.weight'
no_file wrong
run train job/job.yaml output_dir=wrong 'hyper_parallel.tensor_map={"*.q_proj.weight": [rows]}'
refused 'tensor_map.*.q_proj.weight: 1 entries, and "model.layers.0.self_attn.q_proj.weight" has 2 dims'
sed -i '/^hyper_parallel:/,$d' job/job.yaml

it "halves of a micro-batch that take turns give the losses of the whole"
for s in tp=2 dp=2,zero=3; do
  run train job/job.yaml output_dir=s "strategy=$s" overwrite_output_dir=true hyper_parallel.interleave=2
  exit_is 0
  close_losses one/trainer_log.jsonl s/trainer_log.jsonl 1e-5
done
run explain job/job.yaml comm strategy=tp=2 hyper_parallel.interleave=2
exit_is 0
out_has "predicted: "
err_lacks "is ignored"
run explain job/job.yaml strategy=tp=2 hyper_parallel.interleave=3
err_has "interleave: 3 is ignored: it does not divide the sequences that a replica has of a micro-batch"
# Halves of one sequence a replica would be padded: twice the time.
run explain job/job.yaml strategy=dp=4 hyper_parallel.interleave=2 per_device_train_batch_size=1
err_has "interleave: 2 is ignored: it does not divide the sequences that a replica has"
run explain job/job.yaml strategy=dp=4 hyper_parallel.interleave=2 per_device_train_batch_size=1 hyper_parallel.deterministic=layout
err_lacks "is ignored"
run train job/job.yaml output_dir=told max_steps=1 strategy=tp=2 hyper_parallel.interleave=3 gradient_accumulation_steps=2
exit_is 0
[ "$(grep -c "is ignored" err)" = 1 ] || { fail "not said once"; t_show; }

it "zero=3 gathers params, forward and backward, and reduces gradients to their parts"
run explain job/job.yaml comm strategy=dp=2,zero=3
exit_is 0
# In each of 2 micro-batches sums of 20 params, and that of the tied head.
awk '/^all_|^reduce_/ { n[$1] += $3 }
     END { exit n["all_to_all"] || n["all_reduce"] != 3 || n["all_gather"] != 80 || n["reduce_scatter"] != 42 }' \
  out || fail "other collectives: $(cat out)"

it "communication that overlaps with computation changes no bit, whatever the cluster"
printf 'device: {flops: 1e10, bandwidth_gb_s: 10}\nlinks: [{bandwidth_gb_s: 1, latency_us: 100}]\nemulate: true\n' >pair.yaml
run train job/job.yaml output_dir=serial strategy=dp=2,zero=1 hyper_parallel.overlap=false
exit_is 0
run train job/job.yaml output_dir=overlapped strategy=dp=2,zero=1 hyper_parallel.cluster=pair.yaml
exit_is 0
same_file serial/model.safetensors overlapped/model.safetensors
echo "link: 5" >>pair.yaml
run train job/job.yaml output_dir=nowhere strategy=dp=2 hyper_parallel.cluster=pair.yaml
refused "pair.yaml:4:7" 'did you mean "links"'
run train job/job.yaml output_dir=nowhere strategy=dp=2 hyper_parallel.cluster=dgx-h10
refused 'did you mean "dgx-h100"'

it "experts on several devices, too"
make_job moe <<END
gradient_accumulation_steps: 2
END
fix_batch moe/job.yaml
sed -i 's/LlamaForCausalLM/Qwen3MoeForCausalLM/; s/"llama"/"qwen3_moe"/
        s/"hidden_size": 32,/"hidden_size": 32, "num_experts": 6, "num_experts_per_tok": 2, "moe_intermediate_size": 24,/' \
  moe/model/config.json
run train moe/job.yaml output_dir=moe1
exit_is 0
for s in dp=2,ep=2,tp=2,sp,zero=1 ep=3,etp=2,zero=3; do
  run train moe/job.yaml output_dir=s "strategy=$s" overwrite_output_dir=true
  exit_is 0
  close_losses moe1/trainer_log.jsonl s/trainer_log.jsonl 1e-5
done

it "a run on several devices gives the same bits twice"
run train job/job.yaml output_dir=a strategy=dp=2,tp=2,zero=1
exit_is 0
run train job/job.yaml output_dir=b strategy=dp=2,tp=2,zero=1
exit_is 0
same_file a/model.safetensors b/model.safetensors

it "a run goes on from its checkpoint on another mesh"
rm -r b/checkpoint-1[05] b/checkpoint-20 b/model.safetensors b/all_results.json
run train job/job.yaml output_dir=b strategy=tp=3
exit_is 0
err_has "checkpoint-5"
close_losses one/trainer_log.jsonl b/trainer_log.jsonl 1e-5

it "explain tells who holds what, and what goes between devices"
run explain job/job.yaml layouts strategy=dp=2,tp=2
exit_is 0
out_has "mesh (2,2)(dp,tp), 4 devices"
grep -q '^param  *model.layers.0.self_attn.q_proj.weight  *f32\[32,32\]  *(tp,None)  *f32\[16,32\]' out || fail "no q_proj"
run explain job/job.yaml layouts strategy=dp=3,tp=3
grep -q '^param  *model.layers.0.self_attn.q_proj.weight  *f32\[32,32\]  *(tp:16,None)  *f32\[16,32\]  33.3 % padding' out ||
  fail "heads are not cut whole"
grep -q '^padding: [0-9.]* % of these tensors, 4[0-9.]* % of the work' out || fail "no padded share"
run explain job/job.yaml layouts strategy=tp=2,sp
grep -q '^annotate layers.0.attn_out .*(None,tp,None) .*made as (None,None,None)+sum:tp$' out || fail "no attn_out"
run explain job/job.yaml comm strategy=dp=2
exit_is 0
out_has "all_reduce       dp"
run explain job/job.yaml comm
exit_is 0
out_has "devices exchange no data"

it "params and both moments of the optimizer are cut as zero says, and replicas are not"
lies() { # NAME ENTRIES PART
  awk -v name="$1" -v lies="$2" -v part="$3" '$1 == "param" && $2 == name { n++; bad += $4 != lies || $5 != part }
    END { exit n != 1 || bad }' out || fail "$1 is not $2 in parts $3"
}
while read -r s param part state state_part; do
  run explain job/job.yaml layouts "strategy=$s"
  exit_is 0
  q=model.layers.0.self_attn.q_proj.weight
  lies "$q" "$param" "f32[$part]"
  lies "m.$q" "$state" "f32[$state_part]"
  lies "v.$q" "$state" "f32[$state_part]"
done <<END
dp=2,tp=2 (tp,None) 16,32 (tp,None) 16,32
dp=2,tp=2,zero=1 (tp,None) 16,32 ((tp,dp),None) 8,32
dp=2,tp=2,zero=2 (tp,None) 16,32 ((tp,dp),None) 8,32
dp=2,tp=2,zero=3 ((tp,dp),None) 8,32 ((tp,dp),None) 8,32
dp=4,zero=3:2 (dp,None) 16,32 (dp,None) 16,32
END

it "a picture of who holds what"
run explain job/job.yaml layouts strategy=dp=2,tp=2 --svg layouts.svg
exit_is 0
out_has "compile time"
out_lacks "q_proj"
for part in 'mesh (2,2)(dp,tp), 4 devices' '>model.layers.*.self_attn.q_proj.weight x2<' ' (tp,None)<' '>a shard f32[16,32], on 2 devices<'; do
  grep -qF "$part" layouts.svg || fail "no $part"
done
run explain job/job.yaml comm --svg other.svg
refused "write layouts --svg other.svg"
no_file other.svg

it "text by several devices is that of one"
M=$CASES/llama-odd-heads
ids=$(ids llama-odd-heads sequences.1)
run generate --model "$M" --tokens "$ids" --max-new-tokens 8 --temperature 0 --json
exit_is 0
sed 's/, "tokens_per_s.*//' out >alone
for s in tp=5 tp=2 tp=3 dp=2 tp=2,dp=2 cp=2,tp=2,sp tp_y=2,tp=2; do
  run generate --model "$M" --tokens "$ids" --max-new-tokens 8 --temperature 0 --json --strategy $s
  exit_is 0
  sed 's/, "tokens_per_s.*//' out >together
  same_file alone together
done

it "what changes nothing is told"
told() { # WORDS OF THE COMMAND... : what stderr says
  run explain job/job.yaml "$@"
  exit_is 0
}
told strategy=sp,ep=2
err_has "strategy: sp has no effect"
err_has "strategy: ep and etp have no effect: model_type llama has no experts (dp is 2)"
for s in tp=2,zero=1 dp=2,zero=3:1; do
  told strategy=$s
  err_has "has no effect: it shards over dp and cp"
done
for s in tp=2,sp dp=2,zero=1 cp=2,zero=3; do
  told strategy=$s
  err_lacks "has no effect"
done
run explain moe/job.yaml strategy=ep=2
err_lacks "cut nothing"
told hyper_parallel.strategy=dp=2 strategy=tp=2
err_has "strategy: tp=2, in place of dp=2 (argument 1: hyper_parallel.strategy)"
told 'hyper_parallel.device_matrix=[2]' 'hyper_parallel.alias_name=[x]' \
  'hyper_parallel.tensor_map={"*.q_prj.weight": [x, None], "v.*.k_proj.weight": [x, None], layers.1.residual: [x, None, None], grad.final: [x, None, None], lengths: [x]}'
err_has "tensor_map.*.q_prj.weight: no param, input or value of the model has such a name"
[ "$(grep -c "has such a name" err)" = 1 ] || fail "a name that is there is told"

it "an order that a memory limit asks for is told"
many="strategy=dp=2,zero=1 global_batch_size=64 hyper_parallel.recompute=none"
told memory $many
out_lacks "order, to stay under the memory limit"
run explain job/job.yaml memory $many memory_limit=1KiB
need=$(sed -n 's/.*set memory_limit to \([0-9]*\) bytes.*/\1/p' err)
told memory $many memory_limit="$need"
out_has "order, to stay under the memory limit: "

it "a strategy that makes no sense is refused"
run logits --model "$M" --tokens 1 --out o --devices 0
refused '--devices: expected a whole number, 1 or more, found "0"'
run logits --model "$M" --tokens 1 --out o --strategy dp=0
refused '"dp=0" is no degree'
run logits --model "$M" --tokens 1 --out o --strategy pd=2
refused '"pd" is not known, did you mean "dp"'
run logits --model "$M" --tokens 1 --out o --strategy pp=99
refused 'pp=99; at most 64 are possible'
run logits --model "$M" --tokens 1 --out o --strategy dp=2 --devices 4
refused 'pp x dp x cp x tp x tp_y is 2 devices, of 4'
run train job/job.yaml output_dir=nowhere strategy=tp=2 devices=3
refused 'pp x dp x cp x tp x tp_y is 2 devices, of 3'
no_file nowhere
