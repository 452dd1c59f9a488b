#!/bin/sh
# One system call of a training run fails, for all calls on its files: a run that could go on goes on,
# to the same bits, and one that could not says why and can be begun again.
# FAULTS: about how many are tried (1500).
. "$(dirname "$0")/../cli/lib.sh"
. "$ROOT/tests/cli/train_lib.sh"

FAULTS=${FAULTS:-1500}
"${CC:-cc}" -D_GNU_SOURCE -shared -fPIC -o fault.so "$ROOT/tests/torture/preload_fault.c" -ldl || exit 1

make_job job <<END
save_total_limit: 2
END
sed -i 's/^max_steps: 20/max_steps: 6/; s/^save_steps: 5/save_steps: 2/' job/job.yaml

# train KEY=VALUE...: under the fault that FAULT_* name
train() {
  status=0
  LD_PRELOAD=$PWD/fault.so "$HYPER" train job/job.yaml "$@" >out 2>err </dev/null || status=$?
}
number_of() {
  case $1 in EIO) echo 5 ;; ENOMEM) echo 12 ;; EACCES) echo 13 ;; EMFILE) echo 24 ;; ENOSPC) echo 28 ;; EDQUOT) echo 122 ;; esac
}
told() { # a failure that counts
  fail "$2: $FAULT_CALL $FAULT_AT of $total on $FAULT_PATH: $1: $(tail -n 1 err)"
}
same_end() {
  cmp -s whole/model.safetensors "$1/model.safetensors" && history_of whole >h1 && history_of "$1" >h2 &&
    cmp -s h1 h2
}

# One fault.  KIND output: once the first step is logged, nothing ends the run.
try() { # ERROR KIND FOLDER
  rm -rf job/out
  export FAULT_ERRNO=$(number_of "$1")
  began=no
  train output_dir=job/out $more
  tried=$((tried + 1))
  [ -s job/out/trainer_log.jsonl ] && began=yes
  case $status in
    0) kept=$((kept + 1))
       same_end job/out || told "$1" "the run ended with other bits" ;;
    1 | 2)
      [ -s err ] || told "$1" "no message"
      [ "$2:$began" = output:yes ] && told "$1" "a run that could go on ended"
      FAULT_AT=0 train output_dir=job/out $more
      same_end job/out || told "$1" "begun again, it ends with other bits" ;;
    *) told "$1" "ended with $status" ;;
  esac
}

# All calls on the files of a folder, every so many of them.
sweep() { # KIND PATH ERRORS-OF-CALL... (call:error,error)
  kind=$1 tried=0 kept=0
  export FAULT_PATH=$2
  shift 2
  rm -rf job/out
  unset FAULT_CALL
  FAULT_AT=0 FAULT_COUNT=$PWD/counts train output_dir=job/out $more
  [ "$status" = 0 ] || { t_cmd="train $more"; t_show; fail "the run without a fault failed"; }
  all=0
  for what; do
    total=$(sed -n "s/^${what%%:*} //p" counts)
    all=$((all + total * $(echo "${what#*:}" | tr ',' ' ' | wc -w)))
  done
  every=$((all / share + 1))
  n=0
  for what; do
    export FAULT_CALL=${what%%:*}
    total=$(sed -n "s/^$FAULT_CALL //p" counts)
    FAULT_AT=0
    while [ $FAULT_AT -lt "$total" ]; do
      export FAULT_AT=$((FAULT_AT + 1))
      for error in $(echo "${what#*:}" | tr ',' ' '); do
        n=$((n + 1))
        [ $((n % every)) = 0 ] || continue
        try "$error" "$kind"
      done
    done
  done
  echo "  $FAULT_PATH $more: $tried of $all faults, $kept runs went on to their end"
  [ $tried -gt 0 ] || fail "no fault was tried"
}

output="open:ENOSPC,EMFILE,EACCES write:ENOSPC,EIO,EDQUOT fsync:EIO,ENOSPC close:EIO rename:EIO,ENOSPC
  mkdir:ENOSPC,EIO unlink:EIO read:EIO truncate:EIO mmap:ENOMEM look:EIO list:EIO"
input="open:EMFILE,EACCES read:EIO mmap:ENOMEM close:EIO look:EIO list:EIO"

more=
run train job/job.yaml output_dir=whole
exit_is 0
share=$((FAULTS * 6 / 10))
it "a call on the run's own files that fails does not end a run that has begun"
sweep output job/out $output

share=$((FAULTS * 2 / 10))
it "nor on several devices, whose checkpoints are in parts"
more="strategy=dp=2,zero=1 per_device_train_batch_size=2"
run train job/job.yaml output_dir=whole overwrite_output_dir=true $more
exit_is 0
sweep output job/out $output

it "a call on what a run reads that fails is told, and the run can be begun again"
more=
run train job/job.yaml output_dir=whole overwrite_output_dir=true
exit_is 0
share=$((FAULTS / 10))
sweep input job/model $input
sweep input stories.jsonl $input
