# A run killed at random instants and begun again ends with the same bits as one left alone, on one
# device and on several, whose checkpoints are in parts.
. "$(dirname "$0")/../cli/lib.sh"
. "$ROOT/tests/cli/train_lib.sh"

KILLS=${KILLS:-50}

# runs_through_kills NAME [KEY=VALUE...]
runs_through_kills() {
  name=$1
  shift
  make_job $name </dev/null
  sed -i 's/^max_steps: 20/max_steps: 60/' $name/job.yaml
  start=$(date +%s.%N)
  run train $name/job.yaml output_dir=$name/whole "$@"
  exit_is 0
  seconds=$(echo "$start $(date +%s.%N)" | awk '{ print $2 - $1 }')
  kills=0 tries=0 resumed=0 finished=0
  while [ $tries -lt 400 ]; do
    tries=$((tries + 1))
    "$HYPER" train $name/job.yaml "$@" > out 2> err < /dev/null &
    pid=$!
    if [ $kills -lt "$KILLS" ]; then
      # any time of a whole run: start-up, steps, saves and export are all hit
      sleep "$(awk -v s="$tries" -v t="$seconds" 'BEGIN { srand(s); printf "%.3f", rand() * t }')"
      if kill -9 $pid 2>/dev/null; then kills=$((kills + 1)); fi
    fi
    code=0
    wait $pid || code=$?
    if grep -q "continuing from" err; then resumed=$((resumed + 1)); fi
    case $code in
      0) finished=1; [ $kills -lt "$KILLS" ] || break
         # finished before the kills were used up: begin anew in the same way
         same_file $name/whole/model.safetensors $name/out/model.safetensors
         rm -rf $name/out; finished=0 ;;
      137) ;;
      *) status=$code; t_cmd="train, try $tries"; t_show; fail "a restarted run failed"; break ;;
    esac
  done
  [ $finished = 1 ] || fail "did not finish in $tries tries"
  echo "  $kills kills in $tries tries, $resumed of which went on from a checkpoint"
  [ $resumed -gt $((KILLS / 10)) ] || fail "too few went on from a checkpoint"
  same_file $name/whole/model.safetensors $name/out/model.safetensors
  for f in $name/whole/checkpoint-60/optimizer*; do same_file $f $name/out/checkpoint-60/${f##*/}; done
  same_history $name/whole $name/out
}

it "continues with the same bits after kill -9 at $KILLS random instants"
runs_through_kills one
it "on several devices, too"
runs_through_kills four strategy=dp=2,tp=2,zero=1
