/* The chat templates of LlamaFactory 0.9.5, as far as stage pt sees them: their names, and the end
 * token that some put in place of the tokenizer's own. */
#include "dataset/dataset.h"

#include "base/str.h"

#include <string.h>

static const struct {
  const char *name, *eos;
} replaces[] = {
    {"gemma", "<end_of_turn>"},
    {"gemma3", "<end_of_turn>"},
    {"gemma3n", "<end_of_turn>"},
    {"paligemma_chat", "<end_of_turn>"},
    {"gemma4", "<turn|>"},
    {"gemma4n", "<turn|>"},
    {"ernie_vl", "<|end_of_sentence|>"},
    {"youtu", "<|end_of_text|>"},
    {"phi", "<|end|>"},
    {"phi4_mini", "<|end|>"},
    {"phi_small", "<|end|>"},
    {"llama3", "<|eot_id|>"},
    {"llava_next_llama3", "<|eot_id|>"},
    {"mllama", "<|eot_id|>"},
    {"llama4", "<|eot|>"},
    {"chatml", "<|im_end|>"},
    {"chatml_de", "<|im_end|>"},
    {"dbrx", "<|im_end|>"},
    {"keye_vl", "<|im_end|>"},
    {"lfm2", "<|im_end|>"},
    {"lfm2_vl", "<|im_end|>"},
    {"llava_next_qwen", "<|im_end|>"},
    {"mimo", "<|im_end|>"},
    {"mimo_v2", "<|im_end|>"},
    {"mimo_vl", "<|im_end|>"},
    {"moonlight", "<|im_end|>"},
    {"phi4", "<|im_end|>"},
    {"qwen", "<|im_end|>"},
    {"qwen2_audio", "<|im_end|>"},
    {"qwen2_omni", "<|im_end|>"},
    {"qwen2_vl", "<|im_end|>"},
    {"qwen3", "<|im_end|>"},
    {"qwen3_5", "<|im_end|>"},
    {"qwen3_5_nothink", "<|im_end|>"},
    {"qwen3_6", "<|im_end|>"},
    {"qwen3_nothink", "<|im_end|>"},
    {"qwen3_omni", "<|im_end|>"},
    {"qwen3_omni_nothink", "<|im_end|>"},
    {"qwen3_vl", "<|im_end|>"},
    {"qwen3_vl_nothink", "<|im_end|>"},
    {"hy3", "<｜hy_eos｜>"},
};

static const char *const keeps[] = {
    "aeva",
    "alpaca",
    "bailing",
    "bailing_v2",
    "breeze",
    "chatglm3",
    "cohere",
    "cpm4",
    "deepseek",
    "deepseek3",
    "deepseekcoder",
    "deepseekr1",
    "default",
    "dots_ocr",
    "empty",
    "ernie",
    "ernie_nothink",
    "exaone",
    "falcon",
    "falcon_h1",
    "fewshot",
    "gemma2",
    "glm4",
    "glm4_5v",
    "glm4_7",
    "glm4_moe",
    "glm4v",
    "glm_ocr",
    "glmz1",
    "gpt_oss",
    "granite3",
    "granite3_vision",
    "granite4",
    "hunyuan",
    "hunyuan_small",
    "index",
    "intern2",
    "intern_s1",
    "intern_vl",
    "kimi_vl",
    "llama2",
    "llama2_zh",
    "llava",
    "llava_next",
    "llava_next_mistral",
    "llava_next_video",
    "llava_next_video_mistral",
    "llava_next_video_yi",
    "llava_next_yi",
    "minicpm_o",
    "minicpm_v",
    "minicpm_v_4_6",
    "minimax1",
    "minimax2",
    "ministral",
    "ministral3",
    "mistral",
    "mistral_small",
    "olmo",
    "openchat",
    "openchat-3.6",
    "opencoder",
    "paligemma",
    "pixtral",
    "sailor",
    "seed_coder",
    "seed_oss",
    "smollm",
    "smollm2",
    "solar",
    "starchat",
    "telechat2",
    "vicuna",
    "video_llava",
    "xuanyuan",
    "yi",
    "yi_vl",
    "youtu_vl",
    "yuan",
    "zephyr",
};

enum { REPLACES = sizeof replaces / sizeof *replaces, KEEPS = sizeof keeps / sizeof *keeps };

hp_status dataset_template_eos(const char *name, const char **eos) {
  const char *known[REPLACES + KEEPS];
  *eos = NULL;
  for (int i = 0; i < REPLACES; i++) {
    known[i] = replaces[i].name;
    if (strcmp(name, known[i])) continue;
    *eos = replaces[i].eos;
    return HP_OK;
  }
  for (int i = 0; i < KEEPS; i++) {
    known[REPLACES + i] = keeps[i];
    if (!strcmp(name, keeps[i])) return HP_OK;
  }
  const char *near = str_nearest(name, known, REPLACES + KEEPS);
  HP_FAIL(HP_ERR_INPUT, "there is no template \"%s\"%s%s%s", name, near ? " (did you mean \"" : "",
          near ? near : "", near ? "\"?)" : "; leave the key out for plain text");
}
