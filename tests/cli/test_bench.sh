# hyper bench: kinds, the form of their lines, refusals.
. "$(dirname "$0")/lib.sh"
compile_quickly

lines() { # runs hyper bench; its lines are in out.jsonl
  run bench "$@" --json
  exit_is 0
  cp out out.jsonl
}
# Every line of out.jsonl has these keys; what is a number is above 0.
keys_are() {
  n=$(wc -l <out)
  [ "$n" -ge 1 ] || fail "no line at all"
  i=0
  while [ $i -lt "$n" ]; do
    for k; do
      v=$(json out.jsonl $i.$k 2>&1) || fail "line $i has no $k"
      case $v in 0 | 0.0 | -*) fail "line $i: $k is $v" ;; esac
    done
    i=$((i + 1))
  done
}

it "gemm measures a shape in both dtypes, every engine next to the peak"
lines gemm --shape 40x30x20 --steps 1 --threads 1
[ "$(wc -l <out)" = 2 ] || { fail "not two lines"; t_show; }
keys_are bench machine isa threads dtype layout m k n peak_flops packed_flops of_peak packed_plan
json_is out.jsonl 0.packed_plan '1 x 1 regions, 1 of 1 threads'
json_is out.jsonl 0.m 40
json_is out.jsonl 0.k 30
json_is out.jsonl 0.n 20
json_is out.jsonl 0.dtype f32
json_is out.jsonl 1.dtype bf16

it "gemm takes the weights of a model, each shape once"
lines gemm --model "$ROOT/tests/golden/cases/qwen3-bias-tied" --batch 1 --seq 8 --steps 1 --dtype f32
json_is out.jsonl 0.layout nt
json_is out.jsonl 1.layout nn
json_is out.jsonl 2.layout tn
[ "$(sed 's/"peak_flops".*//' out | sort | uniq -d)" = "" ] || fail "a shape came twice"

it "op measures every op that it knows, or those that are named"
lines op --size 64KiB --steps 1 --dtype f32
keys_are bench op machine isa threads dtype bytes instructions read_bytes_per_s peak_flops bytes_per_s step_s limit_s of_limit
for op in softmax rms_norm layer_norm rope swiglu cross_entropy cross_entropy_grad attention attention_grad dropout adamw; do
  grep -q "\"op\": \"$op\"" out || fail "no line of $op"
done
lines op add --size 1MiB --steps 1 --dtype bf16
[ "$(wc -l <out)" = 1 ] || fail "more than one line"
json_is out.jsonl 0.bytes 3145728

LIMITS="bench model machine isa threads device dtype batch seq peak_flops read_bytes_per_s tokens_per_s step_s predicted_s limit_s of_limit bytes bytes_s rss_bytes"
CASES=$ROOT/tests/golden/cases

it "step is held against every product of it and the optimizer's bytes"
lines step --model "$CASES/qwen3-bias-tied" --batch 2 --seq 16 --steps 1
keys_are $LIMITS flops matmul_s loss peak_bytes compile_s widest_gap widest_gap_share
json_is out.jsonl 0.flops 1449984 # 6 x (5760 + 64 x 16) weights x 32 tokens, 6 products of attention by half
json_is out.jsonl 0.bytes $((28 * $(json out.jsonl 0.parameters)))
lines step --model "$CASES/qwen3-bias-tied" --adapter "$ROOT/tests/golden/adapters/qwen3-bias-tied-rslora" --batch 2 --seq 16 --steps 1
json_is out.jsonl 0.flops 1352192 # no gradients of the 6784 weights; 6 x 1752 of the adapter x 32 tokens
json_is out.jsonl 0.bytes $((28 * 1752))
lines step --model "$CASES/qwen3moe-fused" --batch 2 --seq 24 --steps 1
json_is out.jsonl 0.flops 2313216 # 32 of 48 tokens in each of 3 experts
for case in gpt2-base-names deepseekv3-yarn; do
  lines step --model "$CASES/$case" --batch 1 --seq 8 --steps 1 --dtype bf16
  keys_are $LIMITS flops matmul_s
done

it "step is held against the bytes and products of the optimizer"
# 7072 params: 12 bytes each for gradients and params, and 8 for each number of state; 5 steps of 3 products of Muon
for row in "sgd 84864 1449984" "lion 141440 1449984" "adafactor 92480 1449984" "muon 151936 3866624"; do
  set -- $row
  lines step --model "$CASES/qwen3-bias-tied" --batch 2 --seq 16 --steps 1 --optimizer "$1"
  json_is out.jsonl 0.bytes "$2"
  json_is out.jsonl 0.flops "$3"
done
run bench step --model "$CASES/qwen3-bias-tied" --optimizer adam
exit_is 2
err_has "--optimizer adam: expected adamw, sgd, adafactor, lion or muon"

it "a folder's own weights are used"
loss=$(json out.jsonl 0.loss)
lines step --model "$CASES/deepseekv3-yarn/config.json" --batch 1 --seq 8 --steps 1 --dtype bf16
[ "$(json out.jsonl 0.loss)" != "$loss" ] || fail "random weights have the loss of the folder's"

it "prefill is held against the products of a prompt and the head of its last token"
lines prefill --model "$CASES/qwen3-bias-tied" --seq 16 --steps 1
keys_are $LIMITS flops matmul_s
json_is out.jsonl 0.flops 208896
json_is out.jsonl 0.bytes 4096

it "decode is held against the bytes of weights and cache"
lines decode --model "$CASES/qwen3-bias-tied" --seq 16 --steps 1
keys_are $LIMITS
json_is out.jsonl 0.bytes 33280 # (6784 weights + 2 x 16 x 2 x 24 of the cache) x 4
lines decode --model "$CASES/qwen3-bias-tied" --seq 16 --steps 1 --dtype bf16
json_is out.jsonl 0.bytes 16640
run bench decode --model "$CASES/qwen3-bias-tied" --seq 16 --steps 1
out_has "B1 T1 S50 H3/3" # keys that are there, after 2 tokens to warm up and 32: the cache has room for more

it "copy measures host memory in both directions, and flash by 1 to 4 threads"
mkdir flash
lines copy --size 64KiB --steps 1 --flash flash
keys_are bench machine isa threads tier direction streams bytes copy_us bytes_per_s limit_bytes_per_s of_limit
[ "$(grep -c '"tier": "host"' out)" = 9 ] || { fail "not 3 sizes of host memory"; t_show; }
[ "$(grep -c '"tier": "flash' out)" = 8 ] || { fail "not 4 rows of flash in each direction"; t_show; }
grep -q '"direction": "both", "streams": 2' out || fail "not both directions at once"
[ -z "$(ls -A flash)" ] || fail "a file is left"

it "copy writes the tiers of a new cluster file, and of an old one nothing else"
run bench copy --size 4KiB --steps 1 --flash flash --write new.yaml
exit_is 0
out_has "written: new.yaml"
grep -q '^- {name: host, memory_gb: .*, read_gb_s: .*, write_gb_s: ' new.yaml || fail "no host"
grep -q '^- {name: flash, memory_gb: .*, read_gb_s: .*, write_gb_s: ' new.yaml || fail "no flash"
write old.yaml <<END
name: mine # a comment
devices_per_node: 4
device: {flops: 2e12, bandwidth_gb_s: 123}
costs: {launch_us: 7}
tiers: [{name: host, memory_gb: 77, read_gb_s: 1e9, shared_by: 4}]
links: [{bandwidth_gb_s: 1, latency_us: 1}]
emulate: true
END
run bench copy --size 4KiB --steps 1 --flash flash --write old.yaml --json
exit_is 0
out_lacks written
for line in 'name: mine' 'devices_per_node: 4' 'device: {flops: 2000000000000.0, bandwidth_gb_s: 123.0}' \
  '  launch_us: 7.0' 'emulate: true'; do
  grep -qxF -e "$line" old.yaml || fail "no line $line"
done
grep -q '^- {name: host, memory_gb: 77.0, read_gb_s: .*shared_by: 4}$' old.yaml || fail "host lost what was said of it"
grep -q 1000000000 old.yaml && fail "host kept its old bandwidth"

it "copy refuses what it cannot measure before it measures anything, and leaves nothing"
run bench copy --flash none/such --size 4KiB
refused "none/such/hyper-bench-" "No such file"
run bench copy --flash flash --size 100
refused "--size 100: expected 4096 to"
(ulimit -f 8 && run bench copy --flash flash --size 1MiB && refused "cannot reserve 1048576 bytes" "File too large" --flash --size)
echo 'tiers: 3' >bad.yaml
run bench copy --flash flash --size 4KiB --write bad.yaml
refused "bad.yaml:1:"
[ "$(cat bad.yaml)" = 'tiers: 3' ] || fail "the bad file was changed"
run bench copy --flash flash --size 4KiB --write none/such.yaml
refused none/such.yaml
[ -z "$(ls -A flash)" ] || fail "a file is left"
run bench gemm --shape 4x4x4 --flash flash
refused "--flash needs the kind copy"
run bench gemm --shape 4x4x4 --write x.yaml
refused "--write needs the kind cost or copy"

it "a file that cannot be written is refused before anything is measured"
for kind in "step --model $CASES/qwen3-bias-tied --trace" "cost --write"; do
  run bench $kind none/such.file
  refused 'none/such.file: cannot create: there is no folder "none"'
  out_is ""
  one_message
done

it "what cannot be measured is refused"
run bench
refused "say what kind"
run bench gem
refused '"gem" is no kind' "did you mean gemm?"
run bench op sofmax --size 64KiB
refused '"sofmax"' 'did you mean "softmax"?'
run bench step nothing
refused '"nothing" is not expected'
for shape in 4x4 4x4x 0x4x4 4x4x4x4 axbxc 4x4x99999999; do
  run bench gemm --shape $shape
  refused --shape MxKxN
done
run bench gemm --shape 4x4x4 --dtype f16
refused "--dtype f16"

it "people get tables whose columns have one unit, and stand below one another"
run bench op add softmax --size 64KiB --steps 1 --dtype f32
out_has "memory read"
[ "$(grep -c ' GB/s .* GFLOP/s .* GB/s .* ms .* ms .* %$' out)" = 2 ] || { fail "no units"; t_show; }
[ "$(grep -c memory.read out)" = 1 ] || { fail "the head is not there once"; t_show; }
[ "$(sed 1d out | awk 'NF { print length($0) }' | sort -u | wc -l)" = 1 ] || { fail "columns do not line up"; t_show; }

it "one limit is told of a step, and its parts add up"
run bench step --model "$CASES/qwen3-bias-tied" --batch 2 --seq 16 --steps 1
[ "$(grep -c '^  limit  ' out)" = 1 ] || { fail "not one limit"; t_show; }
out_lacks "at the limits of a device"
out_lacks "limits:"
out_has " GFLOP/s"
awk '/^  limit /{a=$2} /^  limit, products/{b=$3} /^  limit, bytes/{c=$3} END{d=a-b-c; exit !(d<0.0021 && d>-0.0021)}' out || { fail "the limit is not its parts"; t_show; }
