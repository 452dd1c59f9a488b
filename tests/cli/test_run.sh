# hyper run: a compiled program read back from its text, with tensors from files.
. "$(dirname "$0")/lib.sh"
compile_quickly
. "$ROOT/tests/cli/model_lib.sh"

# st FILE HEADER: a safetensors file with that header, and the data on standard input.
st() {
  # shellcheck disable=SC2059
  {
    printf "\\$(printf %03o $((${#2} % 256)))\\$(printf %03o $((${#2} / 256)))\\0\\0\\0\\0\\0\\0"
    printf '%s' "$2"
    cat
  } > "$1"
}
i32() { for i; do printf '%b' "\\0$(printf %03o $((i & 255)))\\0$(printf %03o $((i >> 8 & 255)))"; printf '%b' "\\0$(printf %03o $((i >> 16 & 255)))\\0$(printf %03o $((i >> 24 & 255)))"; done; }
data_of() { tail -c +$((9 + $(od -An -tu8 -N8 "$1" | tr -d ' '))) "$1"; }

write copy.txt <<'END'
# y is x; w is kept
arena device 512 bound 512 at 0
b0 = i32[2,3] device+0 input "x"
b1 = i32[2,3] device+256 output "y"
b2 = i32[2,3] state "w"
b3 = i32[2,3] state "old"
compute: b3 = copy b2
compute: b2 = copy b0
compute: b1 = copy b0
END
i32 1 2 3 4 5 600 > six
st x.safetensors '{"x":{"dtype":"I32","shape":[2,3],"data_offsets":[0,24]}}' < six

it "a program runs with inputs from a file, and its outputs go to another"
run run copy.txt --in x.safetensors --out y.safetensors
exit_is 0
err_has '2 of 2 states of the program are in no file of --in and begin with zeros, "w" the first'
out_has "3 instructions, 2 states"
tensors_are y.safetensors <<'END'
y I32 [2, 3]
END
data_of y.safetensors > data
same_file data six

it "--states writes the states after the run, and a later run begins with them"
run run copy.txt --in x.safetensors --out one.safetensors --states --json
exit_is 0
json_is out times 1
json_is out states 2
json_is out instructions 3
json_is out work_bytes 512
run run copy.txt --in x.safetensors,one.safetensors --out two.safetensors --states
exit_is 0
err_lacks zeros
run run copy.txt --in x.safetensors --out both.safetensors --states --times 2
same_file two.safetensors both.safetensors

it "a training step of explain --dump computes the loss of grads, with the same bits on any threads"
model gpt2-base-names
for key in attn_pdrop embd_pdrop resid_pdrop; do
  ! grep -q "\"$key\"" m/config.json || set_key $key 0.0
done
write job.yaml <<'END'
model_name_or_path: m
stage: pt
do_train: true
finetuning_type: full
dataset: none.jsonl
cutoff_len: 4
output_dir: run
per_device_train_batch_size: 1
learning_rate: 1.0e-3
max_steps: 1
END
run explain job.yaml memory --dump dump
exit_is 0
program=$(ls dump/*_trim.txt)
run run --help
{ cat out; sed 's/NN_/*_/' "$ROOT/docs/howto/run-a-program.md"; } |
  grep -o 'dump/[^ ]*_[a-z]*\.[a-z]*' | sort -u > names
[ -s names ] || fail "neither the help nor the page names a file of the dump"
while read -r name; do # a pattern of the shell
  [ "$(echo $name)" != "$name" ] || [ -e "$name" ] || fail "hyper explain --dump writes no $name"
done < names
n=$(od -An -tu8 -N8 m/model.safetensors | tr -d ' ')
header=$(head -c $((8 + n)) m/model.safetensors | tail -c +9 | sed 's/"\(h\.\|w[tp]e\|ln_f\)/"transformer.\1/g')
data_of m/model.safetensors | st model.safetensors "$header"
{
  i32 40 15 45 8     # ids
  i32 15 45 8 -100   # labels: the next token
  i32 0 1 2 3        # positions
  i32 0 0            # seed of dropout
  printf '\253\252\252\076' # weight: 1 / 3
  printf '\157\022\203\072' # lr: 1e-3
  printf '\012\327\043\074' # lr / (1 - 0.9)
  printf '\360\206\001\075' # sqrt(1 - 0.999)
} > batch
header='{"ids":{"dtype":"I32","shape":[1,4],"data_offsets":[0,16]}'
header=$header',"labels":{"dtype":"I32","shape":[1,4],"data_offsets":[16,32]}'
header=$header',"positions":{"dtype":"I32","shape":[1,4],"data_offsets":[32,48]}'
header=$header',"dropout_seed":{"dtype":"I64","shape":[],"data_offsets":[48,56]}'
at=56
for name in weight lr lr_over_bc1 sqrt_bc2; do
  header=$header',"'$name'":{"dtype":"F32","shape":[],"data_offsets":['$at','$((at + 4))']}'
  at=$((at + 4))
done
st batch.safetensors "$header}" < batch
run run "$program" --in batch.safetensors,model.safetensors --out step.safetensors --states --threads 1
exit_is 0
run run "$program" --in batch.safetensors,model.safetensors --out loss.safetensors
exit_is 0
loss=$(tensors loss.safetensors | sed -n 's/ .*//p' | grep -n '^loss$' | cut -d: -f1)
[ "$loss" ] || fail "no loss in the outputs"
run grads --model m --tokens 40,15,45,8 --out grads.safetensors
want=$(json out loss)
data_of loss.safetensors | od -An -v -tfF -w4 | tr -d ' ' > numbers
awk -v want="$want" '{ d = $1 - want; if (d < 0) d = -d; if (d <= 1e-6 * want) found = 1 } END { exit !found }' numbers ||
  fail "no output is the loss $want"
run run "$program" --in batch.safetensors,model.safetensors --out again.safetensors --states --threads 2
same_file step.safetensors again.safetensors

it "two steps one after the other are two runs"
run run "$program" --in batch.safetensors,step.safetensors --out later.safetensors --states
exit_is 0
run run "$program" --in batch.safetensors,model.safetensors --out twice.safetensors --states --times 2
exit_is 0
same_file later.safetensors twice.safetensors
! cmp -s later.safetensors step.safetensors || fail "the second step changes nothing"

it "what is missing or does not fit is told with file and tensor"
run run copy.txt --out y.safetensors
refused 'copy.txt: input "x" of the program is in no file of --in'
st bad.safetensors '{"x":{"dtype":"I32","shape":[6],"data_offsets":[0,24]}}' < six
run run copy.txt --in bad.safetensors --out no.safetensors
refused 'bad.safetensors: tensor "x" is i32[6]; the program expects i32[2,3]'
no_file no.safetensors
run run gone.txt
exit_is 2
err_has gone.txt
run run copy.txt --in gone.safetensors
err_has gone.safetensors
run run
refused "give one program"
run run copy.txt --states
refused "--states needs --out"
run run copy.txt --in x.safetensors --memory-limit 256
err_has "memory limit 256 bytes is too small"
run run six
refused "six"

it "a program that is not safe to run is refused by its line"
sed 's/^compute: b1 = copy b0/compute: b1 = copy b1/' copy.txt > unread.txt
run run unread.txt --in x.safetensors
refused "unread.txt:9: b1 is read before it is written"
sed 's/device+256/device+0/' copy.txt > over.txt
run run over.txt --in x.safetensors
refused "over.txt: " overlap

it "a program of several devices is refused with what to do"
run explain job.yaml memory strategy=dp=2 per_device_train_batch_size=1 --dump mesh
exit_is 0
run run mesh/*_trim.txt
exit_is 2
err_has "of a program of several devices; one read from text runs on one device: compile it for one"
