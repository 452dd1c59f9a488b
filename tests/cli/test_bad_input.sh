# Bad input of every kind: one clear message with its place, exit 2, and nothing left behind.
. "$(dirname "$0")/lib.sh"
. "$ROOT/tests/cli/model_lib.sh"
. "$ROOT/tests/cli/train_lib.sh"
LC_ALL=C # sed on binary files
export LC_ALL

make_job j </dev/null
# The job with a line of standard input in place of its key is refused with these words.
bad_line() {
  read -r t_line
  { grep -v "^${t_line%%:*}:" j/job.yaml; echo "$t_line"; } >bad.yaml
  run train bad.yaml output_dir=left
  refused "bad.yaml:$(grep -c '' bad.yaml):" "$@"
  one_message 1
  no_file left
}
# So is the job as it is, with this override.
bad_job() {
  t_override=$1
  shift
  run train j/job.yaml output_dir=left "$t_override"
  refused "$@"
  no_file left
}

it "unknown and misspelt keys"
echo "lerning_rate: 1e-4" | bad_line unknown 'did you mean "learning_rate"?'
echo "hyper_parallel: {recomput: full}" | bad_line hyper_parallel.recomput unknown '"recompute"'
bad_job per_device_batch=4 per_device_batch unknown
run train j/job.yaml --max-step 3
refused 'did you mean "max_steps"?'

it "values of the wrong type"
echo "learning_rate: fast" | bad_line learning_rate "expected a number" '"fast"'
echo "max_steps: 1.5" | bad_line max_steps "expected an integer" 1.5
echo "do_train: perhaps" | bad_line do_train "expected true or false"
echo "hyper_parallel: [1]" | bad_line hyper_parallel "expected a map" list
echo "hyper_parallel: {memory_limit: lots}" | bad_line memory_limit "expected a size"
echo "output_dir: ''" >x && { grep -v output_dir j/job.yaml; cat x; } >bad.yaml
run train bad.yaml
refused output_dir "is empty"

it "keys that contradict each other, or themselves"
{ cat j/job.yaml; echo "learning_rate: 2e-3"; } >bad.yaml
run train bad.yaml output_dir=left
refused bad.yaml:18: "already set at bad.yaml:12"
{ cat j/job.yaml; printf 'resume_from_checkpoint: true\noverwrite_output_dir: true\n'; } >bad.yaml
run train bad.yaml output_dir=left
refused bad.yaml:18: bad.yaml:19: resume_from_checkpoint overwrite_output_dir
no_file left

it "files that are not there"
run train nothere.yaml
refused "nothere.yaml: cannot open"
bad_job dataset=nothere 'no file "nothere"' dataset_info.json
bad_job model_name_or_path=nothere 'no folder "nothere"' "download"
mv j/model/tokenizer.json kept
bad_job seed=1 "j/model: no tokenizer there" tokenizer.json
mv kept j/model/tokenizer.json
run train j/job.yaml output_dir=left train_from_scratch=false
refused "j/model: no weights there" model.safetensors
no_file left
run eval --model nothere --data nothere
refused nothere
run generate --model j/nothere --tokens 1
refused "j/nothere: cannot open"

# A safetensors file x.safetensors of a header and zeros: refused with these words.
bad_weights() { # HEADER ZEROS WORD...
  { printf "\\$(printf %o ${#1})\\0\\0\\0\\0\\0\\0\\0%s" "$1"; head -c "$2" /dev/zero; } >x.safetensors
  shift 2
  run inspect x.safetensors
  refused x.safetensors "$@"
  one_message 1
}
it "safetensors that are cut, overlap, have gaps or sizes that overflow"
bad_weights '{"a":{"dtype":"F32","shape":[4],"data_offsets":[0,16]}}' 8 '"a"' "truncated"
bad_weights '{"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},"b":{"dtype":"F32","shape":[2],"data_offsets":[4,12]}}' 12 '"b"' overlaps
bad_weights '{"a":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}}' 8 '"a"' gaps
bad_weights '{"a":{"dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,0]}}' 0 '"a"' "64 bits"
bad_weights '{"a":{"dtype":"F32","shape":[2305843009213693952,4],"data_offsets":[0,0]}}' 0 '"a"' "64 bits"
bad_weights '{"a":{"dtype":"F32","shape":[-1],"data_offsets":[0,0]}}' 0 '"a"' shape
bad_weights '{"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},"a":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}}' 8 '"a"' twice
bad_weights '{"a":{"dtype":"F33","shape":[1],"data_offsets":[0,4]}}' 4 '"a"' F33
bad_weights '{"a":' 0 header

it "a config.json and weights that disagree"
model mistral-window
set_key hidden_size 32
run logits --model m --tokens 1,2 --out left
refused 'm: tensor "' "config.json makes it"
no_file left
model mistral-window
set_key num_hidden_layers 1
run grads --model m --tokens 1,2 --out left
refused 'm: tensor "model.layers.1.' "has no place in the model"
no_file left

it "token ids that the model does not have"
model mistral-window
for verb in logits grads; do
  run $verb --model m --tokens 1,64 --out left
  refused "token id 64 at place 1" "0..63"
  no_file left
done
run generate --model m --tokens 1,64
refused "token id 64 at place 1" "0..63"
run eval --model m --tokens 1,64
refused "token id 64" "0..63"
cp j/model/config.json kept
sed -i 's/"vocab_size": 512/"vocab_size": 300/' j/model/config.json
bad_job seed=1 "has token 511" "300 rows" vocab_size
mv kept j/model/config.json

it "data without samples, without the column, or too little"
: >e.jsonl
bad_job dataset=e.jsonl "e.jsonl: there is no sample in it"
echo '{"txt": "words"}' >e.jsonl
bad_job dataset=e.jsonl "e.jsonl: record 1" '"txt"' dataset_info.json
echo '{"text": "words"}' >e.jsonl
bad_job dataset=e.jsonl "too few for one block of 32" cutoff_len
printf '{"text": "a\377"}\n' >e.jsonl
bad_job dataset=e.jsonl e.jsonl:1:12 "invalid UTF-8"

it "a cutoff longer than the model's positions"
bad_job cutoff_len=513 cutoff_len "512 positions" "cutoff_len: 512 or less"

it "an output that cannot be written is refused before anything is computed"
mkdir folder
for verb in logits grads; do
  for to in folder nothere/l /dev/null ''; do
    run $verb --model nothere --tokens 1,2 --out "$to"
    exit_is 2
    grep -q "is a folder\|there is no folder\|is a device\|empty file name" err || { fail "no word of the output"; t_show; }
  done
done
[ -c /dev/null ] || fail "/dev/null is gone"
: >file
bad_job output_dir=file/run "file/run: cannot create the folder"

# Runs hyper in a name space of its own where ./full is a disk of $1 KiB; what is left is in ./list.
on_full_disk() {
  t_size=$1
  shift
  mkdir -p full
  status=0
  t_cmd="$* on $t_size KiB"
  unshare -m sh -c 'mount -t tmpfs -o size='"$t_size"'k none full || exit 99
    "$@"; code=$?; find full -mindepth 1 | sort >list; exit $code' sh "$HYPER" "$@" >out 2>err </dev/null || status=$?
}
it "a disk that is full"
if unshare -m sh -c 'mkdir -p full && mount -t tmpfs none full' 2>/dev/null; then
  on_full_disk 4 logits --model "$CASES/mistral-window" --tokens "$(seq -s, 1 60)" --out full/l
  refused full/l "No space left on device" "free some space"
  [ ! -s list ] || fail "left behind: $(cat list)"
  on_full_disk 256 train j/job.yaml output_dir=full/run max_failed_saves=1
  refused "No space left on device" "free some space"
  grep -q "checkpoint" list && fail "left behind: $(cat list)"
  if need_data model/stories260K.bin; then
    on_full_disk 100 convert "$data" full/m
    refused full/m "No space left on device"
    [ ! -s list ] || fail "left behind: $(cat list)"
  fi
else
  skip "cannot mount"
fi
