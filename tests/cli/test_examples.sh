#!/bin/sh
# What examples/ holds runs as it stands there, and gives what it says.
. "$(dirname "$0")/lib.sh"
. "$ROOT/tests/cli/train_lib.sh"
CC=${CC:-gcc}

it "the paper's listing prints its three stages"
ln -s "$B/libhyperparallel.so" libhyperparallel.so.0
run_cmd $CC -std=c11 -Wall -Werror -I"$ROOT/include" -o listing "$ROOT/examples/listing/listing.c" \
  "$B/libhyperparallel.so"
exit_is 0
run_cmd env LD_LIBRARY_PATH=. ./listing
exit_is 0
write want <<'END'
(a) one logical device
  rank 0  [0:8, 0:8]  ########|########|########|########|########|########|########|########
(b) tensor_map[0] = "x"
  rank 0  [0:4, 0:8]  ########|########|########|########|........|........|........|........
  rank 1  [0:4, 0:8]  ########|########|########|########|........|........|........|........
  rank 2  [0:4, 0:8]  ########|########|########|########|........|........|........|........
  rank 3  [0:4, 0:8]  ########|########|########|########|........|........|........|........
  rank 4  [4:8, 0:8]  ........|........|........|........|########|########|########|########
  rank 5  [4:8, 0:8]  ........|........|........|........|########|########|########|########
  rank 6  [4:8, 0:8]  ........|........|........|........|########|########|########|########
  rank 7  [4:8, 0:8]  ........|........|........|........|########|########|########|########
(c) tensor_map[1] = "y"
  rank 0  [0:4, 0:2]  ##......|##......|##......|##......|........|........|........|........
  rank 1  [0:4, 2:4]  ..##....|..##....|..##....|..##....|........|........|........|........
  rank 2  [0:4, 4:6]  ....##..|....##..|....##..|....##..|........|........|........|........
  rank 3  [0:4, 6:8]  ......##|......##|......##|......##|........|........|........|........
  rank 4  [4:8, 0:2]  ........|........|........|........|##......|##......|##......|##......
  rank 5  [4:8, 2:4]  ........|........|........|........|..##....|..##....|..##....|..##....
  rank 6  [4:8, 4:6]  ........|........|........|........|....##..|....##..|....##..|....##..
  rank 7  [4:8, 6:8]  ........|........|........|........|......##|......##|......##|......##
strategy (2,4)(x,y)(x,y): the product on 8 devices is that of one device
END
same_file want out

ln -s "$ROOT/examples" examples
mkdir -p build/demo
awk -v n=100 -v seed=7 -f examples/demo/stories.awk >build/demo/stories.jsonl
short="max_steps=2 cutoff_len=32"

it "the same model on 1, 2, 4 and 8 devices, by YAML only"
for n in one two four eight; do
  run train examples/devices/$n.yaml $short
  exit_is 0
  close_losses build/devices/one/trainer_log.jsonl build/devices/$n/trainer_log.jsonl 1e-5
done
err_has "8 devices"

it "with deterministic: layout they give the same weights"
for n in two four eight; do
  run train examples/devices/$n.yaml $short deterministic=layout
  exit_is 0
  same_file build/devices/one/model.safetensors build/devices/$n/model.safetensors
done

it "its layouts are as the file says"
run explain examples/devices/eight.yaml layouts $short
exit_is 0
out_has "mesh (2,2,2)(dp,x,y), 8 devices"
for row in "q_proj.weight  *f32\[256,256\]  *(x,y) " "down_proj.weight  *f32\[256,704\]  *(y,x) "; do
  grep -q "^param  *model.layers.3.*$row" out || fail "no $row"
done
