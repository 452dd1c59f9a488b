# hyper explain and the reports: the memory of a device, told alike everywhere; names of work.
. "$(dirname "$0")/lib.sh"
. "$ROOT/tests/cli/train_lib.sh"

make_job job </dev/null

# explained FILE WORD..: the memory of a step as JSON.
explained() {
  file=$1
  shift
  run explain job/job.yaml memory --json "$@"
  exit_is 0
  cp out "$file"
}
of() { json "$@"; }

it "memory as JSON is of one device, with the whole model next to it"
explained one.json
explained four.json strategy=dp=2,tp=2,zero=1 per_device_train_batch_size=2
json_is one.json devices 1
json_is four.json devices 4
json_is four.json model_parameter_bytes "$(of one.json model_parameter_bytes)"
json_is four.json model_optimizer_bytes "$(of one.json model_optimizer_bytes)"
json_is one.json model_optimizer_bytes $((2 * $(of one.json model_parameter_bytes)))
json_is one.json model_other_bytes $((32 * 8 * 4)) # tables of rope: cos and sin of 32 positions, 4 each
[ "$(of four.json parameter_bytes)" -lt "$(of one.json parameter_bytes)" ] || fail "params are not cut"
[ $((3 * $(of four.json optimizer_bytes))) -lt "$(of one.json optimizer_bytes)" ] || fail "zero=1 does not cut the state"
for f in one four; do
  json_is $f.json planned_bytes $(($(of $f.json parameter_bytes) + $(of $f.json gradient_bytes) + \
    $(of $f.json optimizer_bytes) + $(of $f.json other_bytes) + $(of $f.json work_bytes)))
  json_is $f.json tiers.device.planned_bytes "$(of $f.json planned_bytes)"
  json_is $f.json tiers.device.moved_bytes 0
  json_is $f.json resident_bytes "$(of $f.json planned_bytes)"
  json_is $f.json exposed_copy_s 0
  json_is $f.json fits true
  [ "$(of $f.json work_live_bytes)" -le "$(of $f.json work_bound_bytes)" ] || fail "more is live than fits"
done
json_is four.json device_memory_bytes $(($(of one.json device_memory_bytes) / 4)) # they share this machine's
json_near one.json step_s 1 1 # above 0, and no more than 2 s

it "sums of gradients are tensors of their own when a step has several micro-batches"
explained many.json gradient_accumulation_steps=3
json_is many.json micro_batches 3
json_is one.json gradient_bytes 0
vocab=$(sed -n 's/.*"vocab_size": \([0-9]*\).*/\1/p' job/model/config.json)
json_is many.json gradient_bytes $(($(of one.json optimizer_bytes) / 2 + vocab * 32 * 4)) # a tied head has a sum of its own
json_is many.json optimizer_bytes "$(of one.json optimizer_bytes)"

it "the least limit that is named runs, and one byte less is refused"
for more in "" "gradient_accumulation_steps=2" "strategy=dp=2 per_device_train_batch_size=2" \
  "val_size=0.3 eval_strategy=steps eval_steps=1 per_device_eval_batch_size=32"; do
  # shellcheck disable=SC2086
  explained least.json $more
  least=$(of least.json minimum_bytes)
  # shellcheck disable=SC2086
  run explain job/job.yaml memory memory_limit=$((least - 1)) $more
  exit_is 2
  err_has "set memory_limit to $least bytes or more"
  # shellcheck disable=SC2086
  run train job/job.yaml memory_limit=$((least - 1)) max_steps=1 save_steps=1000 $more
  refused "set memory_limit to $least bytes or more"
  no_file job/out
  # shellcheck disable=SC2086
  run train job/job.yaml memory_limit="$least" max_steps=1 save_steps=1000 $more
  exit_is 0
  [ "$(json job/out/op_times.json memory.planned_bytes)" -le "$least" ] || fail "more than the limit is planned"
  rm -rf job/out
done

it "the least limit of a large model is looked for within seconds, and what was not found is said"
mkdir -p llama_deep
write llama_deep/config.json <<END
{"model_type": "llama", "vocab_size": 128256, "hidden_size": 8192, "intermediate_size": 28672,
 "num_hidden_layers": 700, "num_attention_heads": 64, "num_key_value_heads": 8, "rms_norm_eps": 1e-5,
 "max_position_embeddings": 131072, "rope_theta": 500000.0, "tie_word_embeddings": false}
END
run_cmd timeout 150 "$HYPER" explain job/job.yaml memory --json model_name_or_path=llama_deep cutoff_len=4096 bf16=true \
  global_batch_size=16 per_device_train_batch_size=null hyper_parallel.cluster=dgx-h100 strategy=dp=16,tp=8,zero=3,sp
exit_is 0
json_is out minimum_bytes null
json_is out resident_bytes "$(json out planned_bytes)"
err_has "minimum_bytes is null"

it "under a limit, what would be taken without one is told too"
half=$((($(of one.json minimum_bytes) + $(of one.json resident_bytes)) / 2))
explained half.json memory_limit=$half
json_is half.json resident_bytes "$(of one.json resident_bytes)"
json_is half.json minimum_bytes "$(of one.json minimum_bytes)"
json_is half.json limit_bytes $half
[ "$(of half.json planned_bytes)" -le $half ] || fail "the plan is above the limit"

it "explain, the report and report.html tell the same memory"
run train job/job.yaml max_steps=2 save_steps=1000
exit_is 0
for key in parameter_bytes optimizer_bytes work_bytes planned_bytes work_live_bytes device_memory_bytes; do
  json_is job/out/op_times.json memory.$key "$(of one.json $key)"
done
run explain job/job.yaml
line=$(sed -n 's/^memory *a device: //p' out)
case $line in *parameters*optimizer*work*total*) ;; *) fail "no memory in the summary: $line" ;; esac
grep -q '^step time *predicted [1-9]' out || fail "no predicted time in the summary"
run report job/out
out_has "$line"
total=${line##*total }
grep -qF "$total" job/out/report.html || fail "report.html has no $total"

it "whether it fits what the cluster's devices have is told"
cluster() { # DEVICE_MEMORY
  write small.yaml <<END
name: small
device: {flops: 1e12, bandwidth_gb_s: 100$1}
links: [{name: net, bandwidth_gb_s: 5, latency_us: 10}]
END
}
cluster ", memory_gb: 1e-6"
run explain job/job.yaml hyper_parallel.cluster=small.yaml
out_has "DOES NOT FIT: a device has 1000 B"
explained small.json hyper_parallel.cluster=small.yaml
json_is small.json fits false
json_is small.json device_memory_bytes 1000
cluster ""
explained small.json hyper_parallel.cluster=small.yaml
json_is small.json fits null
run explain job/job.yaml hyper_parallel.cluster=dgx-h100
out_has "fits: a device has 74.5 GiB"

it "buffers and loops have names, with the layer that they are of"
run explain job/job.yaml memory
out_has "einsum forward model.layers.0.mlp.up_proj"
out_lacks " fused"
run explain job/job.yaml ops
out_has "loop add+rms_norm "
out_lacks " fused"

run explain job/job.yaml schedule
grep -q '^b[0-9]* = f32.* # einsum forward model.layers.1.mlp.up_proj' out || fail "a buffer in the schedule has no name"
grep -q '^compute: .* = fused .* # loop add+rms_norm model.layers.0.post_attention_layernorm' out || fail "a loop in the schedule has no name"

out_lacks "of 1 micro-batches" # neither here nor with evaluations besides the step
run explain job/job.yaml val_size=0.3 eval_strategy=steps eval_steps=1 per_device_eval_batch_size=32
out_lacks "of 1 micro-batches"

it "work is of one device, and says so where there are several"
run explain job/job.yaml
out_lacks "on each device"
run explain job/job.yaml strategy=dp=2
out_has "GFLOP on each device"

it "what fills work memory is told by layer, with units"
run explain job/job.yaml memory
for line in '^work memory: planned [0-9.]* [KM]iB, lower bound' '^  activations  *[0-9.]* [KM]iB$' '^  layers.1  *[0-9.]* [KM]iB$' \
  '^  b[0-9]*  *[0-9.]* [KM]iB  f32.* layers.0  *einsum forward model.layers.0.mlp.up_proj'; do
  grep -q "$line" out || { fail "no line as $line"; t_show; }
done
sum=0 i=0
while layer=$(json one.json live_by_layer.$i.live_bytes 2>/dev/null); do
  sum=$((sum + layer)) i=$((i + 1))
done
json_is one.json work_live_bytes $sum
grep -q '"largest": .*"layer": "layers.1", "class": "activations"' one.json || fail "no layer in the largest buffers"
largest=$(json one.json largest.0.name)
out_has "$largest"

it "comm, layouts and schedule as JSON have what their text has"
as_json() { # VIEW: text in out, JSON in VIEW.json
  run explain job/job.yaml "$1" --json strategy=dp=2,tp=2
  exit_is 0
  mv out "$1.json"
  run explain job/job.yaml "$1.json" strategy=dp=2,tp=2
  same_file out "$1.json"
  run explain job/job.yaml "$1" strategy=dp=2,tp=2
  exit_is 0
}
length() { # FILE PATH: how many a list has
  n=0
  while json "$1" "$2.$n" >/dev/null 2>&1; do n=$((n + 1)); done
  echo $n
}
as_json comm
json_is comm.json measured false
[ "$(length comm.json collectives)" = "$(grep -c '^[0-9][0-9]* *[ar][le][ld]' out)" ] || fail "not as many collectives as lines"
for k in 0 1; do
  line=$(printf '%-16s %-12s %6d ' "$(json comm.json kinds.$k.collective)" "$(json comm.json kinds.$k.over)" "$(json comm.json kinds.$k.count)")
  out_has "$line"
done
json_is comm.json received_bytes $(($(json comm.json kinds.0.received_bytes) + $(json comm.json kinds.1.received_bytes)))
json_is comm.json collectives.1.layer layers.0
as_json layouts
json_is layouts.json mesh.tp 2
[ "$(length layouts.json tensors)" = "$(grep -c '^input\|^param\|^annotate\|^output' out)" ] || fail "not as many tensors as lines"
n=0
while [ $n -lt 200 ] && [ "$(json layouts.json tensors.$n.name)" != model.layers.1.self_attn.o_proj.weight ]; do n=$((n + 1)); done
json_is layouts.json tensors.$n.layout "(None,tp)"
json_is layouts.json tensors.$n.shape.1 32
json_is layouts.json tensors.$n.shard_shape.1 16
as_json schedule
[ "$(length schedule.json buffers)" = "$(grep -c '^b[0-9]* = ' out)" ] || fail "not as many buffers as lines"
[ "$(length schedule.json instructions)" = "$(grep -c '^[a-z_]*: ' out)" ] || fail "not as many instructions as lines"
out_has "arena device $(json schedule.json arenas.device.planned_bytes) bound $(json schedule.json arenas.device.lower_bound_bytes)"
while read -r b op a; do # of a product: its result, its operands
  json_is schedule.json instructions.1.op "$op"
  json_is schedule.json instructions.1.outputs.0 "$b"
  json_is schedule.json instructions.1.inputs.0 "$a"
done <<END
$(sed -n 's/^[a-z_]*: //p' out | sed -n '2s/^b\([0-9]*\)[^=]*= \([a-z_]*\) b\([0-9]*\).*/\1 \2 \3/p')
END
run explain job/job.yaml comm.json
json_is out received_bytes 0
run explain job/job.yaml layouts.json
json_is out devices 1
json_is out tensors.0.name ids
run explain job/job.yaml memroy
refused '"memroy" is not expected; did you mean memory?'

it "the lifetime of a value is told by its name or its place in the model"
up=model.layers.1.mlp.up_proj
run explain job/job.yaml memory $up.weight gradient_accumulation_steps=2
exit_is 0
[ "$(head -n 1 out)" = $up.weight ] || { fail "not the chain of $up.weight"; t_show; }
[ "$(grep -c ' read  *[01]  einsum forward '$up'$' out)" = 2 ] || { fail "not one forward in each micro-batch"; t_show; }
grep -q "^ *[0-9]*  .*  update  .* loop adamw $up.weight$" out || { fail "no update"; t_show; }
out_has ", stays on the device"
out_lacks "memory  "
run explain job/job.yaml memory '*layers.1.mlp.up_*' --json
exit_is 0
n=$(length out values)
[ "$n" -ge 4 ] || fail "$n values at $up"
json_is out values.0.stays.0.at_start true # the weight is there
json_is out values.0.stays.0.touches.0.what read
run explain job/job.yaml memory $up.wieght
refused "no value of the step is called \"$up.wieght\" (did you mean \"$up.weight\"?)"
run explain job/job.yaml schedule $up.weight
refused "\"$up.weight\" is not expected"
run explain job/job.yaml memory $up.weight another
refused '"another" is not expected'

it "what moves is in the JSON of memory: nothing, where all fits"
json_is one.json moved_values 0
json_is one.json lower_bound_s null
json_is one.json copy_s 0
json_is one.json classes.0.class parameters
json_is one.json classes.0.tier device

it "memory over a step is a picture, too"
run explain job/job.yaml memory --svg memory.svg
exit_is 0
out_has "a device: "
out_lacks "least memory_limit"
for word in '>device: at most ' '>parameters<' '>planned<' '>predicted: ' '>compute<'; do
  grep -qF -e "$word" memory.svg || fail "no $word in memory.svg"
done
run explain job/job.yaml memory $up.weight --svg memory.svg
refused "--svg draws all of memory"
run explain job/job.yaml schedule --svg memory.svg
refused "--svg draws layouts, memory and pipeline"
run explain job/job.yaml memory --svg none/such.svg
refused 'none/such.svg: cannot create: there is no folder "none"'
out_is "" # before the plan
one_message
touch taken
run explain job/job.yaml --dump taken/such
refused taken
one_message

it "a column that says nothing is left out"
run explain job/job.yaml ops
out_lacks " gap "
out_lacks "of limit"
out_has "     limit "
run explain job/job.yaml time
out_has "       gap "
out_has "of limit"
