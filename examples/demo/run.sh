#!/bin/sh
# `make demo`: makes the text, trains a small Llama on it, and lets it write.
set -eu
hyper=${HYPER:-build/hyper}
mkdir -p build/demo
awk -v n=4000 -v seed=7 -f examples/demo/stories.awk > build/demo/stories.jsonl
"$hyper" train examples/demo/demo.yaml
echo
echo "What the model writes:"
"$hyper" generate --model build/demo/run --prompt "Once upon a time there was a child named" \
  --max-new-tokens 160 --temperature 0.7 --top-k 40 --seed 1
echo
echo "Report:    build/demo/run/report.html"
echo "Try also:  $hyper generate --model build/demo/run --prompt \"One day\" --temperature 0.9"
echo "Next:      teach it to answer, and talk to it: docs/howto/fine-tune.md"
