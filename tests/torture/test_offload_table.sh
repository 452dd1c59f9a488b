#!/bin/sh
# The table of training under memory limits: families, micro-batches, meshes and limits, 20 steps.
. "$(dirname "$0")/../cli/lib.sh"
LAYERS=6
. "$ROOT/tests/cli/train_lib.sh"
. "$ROOT/tests/cli/offload_lib.sh"

for family in llama qwen3_moe deepseek_v3; do
  for micros in 1 4; do
    for mesh in dp=1 dp=2,tp=2; do
      it "$family, $micros micro-batches, $mesh: the bits of no limit under 90, 70, 50, 35, 25 % and the least"
      family_job $family
      rows=4
      [ $mesh = dp=1 ] || rows=2
      same_under "90 70 50 35 25 0" max_steps=20 gradient_accumulation_steps=$micros strategy=$mesh \
        per_device_train_batch_size=$rows
    done
  done
done
