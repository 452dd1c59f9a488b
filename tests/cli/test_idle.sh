# Devices that have nothing to do, or padding, are told at the start, with what would use them.
. "$(dirname "$0")/lib.sh"
. "$ROOT/tests/cli/model_lib.sh"
. "$ROOT/tests/cli/train_lib.sh"

once() { # words of a line on stderr that is there once
  [ "$(grep -cF -e "$1" err)" = 1 ] || { fail "not once on stderr: $1"; t_show; }
}

model mistral-window # 4 heads, 2 of keys, mlp 20

it "replicas without a sequence"
run generate --model m --tokens 1,2 --max-new-tokens 1 --strategy dp=3
exit_is 0
once "strategy: 2 of 3 devices have no rows: 1 sequence at a time for dp=3; give 3 at a time, or share each by tp or cp"
run logits --model m --tokens 1,2 --out o --strategy dp=2,tp=2
once "strategy: 2 of 4 devices have no rows"
run eval --model m --tokens 1,2,3,4,5,6,7 --seq 2 --batch 3 --strategy dp=2
exit_is 0
once "3 sequences over dp=2 are padded to 4: 25 % of the rows are idle; a multiple of 2 is not padded"

it "heads and dims that a degree does not divide"
run logits --model m --tokens 1,2,3,4 --out o --strategy tp=3
exit_is 0
once "strategy: 4 heads over 3 devices (tp): 1 of 3 has none and 33 % of the work on them is padding; 2 devices would share them evenly"
once "strategy: 20 dims of the MLP over 3 devices (tp): 5 % of the work on them is padding; 2 devices"
run logits --model m --tokens 1,2,3,4 --out o --strategy tp=7
once "strategy: 4 heads over 7 devices (tp): 3 of 7 have none and 43 % of the work on them is padding; 4 devices"
run logits --model m --tokens 1,2,3,4 --out o --strategy cp=3:ulysses
once "4 heads over 3 devices (cp)"

it "devices without a token while decoding"
run generate --model m --tokens 1,2 --max-new-tokens 1 --strategy cp=2
once "1 of 2 devices of cp=2 has no tokens while there is 1 at a time, as in decoding"

it "nothing is said where all are busy"
for s in tp=2 cp=2 dp=1; do
  run logits --model m --tokens 1,2,3,4 --out o --strategy $s
  exit_is 0
  err_lacks "strategy:"
done
run eval --model m --tokens 1,2,3,4,5,6,7 --seq 2 --batch 2 --strategy dp=2
err_lacks "strategy:"

it "a training step, and explain before it"
make_job j </dev/null
run explain j/job.yaml strategy=dp=16 per_device_train_batch_size=~ global_batch_size=4
exit_is 0
once "warning: strategy: 12 of 16 data-parallel replicas have no rows: a micro-batch has 4 samples, so 75 % of the rows are idle; give it a multiple of 16"
once "rows"
run explain j/job.yaml strategy=dp=2 per_device_train_batch_size=~ global_batch_size=3
once "warning: strategy: micro-batches of 3 samples over 2 data-parallel replicas are padded to 4: 25 % of the rows are idle"
run explain j/job.yaml strategy=cp=5 cutoff_len=32
once "strategy: 32 tokens over 5 devices (cp): 9 % of the work on them is padding; 4 devices would share them evenly"
run explain j/job.yaml strategy=tp=3
exit_is 0
once "strategy: 4 heads over 3 devices (tp): 1 of 3 has none and 33 % of the work on them is padding"
sed 's/"num_attention_heads": 4/"num_attention_heads": 7/; s/"num_key_value_heads": 2/"num_key_value_heads": 7/' j/model/config.json > j/c
mv j/c j/model/config.json
run explain j/job.yaml strategy=tp=4
exit_is 0
once "7 heads of keys and values over 4 devices (tp): 12 % of the work on them is padding; 7 devices would share them evenly"
err_lacks "1 devices"
run explain j/job.yaml strategy=tp=30
once "ids of the vocabulary over 30 devices (tp)"
