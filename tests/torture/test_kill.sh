# A run killed at random instants and begun again ends with the same bits as one left alone.
. "$(dirname "$0")/../cli/lib.sh"
. "$ROOT/tests/cli/train_lib.sh"

KILLS=${KILLS:-50}

it "leaves a run alone, for comparison"
make_job whole <<END
max_steps: 60
END
sed -i '/^max_steps: 20/d' whole/job.yaml
run train whole/job.yaml
exit_is 0

it "continues with the same bits after kill -9 at $KILLS random instants"
make_job cut <<END
max_steps: 60
END
sed -i '/^max_steps: 20/d' cut/job.yaml
kills=0 tries=0 finished=0
while [ $tries -lt 400 ]; do
  tries=$((tries + 1))
  "$HYPER" train cut/job.yaml > out 2> err < /dev/null &
  pid=$!
  if [ $kills -lt "$KILLS" ]; then
    # up to a quarter of a second: start-up, steps, saves and export are all hit
    sleep "$(awk -v s="$tries" 'BEGIN { srand(s); printf "%.3f", rand() * 0.25 }')"
    if kill -9 $pid 2>/dev/null; then kills=$((kills + 1)); fi
  fi
  code=0
  wait $pid || code=$?
  case $code in
    0) finished=1; [ $kills -lt "$KILLS" ] || break
       # finished before the kills were used up: begin anew in the same way
       same_file whole/out/model.safetensors cut/out/model.safetensors
       rm -rf cut/out; finished=0 ;;
    137) ;;
    *) status=$code; t_cmd="train, try $tries"; t_show; fail "a restarted run failed"; break ;;
  esac
done
[ $finished = 1 ] || fail "did not finish in $tries tries"
echo "  $kills kills in $tries tries"
same_file whole/out/model.safetensors cut/out/model.safetensors
same_file whole/out/checkpoint-60/optimizer.safetensors cut/out/checkpoint-60/optimizer.safetensors
same_history whole/out cut/out
