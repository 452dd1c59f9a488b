#!/bin/sh
# `make demo`: makes the text, trains a small Llama on it, lets it write, and tells how to go on.
set -eu
hyper=${HYPER:-build/hyper}
mkdir -p build/demo
awk -v n=4000 -v seed=7 -f examples/demo/stories.awk > build/demo/stories.jsonl
awk -f examples/fine-tune/questions.awk build/demo/stories.jsonl > build/demo/questions.jsonl
"$hyper" train examples/demo/demo.yaml
echo
echo "What the model writes:"
"$hyper" generate --model build/demo/run --prompt "Once upon a time there was a child named" \
  --max-new-tokens 160 --temperature 0.7 --top-k 40 --seed 1
echo
echo "Report:    build/demo/run/report.html"
echo "Try also:  $hyper generate --model build/demo/run --prompt \"One day\" --temperature 0.9"
echo "Next:      teach it to answer (a minute), talk to it, and export it; docs/howto/fine-tune.md says more:"
echo "           $hyper train examples/fine-tune/sft.yaml"
echo "           $hyper chat --model build/demo/run --adapter build/demo/adapter --template default"
echo "           $hyper export examples/fine-tune/export.yaml"
