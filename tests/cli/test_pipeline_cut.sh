#!/bin/sh
# Layers of a pipeline are cut between its stages by predicted time, under each stage's memory limit.
. "$(dirname "$0")/lib.sh"
. "$ROOT/tests/cli/model_lib.sh"
. "$ROOT/tests/cli/train_lib.sh"
. "$ROOT/tests/cli/offload_lib.sh"

make_job job <<END
gradient_accumulation_steps: 6
END

# The cut of the last `explain pipeline --json`, which no other cut beats by 2 %.
is_best() {
  python3 - "$@" <<'END' || fail "another cut has a faster slowest stage"
import json, itertools, sys
x = json.load(open("out"))
stages, cost, layers = len(x["stages"]), {}, [0] * len(x["stages"])
for b in x["blocks"]:
    at = b["block"] if b["block"] else (0 if b["stage"] == 0 else -1)
    cost[at] = cost.get(at, 0) + b["forward_s"] + b["backward_s"]
    layers[b["stage"]] += b["block"] > 0
n = max(cost)
def slowest(cut):
    at, worst = 1, 0
    for s, k in enumerate(cut):
        own = sum(cost[l] for l in range(at, at + k))
        worst = max(worst, own + (cost[0] if s == 0 else 0) + (cost[-1] if s + 1 == stages else 0))
        at += k
    return worst
ends = (0, stages - 1)
cuts = [c for c in itertools.product(range(n + 1), repeat=stages)
        if sum(c) == n and all(k or s in ends for s, k in enumerate(c))]
assert sum(layers) == n and slowest(layers) <= 1.02 * min(map(slowest, cuts)), layers
print(",".join(map(str, layers)))
END
}
explain_cut() { # KEY=VALUE...
  run explain job/job.yaml pipeline --json "$@"
  exit_is 0
  err_has "layers on the stages, by predicted time"
}

it "dense layers, experts, embedding and head count by their time"
LAYERS=7
for family in deepseek_v3 qwen3_moe llama; do
  family_job $family
  for s in pp=2 pp=3 pp=4; do
    explain_cut strategy=$s
    is_best >/dev/null
  done
done

it "a large head takes layers off the last stage"
vocab=$(sed -n 's/.*"vocab_size": \([0-9]*\).*/\1/p' job/model/config.json)
sed -i 's/"intermediate_size": [0-9]*/"intermediate_size": 16/; s/"vocab_size": [0-9]*/"vocab_size": 4096/' job/model/config.json
explain_cut strategy=pp=3
is_best >cut
grep -q ',[01]$' cut || fail "the last stage has layers in spite of its head: $(cat cut)"

it "a stage that would be above its memory limit gets fewer layers"
LAYERS=6 family_job llama
sed -i 's/"vocab_size": [0-9]*/"vocab_size": 2048/' job/model/config.json
never="hyper_parallel.recompute=none hyper_parallel.offload=none strategy=pp=3"
explain_cut $never
is_best >cut
limit=$(python3 -c 'import json; print(int(0.98 * json.load(open("out"))["devices"][0]["planned_bytes"]))')
run explain job/job.yaml pipeline $never memory_limit=$limit "hyper_parallel.pipeline={cut: [$(cat cut)]}"
refused "memory limit $limit bytes is too small"
run explain job/job.yaml pipeline $never memory_limit=$limit
exit_is 0
err_lacks "pipeline: [$(sed 's/,/, /g' cut)] layers"

it "the cut changes no bit, and a run tells it"
sed -i "s/\"vocab_size\": [0-9]*/\"vocab_size\": $vocab/" job/model/config.json
run train job/job.yaml output_dir=one max_steps=2
exit_is 0
run train job/job.yaml output_dir=many max_steps=2 strategy=pp=4
exit_is 0
err_has "layers on the stages, by predicted time"
same_file one/model.safetensors many/model.safetensors
run train job/job.yaml output_dir=hand max_steps=2 "hyper_parallel.pipeline={cut: [1, 2, 2, 1]}"
err_lacks "by predicted time"

it "activations are recomputed on the stages alone that the memory limit asks it of"
even="strategy=pp=3 hyper_parallel.offload=none gradient_accumulation_steps=12 hyper_parallel.pipeline.cut=[2,2,2]"
sed -i 's/"max_position_embeddings": [0-9]*/"max_position_embeddings": 512/' job/model/config.json
run explain job/job.yaml pipeline --json cutoff_len=256 $even
python3 - >need <<'END'
import json
need = sorted((d["planned_bytes"], d["stages"][0]) for d in json.load(open("out"))["devices"])
print((need[-1][0] + need[-2][0]) // 2, need[-1][1])
END
read -r limit stage <need
run explain job/job.yaml pipeline cutoff_len=256 $even memory_limit=$limit
exit_is 0
err_has "memory_limit: activations are recomputed on stages $stage:"
run explain job/job.yaml pipeline cutoff_len=256 $even memory_limit=$limit hyper_parallel.recompute=none
refused "too small"
run train job/job.yaml output_dir=free cutoff_len=256 max_steps=2 $even
run train job/job.yaml output_dir=tight cutoff_len=256 max_steps=2 $even memory_limit=$limit
exit_is 0
same_file free/model.safetensors tight/model.safetensors

# Of the cut that was found, as by hand.
same_by_hand() { # KEY=VALUE...
  explain_cut "$@"
  is_best >cut
  mv out by_time
  run explain job/job.yaml pipeline --json "$@" "hyper_parallel.pipeline={cut: [$(cat cut)]}"
  exit_is 0
  same_file by_time out
}

it "the plan is that of the same cut by hand, where it moves layers and where it does not"
dgx="hyper_parallel.cluster=dgx-h100 strategy=pp=2"
LAYERS=6 family_job llama
same_by_hand $dgx
sed -i 's/"vocab_size": [0-9]*/"vocab_size": 8192/' job/model/config.json
same_by_hand $dgx
