/* Megatron's and LlamaFactory's parallel keys against the strategy that they mean. */
#include "test.h"

#include "base/yaml.h"
#include "config_text.h"

/* keys, and what says the same in our own words */
static const struct {
  const char *keys, *own;
} same[] = {
    {"tensor_model_parallel_size: 2\n", "strategy: tp=2\n"},
    {"tensor_model_parallel_size: 2\nsequence_parallel: true\n", "strategy: tp=2,sp\n"},
    {"tensor_model_parallel_size: 2\nsequence_parallel: false\n", "strategy: tp=2\n"},
    {"context_parallel_size: 4\n", "strategy: cp=4\n"},
    {"hyper_parallel_cp_size: 4\ncontext_parallel_size: 4\n", "strategy: cp=4:ring\n"},
    {"expert_model_parallel_size: 2\n", "strategy: ep=2,dp=2\n"},
    {"expert_model_parallel_size: 2\ntensor_model_parallel_size: 2\n",
     "strategy: ep=2,tp=2,etp=2,dp=2\n"},
    {"expert_model_parallel_size: 2\ntensor_model_parallel_size: 2\n"
     "expert_tensor_parallel_size: 1\n",
     "strategy: ep=2,tp=2\n"},
    {"devices: 8\ntensor_model_parallel_size: 2\nuse_distributed_optimizer: true\n",
     "strategy: dp=4,tp=2,zero=1\n"},
    {"hyper_parallel: {devices: 16}\ntensor_model_parallel_size: 2\n"
     "pipeline_model_parallel_size: 2\nhyper_parallel_cp_size: 2\n",
     "strategy: dp=2,tp=2,pp=2,cp=2\n"},
    {"pipeline_model_parallel_size: 4\n", "strategy: pp=4\n"},
    {"pipeline_model_parallel_size: 1\n", ""},
    {"pipeline_model_parallel_size: 2\nvirtual_pipeline_model_parallel_size: 1\n",
     "strategy: pp=2\nhyper_parallel: {pipeline: {stages: 2}}\n"},
    {"pipeline_model_parallel_size: 2\nvirtual_pipeline_model_parallel_size: 3\n",
     "strategy: pp=2\nhyper_parallel: {pipeline: {stages: 6, schedule: interleaved}}\n"},
    {"strategy: pp=2\nvirtual_pipeline_model_parallel_size: 2\npp_schedule: zbv\n",
     "strategy: pp=2\nhyper_parallel: {pipeline: {stages: 4, schedule: zbv}}\n"},
    {"strategy: pp=2\npp_schedule: GPipe\n",
     "strategy: pp=2\nhyper_parallel: {pipeline: {schedule: gpipe}}\n"},
    {"strategy: pp=2\npp_schedule: 1F1B\n",
     "strategy: pp=2\nhyper_parallel: {pipeline: {schedule: 1f1b}}\n"},
    {"strategy: pp=2\npp_schedule: Interleaved1F1B\n",
     "strategy: pp=2\nhyper_parallel: {pipeline: {schedule: interleaved}}\n"},
    {"strategy: pp=2\npp_schedule: ZBVZeroBubble\n",
     "strategy: pp=2\nhyper_parallel: {pipeline: {schedule: zbv}}\n"},
    {"strategy: pp=2\npp_schedule: DualPipeV\n",
     "strategy: pp=2\nhyper_parallel: {pipeline: {schedule: dualpipe-v}}\n"},
    {"pipeline_model_parallel_layout: Ettt|(tt|)*2,tL\n",
     "strategy: pp=4\nhyper_parallel: {pipeline: {cut: [3, 2, 2, 1]}}\n"},
    {"pipeline_model_parallel_layout: [[embedding], [decoder, Decoder], [], [loss]]\n",
     "strategy: pp=4\nhyper_parallel: {pipeline: {cut: [0, 2, 0, 0]}}\n"},
    {"pipeline_model_parallel_size: 2\npipeline_model_parallel_layout: \"Et*3|t|(t|)*1 t*2L\"\n",
     "strategy: pp=2\nhyper_parallel: {pipeline: {cut: [3, 1, 1, 2], schedule: interleaved}}\n"},
    {"strategy: pp=2\npipeline_model_parallel_layout: Et|t|t|L\npp_schedule: zbv\n"
     "hyper_parallel: {pipeline: {cut: [1, 1, 1, 0]}}\n",
     "strategy: pp=2\nhyper_parallel: {pipeline: {cut: [1, 1, 1, 0], schedule: zbv}}\n"},
    {"strategy: pp=4\nmicrobatch_group_size_per_virtual_pipeline_stage: 4\n"
     "virtual_pipeline_model_parallel_size: 2\n",
     "strategy: pp=4\nhyper_parallel: {pipeline: {stages: 8, schedule: interleaved}}\n"},
    {"strategy: pp=4\nmicrobatch_group_size_per_virtual_pipeline_stage: 6\n"
     "virtual_pipeline_model_parallel_size: 2\n",
     "strategy: pp=4\nhyper_parallel: {pipeline: {stages: 8, schedule: 'interleaved:6'}}\n"},
    {"strategy: pp=4\nmicrobatch_group_size_per_virtual_pipeline_stage: 6\n"
     "pp_schedule: Interleaved1F1B\n",
     "strategy: pp=4\nhyper_parallel: {pipeline: {schedule: 'interleaved:6'}}\n"},
    {"devices: 8\ntensor_model_parallel_size: 2\nhyper_parallel: {pipeline: {stages: 2}}\n",
     "strategy: dp=2,tp=2,pp=2\nhyper_parallel: {pipeline: {stages: 2}}\n"},
    {"strategy: dp=2,zero=3\nuse_distributed_optimizer: true\n", "strategy: dp=2,zero=3\n"},
    {"devices: 2\nuse_distributed_optimizer: false\n", "strategy: dp=2\n"},
};

static void check_same(const char *keys, const char *own) {
  train_config a, b;
  tree of_a, of_b;
  CHECK_OK(config_text_parse(own, &of_b, &b));
  CHECK_OK(config_text_parse(keys, &of_a, &a));
  bool strategies = !memcmp(&a.is.place.group[0].by, &b.is.place.group[0].by, sizeof(strategy));
  bool schedules = !a.is.pipe_schedule == !b.is.pipe_schedule &&
                   (!a.is.pipe_schedule || !strcmp(a.is.pipe_schedule, b.is.pipe_schedule));
  bool cuts = !a.is.pipe_cut == !b.is.pipe_cut && a.is.place.cuts == b.is.place.cuts &&
              (!a.is.pipe_cut || !memcmp(a.is.place.cut, b.is.place.cut,
                                         (size_t)a.is.pipe_stages * sizeof *a.is.pipe_cut));
  if (!strategies || !schedules || a.is.pipe_stages != b.is.pipe_stages || !cuts)
    test_fail(__FILE__, __LINE__, "%s is not %s", keys, own);
  train_config_free(&a);
  train_config_free(&b);
  tree_free(&of_a);
  tree_free(&of_b);
}

TEST(megatron_keys_form_the_strategy) {
  for (size_t i = 0; i < sizeof same / sizeof *same; i++) check_same(same[i].keys, same[i].own);
}

static const struct {
  const char *more, *says;
} refused[] = {
    {"strategy: tp=4\ntensor_model_parallel_size: 2\n",
     "run.yaml:6:29: tensor_model_parallel_size: 2 contradicts run.yaml:5:11: strategy"},
    {"hyper_parallel: {strategy: tp=4}\ntensor_model_parallel_size: 1\n",
     "1 contradicts run.yaml:5:28: hyper_parallel.strategy"},
    {"strategy: dp=2\npipeline_model_parallel_size: 2\n", "2 contradicts run.yaml:5:11: strategy"},
    {"strategy: dp=2\ncontext_parallel_size: 2\n", "2 contradicts run.yaml:5:11: strategy"},
    {"strategy: dp=2\nexpert_model_parallel_size: 2\n", "2 contradicts run.yaml:5:11: strategy"},
    {"context_parallel_size: 2\nhyper_parallel_cp_size: 4\n",
     "run.yaml:6:25: hyper_parallel_cp_size: 4 contradicts run.yaml:5:24: context_parallel_size"},
    {"strategy: tp=2\nsequence_parallel: true\n",
     "run.yaml:6:20: sequence_parallel: true contradicts run.yaml:5:11: strategy"},
    {"strategy: tp=2,sp\nsequence_parallel: false\n", "false contradicts run.yaml:5:11: strategy"},
    {"strategy: dp=2\nuse_distributed_optimizer: true\n", "true contradicts run.yaml:5:11"},
    {"strategy: dp=2,zero=2\nuse_distributed_optimizer: false\n",
     "false contradicts run.yaml:5:11"},
    {"devices: 2\ndeepspeed: {zero_optimization: {stage: 2}}\nuse_distributed_optimizer: false\n",
     "false contradicts run.yaml:6:40: deepspeed.zero_optimization.stage"},
    {"hyper_parallel: {device_matrix: [2], alias_name: [a]}\ntensor_model_parallel_size: 2\n",
     "2 contradicts run.yaml:5:33: hyper_parallel.device_matrix"},
    {"devices: 6\ntensor_model_parallel_size: 4\n",
     "run.yaml:5:10: devices: 6 devices are no multiple of 4: tensor parallel 4 x pipeline 1 x "
     "context 1 (run.yaml:6:29"},
    {"pp_schedule: zbv\n", "a schedule without a pipeline; write pipeline_model_parallel_size: 2"},
    {"strategy: pp=2\npp_schedule: zbv\nhyper_parallel: {pipeline: {schedule: gpipe}}\n",
     "\"zbv\" contradicts \"gpipe\" (run.yaml:7:39"},
    {"virtual_pipeline_model_parallel_size: 2\n", "2 stages a device without a pipeline"},
    {"strategy: pp=2\nvirtual_pipeline_model_parallel_size: 2\n"
     "hyper_parallel: {pipeline: {stages: 6}}\n",
     "2 x pp=2 are 4 stages, which contradicts 6 (run.yaml:7:28"},
    {"pipeline_model_parallel_layout: t|L\n",
     "run.yaml:5:33: pipeline_model_parallel_layout: expected E, the embedding, at its beginning"},
    {"pipeline_model_parallel_layout: Et|t\n", "expected L, the loss, at its end"},
    {"pipeline_model_parallel_layout: EtL\n", "1 stages; expected 2 to 4096"},
    {"pipeline_model_parallel_layout: Et|Et|L\n", "an embedding that is not at its beginning"},
    {"pipeline_model_parallel_layout: Et|L|tL\n", "a loss that is not at its end"},
    {"pipeline_model_parallel_layout: Et|tm|L\n",
     "character 5 of \"Et|tm|L\": layers of multi-token prediction are not trained; leave m out"},
    {"pipeline_model_parallel_layout: Et|x|L\n",
     "character 4 of \"Et|x|L\": expected E (embedding)"},
    {"pipeline_model_parallel_layout: E(t|L\n", "character 2 of \"E(t|L\": this ( has no )"},
    {"pipeline_model_parallel_layout: E(t|)tL\n", "character 5 of \"E(t|)tL\": expected *n"},
    {"pipeline_model_parallel_layout: Et*|tL\n", "character 4 of \"Et*|tL\": expected a number"},
    {"pipeline_model_parallel_layout: Et*99999999999|tL\n", "the number is too large"},
    {"pipeline_model_parallel_layout: E(t*999999|)*999999tL\n", "the layout is too long"},
    {"pipeline_model_parallel_layout: E(t(t|)*2)*2L\n", "character 4 of"},
    {"pipeline_model_parallel_layout: Et)|tL\n", "character 3 of"},
    {"pipeline_model_parallel_layout: 3\n", "expected a string"},
    {"pipeline_model_parallel_layout: []\n", "expected E, the embedding"},
    {"pipeline_model_parallel_layout: [embedding, loss]\n", "expected a list"},
    {"pipeline_model_parallel_layout: [[embedding, mtp], [loss]]\n",
     "run.yaml:5:46: pipeline_model_parallel_layout[0][1]: \"mtp\"; expected embedding, decoder "
     "or"},
    {"strategy: pp=2\npipeline_model_parallel_layout: Et|t|L\n",
     "run.yaml:6:33: pipeline_model_parallel_layout: 3 stages on pp=2; expected a multiple"},
    {"pipeline_model_parallel_layout: Et|tL\nhyper_parallel: {pipeline: {cut: [2, 2]}}\n",
     "contradicts run.yaml:6:34: hyper_parallel.pipeline.cut; keep one of them"},
    {"pipeline_model_parallel_layout: Et|tL\nhyper_parallel: {pipeline: {stages: 3}}\n",
     "2 stages, which contradicts 3 (run.yaml:6:37"},
    {"strategy: pp=2\nvirtual_pipeline_model_parallel_size: 2\n"
     "pipeline_model_parallel_layout: Et|tL\n",
     "2 x pp=2 are 4 stages, which contradicts 2 (run.yaml:7:33"},
    {"decoder_first_pipeline_num_layers: 2\n",
     "layers of a device of a pipeline without a pipeline; write pipeline_model_parallel_size: 2"},
    {"strategy: pp=2\ndecoder_last_pipeline_num_layers: 2\npp_schedule: zbv\n",
     "run.yaml:6:35: decoder_last_pipeline_num_layers: not with the schedule \"zbv\""},
    {"strategy: pp=2\ndecoder_first_pipeline_num_layers: 2\n"
     "pipeline_model_parallel_layout: Et|tL\n",
     "contradicts run.yaml:7:33: pipeline_model_parallel_layout; keep one of them"},
    {"num_layers_per_virtual_pipeline_stage: 2\n", "layers of a stage without a pipeline"},
    {"strategy: pp=2\nnum_layers_per_virtual_pipeline_stage: 2\n"
     "virtual_pipeline_model_parallel_size: 2\n",
     "contradicts run.yaml:7:39: virtual_pipeline_model_parallel_size; keep one of them"},
    {"strategy: pp=2\nnum_layers_per_virtual_pipeline_stage: 2\n"
     "decoder_last_pipeline_num_layers: 2\n",
     "contradicts run.yaml:7:35: decoder_last_pipeline_num_layers"},
    {"strategy: pp=2\nnum_layers_per_virtual_pipeline_stage: 2\n"
     "hyper_parallel: {pipeline: {stages: 4}}\n",
     "contradicts run.yaml:7:37: hyper_parallel.pipeline.stages"},
    {"microbatch_group_size_per_virtual_pipeline_stage: 2\n", "without a pipeline"},
    {"strategy: pp=4\nmicrobatch_group_size_per_virtual_pipeline_stage: 3\n"
     "virtual_pipeline_model_parallel_size: 2\n",
     "run.yaml:6:51: microbatch_group_size_per_virtual_pipeline_stage: 3; expected at least pp=4"},
    {"strategy: pp=2\nmicrobatch_group_size_per_virtual_pipeline_stage: 4\n",
     "the schedule is 1f1b; write virtual_pipeline_model_parallel_size: 2"},
    {"strategy: pp=2\nmicrobatch_group_size_per_virtual_pipeline_stage: 4\npp_schedule: zbv\n",
     "the schedule is zbv; write virtual_pipeline_model_parallel_size: 2"},
    {"pipeline_model_parallel_layout: Et|tL\n"
     "hyper_parallel: {groups: {a: {devices: 0-1, module: model}}}\n",
     "run.yaml:5:33: pipeline_model_parallel_layout: contradicts groups"},
    {"pipeline_model_parallel_size: 65\n", "out of range; expected a whole number from 1 to 64"},
    {"tensor_model_parallel_size: 0\n", "out of range"},
    {"tensor_model_parallel_size: 1048576\ncontext_parallel_size: 2\n",
     "run.yaml:5:29: tensor_model_parallel_size: strategy \"tp=1048576,cp=2\": more than"},
    {"expert_tensor_parallel_size: x\n", "expected an integer"},
    {"sequence_parallel: 3\n", "sequence_parallel"},
};

TEST(megatron_keys_that_contradict_are_refused_with_both_lines) {
  for (size_t i = 0; i < sizeof refused / sizeof *refused; i++)
    config_text_refused(refused[i].more, refused[i].says);
}

TEST(megatron_keys_are_printed_and_read_back) {
  for (size_t i = 0; i < sizeof same / sizeof *same; i++) {
    train_config a, b;
    str text = {0};
    tree source, t;
    CHECK_OK(config_text_parse(same[i].keys, &source, &a));
    train_config_print(&a, &text);
    CHECK_OK(yaml_parse(text.at, text.len, "printed.yaml", &t));
    CHECK_OK(train_config_parse(t.root, &b));
    CHECK(!memcmp(&a.is.place.group[0].by, &b.is.place.group[0].by, sizeof(strategy)));
    CHECK_EQ(a.is.pipe_stages, b.is.pipe_stages);
    train_config_free(&a);
    train_config_free(&b);
    tree_free(&t);
    tree_free(&source);
    str_free(&text);
  }
}
