# What reaches a terminal: names from files are escaped; a pipe that nobody reads ends quietly; and
# options are spelled alike on all verbs.
. "$(dirname "$0")/lib.sh"
. "$ROOT/tests/cli/model_lib.sh"
. "$ROOT/tests/cli/train_lib.sh"
LC_ALL=C
export LC_ALL
ESC=$(printf '\033')

# A safetensors file of one f32 tensor, whose name is given as JSON.
one_tensor() {
  head=$(printf '{"%s":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}' "$1")
  n=${#head}
  printf "\\$(printf %o "$n")\\0\\0\\0\\0\\0\\0\\0%s\\0\\0\\0\\0" "$head"
}
no_escapes() { # FILE...: no control character but line breaks and tabs
  if tr -d '\n\t' <"$1" | grep -q '[[:cntrl:]]'; then fail "control characters on $1" && t_show; fi
}

it "names of tensors cannot drive the terminal"
one_tensor 'a\u001b[2J\u0007\nweights    9 tensors' >x.safetensors
run inspect x.safetensors
exit_is 0
no_escapes out
out_has 'a\x1b[2J\x07\nweights    9 tensors'
out_has "weights    1 tensors"

it "nor can keys and values of a configuration, names of files, or words of the command line"
make_job j </dev/null
printf '"lea\\e[31mrning_rate": "\\e]0;x\\a"\ndataset: "no\\nerror\\e[2J"\n' >>j/job.yaml
sed -i '0,/^dataset:/{/^dataset:/d}' j/job.yaml
run train j/job.yaml
exit_is 2
no_escapes err
err_has 'lea\x1b[31mrning_rate'
run inspect "a${ESC}[2Jb"
exit_is 2
no_escapes err
run train j/job.yaml "k${ESC}ey=1"
no_escapes err
run "${ESC}verb"
no_escapes err
run inspect "--${ESC}x"
no_escapes err

it "text of a model goes to a pipe byte for byte, and to a terminal escaped"
if stories; then
  set -- generate --model stories --prompt "a${ESC}[31mb" --max-new-tokens 1
  run "$@"
  exit_is 0
  out_has "a${ESC}[31mb"
  if command -v script >/dev/null; then
    script -qec "'$HYPER' generate --model stories --prompt 'a${ESC}[31mb' --max-new-tokens 1" /dev/null </dev/null >tty 2>&1
    grep -qF 'a\x1b[31mb' tty || fail "the terminal got: $(od -c tty | head -5)"
  fi
fi

# A verb whose output nobody reads, with its exit code in the file code.
unread() { { sleep 0.2; "$HYPER" "$@"; echo $? >code; } 2>err | :; }
quiet() {
  [ "$(cat code)" = 141 ] || fail "exit code $(cat code), want 141"
  [ -z "$(own_err)" ] || fail "it said: $(cat err)"
}

it "output that nobody reads any more ends a verb quietly"
unread explain --help
quiet
unread doctor
quiet
model mistral-window
unread inspect m
quiet
unread logits --model m --tokens 1,2 --out l.safetensors --json
is_file l.safetensors
[ -z "$(own_err)" ] || fail "it said: $(cat err)"
unread inspect nowhere
[ "$(cat code)" = 2 ] || fail "exit code $(cat code), want 2"
grep -q nowhere err || fail "no message"
if stories; then
  unread generate --model stories --prompt Once --max-new-tokens 400
  quiet
fi

it "a full disk is still a failure with a message"
if [ -e /dev/full ]; then
  "$HYPER" train --help >/dev/full 2>err
  [ $? = 1 ] || fail "no failure"
  grep -q "standard output: cannot be written" err || fail "no message"
fi

it "a training run goes on when nobody reads it, and says so once"
make_job k </dev/null
unread train k/job.yaml max_steps=3 logging_steps=1 report_to=none
[ "$(cat code)" = 0 ] || fail "exit code $(cat code): $(cat err)"
[ "$(grep -c 'standard output is closed: the run continues' err)" = 1 ] || fail "told: $(cat err)"
is_file k/out/model.safetensors
json_is k/out/trainer_log.jsonl -1.current_steps 3
{ sleep 0.2; "$HYPER" train k/job.yaml max_steps=2 output_dir=k/both 2>&1; echo $? >code; } | :
[ "$(cat code)" = 0 ] || fail "exit code $(cat code) when stderr is closed too"
is_file k/both/model.safetensors

it "options and keys have every spelling on every verb"
for words in "--out a --tokens 1,2" "out=a tokens=1,2" "--out=a --tokens=1,2"; do
  rm -f a
  run logits --model m $words
  exit_is 0
  is_file a
done
same() { # words that mean the same: each gives what the first gives
  for words; do
    run $words
    exit_is 0
    [ "$words" = "$1" ] && cp out first
    same_file first out
  done
}
same "generate --model m --tokens 1,2 --max-new-tokens 3" \
  "generate --model m --tokens 1,2 --max_new_tokens 3" "generate model=m tokens=1,2 max_new_tokens=3" \
  "generate --model=m --tokens=1,2 --max-new-tokens=3" "generate model=m tokens=1,2 max-new-tokens=3" \
  "generate --model m --tokens 1,2 --max_new_tokens=3 hyper_parallel.memory_limit=1GiB" \
  "generate --model m --tokens 1,2 --max_new_tokens=3 --memory_limit 1GiB json=false"
same "layout (2)(a)(a) --shape 4 --json" "layout (2)(a)(a) shape=4 json=true" \
  "layout (2)(a)(a) --shape=4 --json=true"
same "inspect --all m" "inspect m all=true"
for words in "max-steps=1.5" "max_steps=1.5" "--max-steps 1.5" "--max_steps 1.5" "--max_steps=1.5" \
  "--max-steps=1.5"; do
  run train k/job.yaml $words
  refused "max_steps: expected an integer"
done
run train k/job.yaml hyper-parallel.memory-limit=lots
refused "hyper_parallel.memory_limit: expected a size"
run generate --model m --tokens 1 --max_new_tokns 3
refused "did you mean --max-new-tokens"
run inspect --all=perhaps m
refused "--all: expected true or false"

it "text with an equals sign is text"
if stories; then
  for words in "a=b" "-- json=true"; do
    run tokenize --model stories --json $words
    exit_is 0
    out_has "["
  done
fi
