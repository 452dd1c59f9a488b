#!/bin/sh
# hyper logits and grads: the forms of what they write, against the committed references; the same
# bits whatever the instruction set and the number of threads.
. "$(dirname "$0")/lib.sh"
compile_quickly
. "$ROOT/tests/cli/model_lib.sh"

it "logits writes one tensor [T, V] in f32"
run logits --model "$CASES/mistral-window" --tokens 5,6,7 --out one.safetensors
exit_is 0
out_is ""
tensors_are one.safetensors <<END
logits F32 [3, 64]
END

it "logits --batch writes a tensor for each list"
write batch.json <<END
[[5, 6, 7], [1], [2, 3]]
END
run logits --model "$CASES/mistral-window" --batch batch.json --out many.safetensors
exit_is 0
tensors_are many.safetensors <<END
logits.0 F32 [3, 64]
logits.1 F32 [1, 64]
logits.2 F32 [2, 64]
END

it "logits of a list do not depend on what else is in the batch"
for i in 0 100 191; do
  [ "$(st_float many.safetensors $i)" = "$(st_float one.safetensors $i)" ] || fail "logit $i differs"
done

it "grads writes the loss and every gradient under its name"
run grads --model "$CASES/llama-odd-heads" --tokens "$(ids llama-odd-heads sequences.0)" --out g.safetensors
exit_is 0
json_near out loss "$(json "$CASES/llama-odd-heads/tokens.json" loss_0)" 1e-6
json_is out tokens 23
tensors "$CASES/llama-odd-heads/model.safetensors" | sed 's/^/grad./; s/ F16 / F32 /' | sort >want.txt
tensors g.safetensors | grep -v '^loss ' | sort >have.txt
same_file want.txt have.txt
tensors g.safetensors | grep -qxF 'loss F32 [1]' || fail "no tensor loss [1]"

it "grads gives tied weights once"
tensors g.safetensors | grep -q lm_head && fail "a gradient of the tied head"
tensors g.safetensors | grep -q '^grad.model.embed_tokens.weight ' || fail "no gradient of the embedding"

it "logits beyond max_position_embeddings runs, with a warning"
run logits --model "$CASES/llama-dynamic" --tokens "$(ids llama-dynamic sequences.0)" --out long.safetensors
exit_is 0
err_has "max_position_embeddings 12"
is_file long.safetensors

it "generate --json gives the greedy tokens of every committed case"
for case in "$CASES"/*; do
  name=$(basename "$case")
  run generate --model "$case" --tokens "$(ids "$name" sequences.1)" --json --temperature 0 --max-new-tokens 16
  exit_is 0
  [ "$(json out tokens)" = "$(json "$case/tokens.json" greedy)" ] || fail "$name: $(json out tokens)"
  [ "$(json out prompt_tokens)" = "$(json "$case/tokens.json" sequences.1)" ] || fail "$name: prompt_tokens"
done

it "logits and gradients have the same bits on every instruction set"
for case in qwen3-bias-tied gpt2-base-names; do
  tokens=$(ids $case sequences.0)
  for isa in avx512bf16 avx512 avx2 plain; do
    run_cmd env HYPER_ISA=$isa "$HYPER" logits --model "$CASES/$case" --tokens "$tokens" --out l.$isa
    exit_is 0
    run_cmd env HYPER_ISA=$isa "$HYPER" grads --model "$CASES/$case" --tokens "$tokens" --out g.$isa
    exit_is 0
    same_file l.avx512bf16 l.$isa
    same_file g.avx512bf16 g.$isa
  done
done

it "logits and gradients have the same bits with one thread and with two"
tokens=$(ids qwen2-window-old sequences.0)
for n in 1 2; do
  run logits --model "$CASES/qwen2-window-old" --tokens "$tokens" --out l.$n --threads $n
  exit_is 0
  run grads --model "$CASES/qwen2-window-old" --tokens "$tokens" --out g.$n --threads $n
  exit_is 0
done
same_file l.1 l.2
same_file g.1 g.2

it "layer_types tells which layers of mistral look through the window"
model mistral-window
tokens=$(ids mistral-window sequences.0)
logits_of() { run logits --model m --tokens "$tokens" --out "$1"; exit_is 0; }
logits_of window
sed -i 's/"vocab_size": 64/"layer_types": ["sliding_attention", "sliding_attention"], &/' m/config.json
logits_of sliding
same_file window sliding
sed -i 's/"sliding_attention", "sliding/"full_attention", "full/' m/config.json
logits_of full
set_key sliding_window null
logits_of none
same_file full none
! cmp -s full window || fail "full attention gives the bits of the window"

it "--dtype bf16 changes the bits and little else"
run logits --model "$CASES/mistral-window" --tokens 5,6,7 --out b.safetensors --dtype bf16
exit_is 0
tensors_are b.safetensors <<END
logits F32 [3, 64]
END
! cmp -s b.safetensors one.safetensors || fail "bf16 gives the bits of f32"
at=$(st_argmax one.safetensors 0 64)
near "$(st_float b.safetensors "$at")" "$(st_float one.safetensors "$at")" 0.05 || fail "the largest logit in bf16 is far off"

it "options may be given as keys"
run logits --model "$CASES/mistral-window" --tokens 5,6,7 --out k.safetensors \
  threads=1 hyper_parallel.memory_limit=1GiB seed=1 dtype=f32
exit_is 0
same_file k.safetensors one.safetensors
