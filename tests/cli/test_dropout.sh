# Dropout: config.json's shares are applied in training, and only there.
. "$(dirname "$0")/lib.sh"
. "$ROOT/tests/cli/train_lib.sh"

# The job of make_job with a GPT-2 in place of its model; $2 is the share of all three dropouts.
make_gpt2_job() {
  make_job "$1"
  write "$1/model/config.json" <<END
{"model_type": "gpt2", "vocab_size": 512, "n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 64,
 "embd_pdrop": $2, "attn_pdrop": $2, "resid_pdrop": $2, "bos_token_id": null, "eos_token_id": 0}
END
}
make_gpt2_job none 0.0 </dev/null
make_gpt2_job some 0.1 </dev/null
fix_batch some/job.yaml

it "training applies it, with the same bits twice"
run train none/job.yaml
exit_is 0
err_lacks dropout
run train some/job.yaml
exit_is 0
err_has "dropout      0.1 of embeddings, 0.1 of attention weights, 0.1 of residuals"
err_lacks warning
! cmp -s none/out/model.safetensors some/out/model.safetensors || fail "dropout made no difference"
run train some/job.yaml output_dir=again
exit_is 0
same_file again/model.safetensors some/out/model.safetensors

it "its bits depend on neither threads, instruction set nor recomputation"
for how in threads=1 threads=3 hyper_parallel.recompute=full; do
  run train some/job.yaml output_dir=o_$how $how
  exit_is 0
  same_file o_$how/model.safetensors some/out/model.safetensors
done
HYPER_ISA=avx2 run train some/job.yaml output_dir=avx2 # of the others: test_jit_run.c
exit_is 0
same_file avx2/model.safetensors some/out/model.safetensors

it "a run that goes on has the bits of one that was not interrupted"
rm -r again/checkpoint-20 again/checkpoint-15 again/*.json again/model.safetensors
run train some/job.yaml output_dir=again
exit_is 0
err_has "continuing from again/checkpoint-10"
same_file again/model.safetensors some/out/model.safetensors

it "several devices drop what one does, each of its part"
for s in dp=2,zero=1 tp=2,sp dp=2,tp=2 cp=2 tp=3,dp=2; do
  run train some/job.yaml "output_dir=s_$s" "strategy=$s"
  exit_is 0
  close_losses some/out/trainer_log.jsonl "s_$s/trainer_log.jsonl" 1e-5
done
for s in dp=2 tp=2; do # sequences and heads of attention stay where they are
  run explain some/job.yaml comm strategy=$s
  exit_is 0
  out_lacks all_gather
done

it "gradients, logits, evaluation and generation know nothing of it"
sed 's/"\(.*_pdrop\)": 0.1/"\1": 0.0/g' some/out/config.json >plain.json
cmp -s plain.json some/out/config.json && fail "config.json of the export has no dropout"
for verb in "grads --out" "logits --out"; do
  for share in 0.1 0.0; do
    sed -i "s/\(_pdrop\": \)0.[01]/\1$share/g" some/out/config.json
    run ${verb% *} --model some/out --tokens 1,2,3,4,5 --out $share
    exit_is 0
  done
  same_file 0.1 0.0
done

it "attention_dropout of the Llama kind is applied too"
make_job llama </dev/null
run train llama/job.yaml
exit_is 0
sed -i 's/"attention_bias"/"attention_dropout": 0.2, "attention_bias"/' llama/model/config.json
run train llama/job.yaml output_dir=drops
exit_is 0
err_has "0.2 of attention weights"
! cmp -s llama/out/model.safetensors drops/model.safetensors || fail "dropout made no difference"

it "a share that makes no sense is refused by file, line and key"
sed -i 's/"attention_dropout": 0.2/"attention_dropout": 1.5/' llama/model/config.json
run train llama/job.yaml output_dir=bad
refused "llama/model/config.json:" "attention_dropout" "below 1"
