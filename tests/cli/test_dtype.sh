# The type of the weights that are written: by convert, and at the end of a training run.
. "$(dirname "$0")/lib.sh"
. "$ROOT/tests/cli/model_lib.sh"
. "$ROOT/tests/cli/train_lib.sh"

# All tensors of a folder are of this type, and its config.json says this word.
is_of_type() { # DIR TYPE WORD
  have=$(tensors "$1" | awk '{ print $2 }' | sort -u)
  [ "$have" = "$2" ] || fail "$1 holds $have, want $2"
  json_is "$1/config.json" dtype "$3"
}

make_job j </dev/null
run train j/job.yaml max_steps=2 save_strategy=no
exit_is 0

it "convert writes the type it is told, and config.json says so"
for words in "bf16 BF16 bfloat16" "f16 F16 float16" "f32 F32 float32" "bfloat16 BF16 bfloat16"; do
  set -- $words
  rm -rf c
  run convert j/out c --dtype "$1"
  exit_is 0
  is_of_type c "$2" "$3"
done
run convert j/out b --dtype=bf16
run convert b back --dtype f32
exit_is 0
is_of_type back F32 float32
run convert back again --dtype bf16
same_file b/model.safetensors again/model.safetensors
run convert b same
same_file b/model.safetensors same/model.safetensors
run convert j/out x --dtype f64
refused "--dtype f64: expected f32, bf16 or f16"
no_file x
run convert j/out x --dtype i32
refused "--dtype i32"
if need_data model/stories260K.bin; then
  run convert "$DATA/model/stories260K.bin" s --dtype bf16
  exit_is 0
  have=$(tensors s | awk '{ print $2 }' | sort -u)
  [ "$have" = BF16 ] || fail "stories are $have"
  json_is s/config.json torch_dtype bfloat16
fi

# A run from the model in b: base DIR [key=value ...]
base() {
  t_out=$1
  shift
  run train j/job.yaml model_name_or_path=b train_from_scratch=false max_steps=2 save_steps=1 output_dir="$t_out" "$@"
  exit_is 0
}

it "a run from a bf16 model writes bf16, and its checkpoints keep f32"
base r
err_has "model written as bf16, as the model that it started from"
is_of_type r BF16 bfloat16
is_of_type r/checkpoint-2 F32 float32
run convert r/checkpoint-2 rounded --dtype bf16
same_file rounded/model.safetensors r/model.safetensors

it "the type can be told"
base r32 export_dtype=f32
is_of_type r32 F32 float32
same_file r32/model.safetensors r/checkpoint-2/model.safetensors
base r16 export_dtype=float16
is_of_type r16 F16 float16
run train j/job.yaml export_dtype=int8
refused export_dtype "auto, f32, bf16"

it "each tensor keeps its own type"
run convert b mixed
python3 - 2>/dev/null <<END || skip "no python3"
import json, struct
f = open('mixed/model.safetensors', 'rb').read()
n = struct.unpack('<Q', f[:8])[0]
h = json.loads(f[8:8 + n])
data = f[8 + n:]
out, parts, at = {}, [], 0
for k in sorted((k for k in h if k != '__metadata__'), key=lambda k: (k != 'model.norm.weight', h[k]['data_offsets'][0])):
    a, b = h[k]['data_offsets']
    d = data[a:b]
    t = h[k]['dtype']
    if k == 'model.norm.weight':
        d = b''.join(b'\0\0' + d[i:i + 2] for i in range(0, len(d), 2))
        t = 'F32'
    out[k] = {'dtype': t, 'shape': h[k]['shape'], 'data_offsets': [at, at + len(d)]}
    parts.append(d)
    at += len(d)
j = json.dumps(out).encode()
j += b' ' * (-len(j) % 8)
open('mixed/model.safetensors', 'wb').write(struct.pack('<Q', len(j)) + j + b''.join(parts))
END
base m model_name_or_path=mixed
[ "$(tensors m | grep -c ' F32 ')" = 1 ] || fail "tensors of f32: $(tensors m | grep ' F32 ')"
tensors m | grep -q '^model.norm.weight F32' || fail "model.norm.weight is not F32"
json_is m/config.json dtype bfloat16

it "several devices write the same"
base d2 strategy=dp=2
same_file d2/config.json r/config.json
is_of_type d2 BF16 bfloat16
run convert d2/checkpoint-2 d2b --dtype bf16
same_file d2b/model.safetensors d2/model.safetensors

it "inspect shows bos and eos as config.json has them"
run inspect b
out_has "bos null, eos 0"
for value in "[0, 3]" null 7; do
  sed "s/\"eos_token_id\": [^,]*,*/\"eos_token_id\": $value,/" j/out/config.json >b/config.json
  sed -i 's/,\(\s*\)$/,\1/' b/config.json
  run inspect b
  out_has "eos $value"
done
sed '/"bos_token_id"/d' j/out/config.json >b/config.json
run inspect b
out_has "bos not given"
