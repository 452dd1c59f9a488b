#!/bin/sh
# `hyper explain CONFIG --dump DIR`: the text after each stage, which shows what the stage changed, for each
# piece of a step and for the linked program.
. "$(dirname "$0")/lib.sh"
. "$ROOT/tests/cli/train_lib.sh"

# NN GROUP NAME of each row of the table of stages.
sed -e "/^#include \"pass\/pass.def\"/{
r $ROOT/src/pass/pass.def
d
}" "$ROOT/src/compile/stages.def" |
  sed -n 's/^STAGE(\([A-Z]*\), \([a-z_]*\),.*/\1 \2/p; s/^PASS(\([a-z_]*\),.*/LOWER \1/p' |
  awk '{ printf "%02d %s %s\n", NR - 1, $1, $2 }' >stages
grep -q ' LOWER fuse$' stages && grep -q ' ORDER trim$' stages || fail "no table: $(cat stages)"

# expected PIECE...: the files of a step of these pieces, and of the linked program.
expected() {
  while read -r number group name; do
    case $group-$name in
      SHARD-* | LOWER-[a-z]*)
        kind=hp
        case $name in lower | free_early | classify) kind=txt ;; esac
        for piece; do echo "${number}_$name$piece.$kind"; done
        ;;
      *) echo "${number}_$name.txt" ;;
    esac
  done <stages | sort
}
# has_all DIR PIECE...: these files, and no others.
has_all() {
  dir=$1
  shift
  expected "$@" >want
  ls "$dir" | sort >have
  same_file want have
}
stage() { ls dump/*_"$1".txt; }
# changed A B: the text after B is another one than after A.
changed() { ! cmp -s "$(stage "$1")" "$(stage "$2")" || fail "$2 changes nothing of $1"; }
unchanged() { same_file "$(stage "$1")" "$(stage "$2")"; }
explain() { # KEY=VALUE...
  rm -rf dump
  run explain job.yaml memory --dump dump "$@"
  exit_is 0
}

make_job job </dev/null
cat >job.yaml <<'END'
model_name_or_path: job/model
stage: pt
do_train: true
finetuning_type: full
dataset: none.jsonl
cutoff_len: 16
output_dir: run
per_device_train_batch_size: 2
gradient_accumulation_steps: 3
learning_rate: 1.0e-3
max_steps: 1
END

it "every stage has its text, each piece of a step its own"
explain
has_all dump .FBW_2x16 .FBW_add_2x16 .U
for name in $(ls dump | sed -n 's/\.FBW_2x16\..*//p' | sed '1,3d'); do
  for piece in FBW_add_2x16 U; do
    ! cmp -s dump/"$name".FBW_2x16.* dump/"$name".$piece.* || fail "$name of $piece is that of FBW"
  done
done
for micro in 0 1 2; do grep -q "ids@$micro" "$(stage link)" || fail "no micro-batch $micro in the linked program"; done

it "a step of one micro-batch has one piece, without a name"
explain gradient_accumulation_steps=1
has_all dump ""

it "each stage of an order shows what it changed"
explain strategy=dp=2,zero=3 gradient_accumulation_steps=2
unchanged prepare offload # nothing leaves the device
changed offload schedule  # streams and waits
grep -q '^comm: ' "$(stage schedule)" || fail "no stream of its own"
! grep -q '^comm: ' "$(stage offload)" || fail "streams before they are scheduled"
changed schedule place # offsets
! grep -q ' device+[1-9]' "$(stage schedule)" || fail "offsets before they are placed"
grep -q ' device+[1-9]' "$(stage place)" || fail "no offsets"
changed place trim # waits

it "offloading is a stage of its own, and the order that was tried before leaves nothing"
explain offload=weights=host
changed prepare offload # copies
grep -q ' = fetch ' "$(stage offload)" || fail "nothing is fetched"
! grep -q ' = fetch ' "$(stage prepare)" || fail "fetched before it is offloaded"
unchanged offload schedule # it gives the order, too
changed schedule place
for name in offload schedule place trim; do
  grep -c ' = fetch ' "$(stage $name)"
done | uniq | wc -l | grep -qx ' *1' || fail "stages of several orders"
