# For scripts that train: a small data set and configuration, made on the spot.  Sourced after
# lib.sh; uses examples/demo of the repository as the model.

compile_quickly

# make_job DIR [KEY: VALUE lines on standard input]: DIR/job.yaml trains a tiny model into DIR/out.
make_job() {
  mkdir -p "$1/model"
  [ -s stories.jsonl ] || awk -v n=300 -v seed=3 -f "$ROOT/examples/demo/stories.awk" > stories.jsonl
  cp "$ROOT"/examples/demo/model/tokenizer* "$1/model/"
  sed 's/"hidden_size": 256/"hidden_size": 32/; s/"intermediate_size": 704/"intermediate_size": 48/
       s/"num_hidden_layers": 4/"num_hidden_layers": 2/; s/"num_attention_heads": 8/"num_attention_heads": 4/
       s/"num_key_value_heads": 4/"num_key_value_heads": 2/; s/"head_dim": 32/"head_dim": 8/' \
    "$ROOT/examples/demo/model/config.json" > "$1/model/config.json"
  {
    cat <<END
model_name_or_path: $1/model
train_from_scratch: true
stage: pt
do_train: true
finetuning_type: full
dataset: stories.jsonl
cutoff_len: 32
output_dir: $1/out
logging_steps: 1
save_steps: 5
per_device_train_batch_size: 4
learning_rate: 1.0e-3
max_steps: 20
lr_scheduler_type: cosine
warmup_ratio: 0.1
weight_decay: 0.1
seed: 42
END
    cat
  } > "$1/job.yaml"
}

# fix_batch FILE: a step of the job has the samples that it has on one device, on every mesh.
fix_batch() {
  awk '/^gradient_accumulation_steps:/ { times = $2 } /^per_device_train_batch_size:/ { micro = $2; next } { print }
       END { print "global_batch_size: " micro * (times ? times : 1) }' "$1" > "$1.fixed" && mv "$1.fixed" "$1"
}

# The history of a run without times.
history_of() {
  sed 's/"elapsed_time": "[^"]*"//; s/"remaining_time": "[^"]*"//; s/"train_[a-z_]*": [0-9.e+-]*,*//g' "$1/trainer_log.jsonl"
}
same_history() {
  history_of "$1" > "$WORK/history.1"
  history_of "$2" > "$WORK/history.2"
  same_file "$WORK/history.1" "$WORK/history.2"
}
# close_losses A B TOL: losses of two logs agree to a relative tolerance.
close_losses() {
  sed -n 's/.*"loss": \([0-9.e+-]*\).*/\1/p' "$1" > "$WORK/loss.1"
  sed -n 's/.*"loss": \([0-9.e+-]*\).*/\1/p' "$2" > "$WORK/loss.2"
  paste "$WORK/loss.1" "$WORK/loss.2" | awk -v tol="$3" '
    { d = $1 - $2; if (d < 0) d = -d; if (NF != 2 || d > tol * $2) { bad = 1; print "  losses", $1, $2 } }
    END { exit bad || NR == 0 }' || fail "losses of $1 and $2 are more than $3 apart"
}

# "STEP NAME VALUE" for each number of the run's history.
numbers_of() {
  awk -F'"' '/"log_history": \[/ { inside = 1 } /^  \]/ { inside = 0 }
    !inside { next }
    /^ *},?$/ { for (i = 0; i < n; i++) print step, line[i]; n = 0 }
    /": / { value = $3; gsub(/[:, ]/, "", value); if ($2 == "step") step = value; else line[n++] = $2 " " value }' "$1"
}

# follows FILE: every number of the recorded history is in the file numbers, to 1e-5.
follows() {
  awk '{ key = $1 " " $2 } NR == FNR { have[key] = $3; next } /^#/ { next }
    { n++; d = have[key] - $3; if (d < 0) d = -d; size = $3 < 0 ? -$3 : $3
      if (!(key in have) || d > 1e-5 * size) { bad = 1; print "  " key " is " have[key] ", expected " $3 } }
    END { exit bad || n < 10 }' numbers "$1" || fail "$1: other numbers"
}

# runs_follow FOLDER FOLLOWS: the runs of LlamaFactory in that folder of tests/golden, each step by step, by the function
# that compares numbers with those of a file.
runs_follow() {
  for golden in "$ROOT"/tests/golden/"$1"/*.txt; do
    it "LlamaFactory's run $(basename "$golden" .txt), step by step"
    need_data golden/llamafactory || continue
    run_cmd sh -c 'cd "$1" && shift && exec "$@"' - "$data" "$HYPER" train sft-llama3/config.yaml threads=1 output_dir="$WORK/golden" \
      overwrite_output_dir=true save_strategy=no plot_loss=false max_steps=12 $(sed -n 's/^# key //p' "$golden")
    exit_is 0
    numbers_of golden/trainer_state.json > numbers
    "$2" "$golden"
  done
}
