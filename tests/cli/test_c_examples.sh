#!/bin/sh
# The programs of examples/c train: built by make against the shared library, run for a short while.
. "$(dirname "$0")/lib.sh"

# The last number of the last line of out that begins with $1 is at most $2 (at least, with $3 = above).
number_is() {
  got=$(grep "^$1" out | tail -1 | grep -oE '[0-9]+\.[0-9]+' | tail -1)
  awk -v x="${got:-nan}" -v y="$2" -v above="${3-}" \
    'BEGIN { exit !(x == x + 0 && (above == "" ? x + 0 <= y : x + 0 >= y)) }' ||
    fail "$1: $got, expected $2 or ${3:-below}"
}

it "the multilayer perceptron tells spirals apart"
run_cmd "$B/examples/mlp" 300
exit_is 0
number_is step 0.2
number_is accuracy 95 above

it "the network of convolutions learns drawn digits"
run_cmd "$B/examples/cnn_mnist" 150
exit_is 0
out_has "digits are drawn"
number_is step 0.5
number_is accuracy 85 above

it "it names the file that is missing"
run_cmd "$B/examples/cnn_mnist" 1 nowhere
exit_is 1
err_has "nowhere/train-images-idx3-ubyte"

it "it reads MNIST's files"
mkdir mnist
for set in train t10k; do
  printf '\000\000\010\003\000\000\000\100\000\000\000\034\000\000\000\034' >mnist/$set-images-idx3-ubyte
  head -c 50176 /dev/zero >>mnist/$set-images-idx3-ubyte
  printf '\000\000\010\001\000\000\000\100' >mnist/$set-labels-idx1-ubyte
  head -c 64 /dev/zero >>mnist/$set-labels-idx1-ubyte
done
run_cmd "$B/examples/cnn_mnist" 30 mnist
exit_is 0
number_is accuracy 100 above

it "it refuses fewer images than a batch"
printf '\000\000\010\001\000\000\000\007' >mnist/t10k-labels-idx1-ubyte
head -c 7 /dev/zero >>mnist/t10k-labels-idx1-ubyte
run_cmd "$B/examples/cnn_mnist" 1 mnist
exit_is 1
err_has "7 images, at least 64"

it "the transformer learns the next character"
run_cmd "$B/examples/char_transformer" 100
exit_is 0
number_is step 1.2
number_is accuracy 55 above

# Losses and weights differ from those of one device by at most $1.
differ_at_most() {
  awk -v most="$1" '/^differences/ { n++; if ($6 + 0 > most || $8 + 0 > most) bad = 1 }
    END { exit bad || n != 1 }' out || fail "$(tail -1 out), expected at most $1"
}

it "two towers and a decoder, on groups of unlike size and strategy, give what one device gives"
for groups in "(2,1)(dp,tp);(2,3)(dp,tp)" "(1,1)(dp,tp);(3,1)(dp,tp)" \
  "(2,1)(dp,tp);(1,1)(dp,tp);(2,2)(dp,tp)"; do
  run_cmd "$B/examples/two_towers" 20 "$groups"
  exit_is 0
  differ_at_most 1e-5
done

it "with no sum split over devices, to the bit"
for groups in "(2,1)(dp,tp);(1,6)(dp,tp)" "(1,1)(dp,tp);(1,3)(dp,tp);(4,1)(dp,tp)"; do
  run_cmd "$B/examples/two_towers" 20 "$groups" exact
  exit_is 0
  differ_at_most 0
done

it "groups that share a device are refused"
run_cmd "$B/examples/two_towers" 1 "(2,1)(dp,tp)@0,1;(1,1)(dp,tp)@1"
exit_is 1
err_has "rank 1 is on 2 of the pipeline's meshes"
