/* Descriptions of tools. */
#include "dataset/chat_tools.h"

#include "base/json.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

void tool_put_json(str *out, const tree_node *v, int indent) {
  json_writer w = {.out = out, .utf8 = true, .indent = indent};
  json_put_tree(&w, v);
}

void tool_put_value(str *out, const tree_node *v) {
  if (v->kind == TREE_STRING) str_add_n(out, v->string, v->len);
  else tool_put_json(out, v, 0);
}

hp_status tool_format_find(const char *name, tool_format *out) {
  static const char *const known[] = {
#define FORMAT(name) #name,
#include "dataset/tool_formats.def"
#undef FORMAT
  };
  for (int i = 0; i < TOOL_FORMATS; i++)
    if (!strcmp(name, known[i])) {
      *out = (tool_format)i;
      return HP_OK;
    }
  const char *near = str_nearest(name, known, TOOL_FORMATS);
  HP_FAIL(HP_ERR_INPUT, "there is no tool_format \"%s\"%s%s%s", name,
          near ? "; did you mean \"" : "", near ? near : "",
          near ? "\"?" : "; default, llama3, qwen and mistral are some");
}

hp_status chat_describe_tools(tool_format f, const tree_node *tools, str *out) {
  static tool_describer *const of[] = {
#define FORMAT(name) tools_##name,
#include "dataset/tool_formats.def"
#undef FORMAT
  };
  HP_TRY(tree_expect(tools, TREE_LIST));
  for (uint32_t i = 0; i < tools->len; i++) HP_TRY(tree_expect(tools->child[i], TREE_MAP));
  HP_TRY(of[f](tools, out));
  return str_status(out);
}

/* --- one tool --------------------------------------------------------------------------------- */

static bool is_text(const tree_node *v, const char *text) {
  return v && v->kind == TREE_STRING && !strcmp(v->string, text);
}

/* {"type": "function", "function": X} as X. */
static hp_status unwrap(const tree_node *tool, const tree_node **out) {
  *out = tool;
  return is_text(tree_get(tool, "type"), "function") ? tree_need_map(tool, "function", out) : HP_OK;
}

/* A tool as {"type": "function", "function": X}. */
static void put_wrapped(str *out, const tree_node *tool, int indent) {
  if (is_text(tree_get(tool, "type"), "function")) {
    tool_put_json(out, tool, indent);
    return;
  }
  json_writer w = {.out = out, .utf8 = true, .indent = indent};
  json_open_map(&w);
  json_key_string(&w, "type", "function");
  json_put_key(&w, "function");
  json_put_tree(&w, tool);
  json_close(&w);
}

/* All tools, each behind `before` and in front of `after`. */
static void put_all_wrapped(str *out, const tree_node *tools, const char *before, int indent,
                            const char *after) {
  for (uint32_t i = 0; i < tools->len; i++) {
    str_add(out, before);
    put_wrapped(out, tools->child[i], indent);
    str_add(out, after);
  }
}

static hp_status put_all_unwrapped(str *out, const tree_node *tools, const char *before,
                                   const char *after) {
  for (uint32_t i = 0; i < tools->len; i++) {
    const tree_node *tool;
    HP_TRY(unwrap(tools->child[i], &tool));
    str_add(out, before);
    tool_put_json(out, tool, 0);
    str_add(out, after);
  }
  return HP_OK;
}

/* --- LlamaFactory's own format ---------------------------------------------------------------- */

/* A value as Python prints it: texts within lists in quotes. */
static void put_python(str *out, const tree_node *v) {
  if (v->kind == TREE_NULL) str_add(out, "None");
  else if (v->kind == TREE_BOOL) str_add(out, v->boolean ? "True" : "False");
  else if (v->kind != TREE_LIST) tool_put_value(out, v);
  else {
    str_add_char(out, '[');
    for (uint32_t i = 0; i < v->len; i++) {
      bool text = v->child[i]->kind == TREE_STRING;
      str_add(out, i ? ", " : "");
      str_add(out, text ? "'" : "");
      put_python(out, v->child[i]);
      str_add(out, text ? "'" : "");
    }
    str_add_char(out, ']');
  }
}

/* The value of a key, or nothing. */
static void put_member(str *out, const tree_node *m, const char *key) {
  const tree_node *v = tree_get(m, key);
  if (v) put_python(out, v);
}

/* Is the value there, and not empty, as Python sees it? */
static bool holds(const tree_node *v) {
  if (!v) return false;
  switch (v->kind) {
  case TREE_NULL: return false;
  case TREE_BOOL: return v->boolean;
  case TREE_INT: return v->integer != 0;
  case TREE_FLOAT: return v->number != 0;
  default: return v->len != 0;
  }
}

static hp_status put_parameter(str *out, const tree_node *p, const tree_node *required) {
  const tree_node *choices = tree_get(p, "enum"), *items = tree_get(p, "items");
  HP_TRY(tree_expect(p, TREE_MAP));
  str_printf(out, "  - %s (", p->key);
  put_member(out, p, "type");
  for (uint32_t i = 0; required && i < required->len; i++)
    if (is_text(required->child[i], p->key)) {
      str_add(out, ", required");
      break;
    }
  str_add(out, "): ");
  put_member(out, p, "description");
  if (holds(choices)) {
    HP_TRY(tree_expect(choices, TREE_LIST));
    str_add(out, ", should be one of [");
    for (uint32_t i = 0; i < choices->len; i++) {
      HP_TRY(tree_expect(choices->child[i], TREE_STRING));
      str_add(out, i ? ", " : "");
      tool_put_value(out, choices->child[i]);
    }
    str_add_char(out, ']');
  }
  if (holds(items)) {
    HP_TRY(tree_expect(items, TREE_MAP));
    str_add(out, ", where each item should be ");
    put_member(out, items, "type");
  }
  str_add_char(out, '\n');
  return HP_OK;
}

static hp_status put_default_tool(str *out, const tree_node *tool) {
  const tree_node *parameters, *properties, *required;
  const char *name;
  HP_TRY(tree_need_string(tool, "name", &name));
  HP_TRY(tree_need_map(tool, "parameters", &parameters));
  HP_TRY(tree_need_map(parameters, "properties", &properties));
  HP_TRY(tree_opt_list(parameters, "required", &required));
  str_printf(out, "> Tool Name: %s\nTool Description: ", name);
  put_member(out, tool, "description");
  str_add(out, "\nTool Args:\n");
  for (uint32_t i = 0; i < properties->len; i++)
    HP_TRY(put_parameter(out, properties->child[i], required));
  str_add_char(out, '\n');
  return HP_OK;
}

hp_status tools_default(const tree_node *tools, str *out) {
  const tree_node *tool;
  const char *name;
  str_add(out, "You have access to the following tools:\n");
  for (uint32_t i = 0; i < tools->len; i++) {
    HP_TRY(unwrap(tools->child[i], &tool));
    HP_TRY(put_default_tool(out, tool));
  }
  str_add(out, "Use the following format if using a tool:\n```\nAction: tool name (one of [");
  for (uint32_t i = 0; i < tools->len; i++) {
    HP_TRY(unwrap(tools->child[i], &tool));
    HP_TRY(tree_need_string(tool, "name", &name));
    str_printf(out, "%s%s", i ? ", " : "", name);
  }
  str_add(out, "])\nAction Input: the input to the tool, in a JSON format representing the kwargs "
               "(e.g. ```{\"input\": \"hello world\", \"num_beams\": 5}```)\n```\n");
  return HP_OK;
}

/* --- those of models -------------------------------------------------------------------------- */

/* The date in the system message of Llama 3: today's, or that of SOURCE_DATE_EPOCH, so that the
 * same data can be made again. */
static void put_date(str *out) {
  const char *given = getenv("SOURCE_DATE_EPOCH");
  int64_t seconds;
  time_t now = given && str_to_i64(given, &seconds) ? (time_t)seconds : time(NULL);
  struct tm at;
  char text[32];
  if (localtime_r(&now, &at) && strftime(text, sizeof text, "%d %b %Y", &at)) str_add(out, text);
}

hp_status tools_llama3(const tree_node *tools, str *out) {
  str_add(out, "Cutting Knowledge Date: December 2023\nToday Date: ");
  put_date(out);
  str_add(out,
          "\n\nYou have access to the following functions. To call a function, please respond with "
          "JSON for a function call. Respond in the format {\"name\": function name, "
          "\"parameters\": dictionary of argument name and its value}. Do not use variables.\n\n");
  put_all_wrapped(out, tools, "", 4, "\n\n");
  return HP_OK;
}

hp_status tools_glm4(const tree_node *tools, str *out) {
  str_add(out, "你是一个名为 ChatGLM 的人工智能助手。你是基于智谱 AI 公司训练的语言模型 GLM-4 "
               "模型开发的，你的任务是针对用户的问题和要求提供适当的答复和支持。\n\n# 可用工具");
  for (uint32_t i = 0; i < tools->len; i++) {
    const tree_node *tool;
    const char *name;
    HP_TRY(unwrap(tools->child[i], &tool));
    HP_TRY(tree_need_string(tool, "name", &name));
    str_printf(out, "\n\n## %s\n\n", name);
    tool_put_json(out, tool, 4);
    str_add(out, "\n在调用上述函数时，请使用 Json 格式表示调用的参数。");
  }
  return HP_OK;
}

hp_status tools_mistral(const tree_node *tools, str *out) {
  str_add(out, "[AVAILABLE_TOOLS] [");
  for (uint32_t i = 0; i < tools->len; i++) {
    str_add(out, i ? ", " : "");
    put_wrapped(out, tools->child[i], 0);
  }
  str_add(out, "][/AVAILABLE_TOOLS]");
  return HP_OK;
}

/* What Qwen, GLM 4.5 and Ling say before the list of tools. */
static const char xml_tools[] =
    "# Tools\n\nYou may call one or more functions to assist with the user query.\n\nYou are "
    "provided with function signatures within <tools></tools> XML tags:\n<tools>";
static const char xml_calls[] =
    "\n</tools>\n\nFor each function call, return a json object with function name and arguments "
    "within <tool_call></tool_call> XML tags:\n<tool_call>\n{\"name\": <function-name>, "
    "\"arguments\": <args-json-object>}\n</tool_call>";

hp_status tools_qwen(const tree_node *tools, str *out) {
  str_printf(out, "\n\n%s", xml_tools);
  put_all_wrapped(out, tools, "\n", 0, "");
  str_add(out, xml_calls);
  return HP_OK;
}

hp_status tools_ling(const tree_node *tools, str *out) {
  str_add(out, xml_tools);
  put_all_wrapped(out, tools, "\n", 0, "");
  str_printf(out, "%s\ndetailed thinking off", xml_calls);
  return HP_OK;
}

hp_status tools_glm4_moe(const tree_node *tools, str *out) {
  str_printf(out, "\n\n%s", xml_tools);
  put_all_wrapped(out, tools, "\n", 0, "");
  str_add(out,
          "\n</tools>\n\nFor each function call, output the function name and arguments within the "
          "following XML format:\n<tool_call>{function-name}\n<arg_key>{arg-key-1}</arg_key>\n"
          "<arg_value>{arg-value-1}</arg_value>\n<arg_key>{arg-key-2}</arg_key>\n"
          "<arg_value>{arg-value-2}</arg_value>\n...\n</tool_call>\n");
  return HP_OK;
}

hp_status tools_qwen3_5(const tree_node *tools, str *out) {
  str_add(out, "\n\n# Tools\n\nYou have access to the following functions:\n\n<tools>");
  HP_TRY(put_all_unwrapped(out, tools, "\n", ""));
  str_add(
      out,
      "\n</tools>\n\nIf you choose to call a function ONLY reply in the following format with NO "
      "suffix:\n\n<tool_call>\n<function=example_function_name>\n<parameter=example_parameter_1>\n"
      "value_1\n</parameter>\n<parameter=example_parameter_2>\nThis is the value for the second "
      "parameter\nthat can span\nmultiple lines\n</parameter>\n</function>\n</tool_call>\n\n"
      "<IMPORTANT>\nReminder:\n- Function calls MUST follow the specified format: an inner "
      "<function=...></function> block must be nested within <tool_call></tool_call> XML tags\n"
      "- Required parameters MUST be specified\n- You may provide optional reasoning for your "
      "function call in natural language BEFORE the function call, but NOT after\n- If there is no "
      "function call available, answer the question like normal with your current knowledge and "
      "do not tell the user about function calls\n</IMPORTANT>");
  return HP_OK;
}

hp_status tools_seed_oss(const tree_node *tools, str *out) {
  str_add(
      out,
      "system\nYou are Doubao, a helpful AI assistant. You may call one or more functions to "
      "assist with the user query.Tool List:\nYou are authorized to use the following tools "
      "(described in JSON Schema format). Before performing any task, you must decide how to call "
      "them based on the descriptions and parameters of these tools.\n");
  tool_put_json(out, tools, 0);
  str_add(out,
          "\n工具调用请遵循如下格式:\n<seed:tool_call>\n<function=example_function_name>\n"
          "<parameter=example_parameter_1>value_1</parameter>\n<parameter=example_parameter_2>This "
          "is the value for the second parameter\nthat can span\nmultiple lines</parameter>\n"
          "</function>\n</seed:tool_call>\n");
  return HP_OK;
}

hp_status tools_minimax1(const tree_node *tools, str *out) {
  str_add(out, "You are provided with these tools:\n<tools>\n");
  HP_TRY(put_all_unwrapped(out, tools, "", "\n"));
  str_add(out,
          "</tools>\n\nIf you need to call tools, please respond with <tool_calls></tool_calls> "
          "XML tags, and provide tool-name and json-object of arguments, following the format "
          "below:\n<tool_calls>\n{\"name\": <tool-name-1>, \"arguments\": <args-json-object-1>}\n"
          "...\n</tool_calls>");
  return HP_OK;
}

hp_status tools_minimax2(const tree_node *tools, str *out) {
  str_add(out, "\n\n# Tools\n\nYou may call one or more tools to assist with the user query.\nHere "
               "are the tools available in JSONSchema format:\n\n<tools>\n");
  HP_TRY(put_all_unwrapped(out, tools, "<tool>", "</tool>\n"));
  str_add(out,
          "</tools>\n\nWhen making tool calls, use XML format to invoke tools and pass "
          "parameters:\n\n<minimax:tool_call>\n<invoke name=\"tool-name-1\">\n<parameter "
          "name=\"param-key-1\">param-value-1</parameter>\n<parameter "
          "name=\"param-key-2\">param-value-2</parameter>\n...\n</invoke>\n</minimax:tool_call>");
  return HP_OK;
}

hp_status tools_lfm2(const tree_node *tools, str *out) {
  str_add(out, "List of tools: <|tool_list_start|>[");
  for (uint32_t i = 0; i < tools->len; i++) {
    const tree_node *tool;
    HP_TRY(unwrap(tools->child[i], &tool));
    str_add(out, i ? ", " : "");
    tool_put_json(out, tool, 0);
  }
  str_add(out, "]<|tool_list_end|>");
  return HP_OK;
}

/* --- Gemma 4 ---------------------------------------------------------------------------------- */

#define MARK "<|\"|>"

/* key:<|"|>TEXT<|"|>, behind a comma unless it is the first; nothing if there is no text. */
static void put_marked(str *out, const tree_node *m, const char *key, bool upper, bool *any) {
  const tree_node *v = tree_get(m, key);
  if (!holds(v)) return;
  str_printf(out, "%s%s:" MARK, *any ? "," : "", key);
  size_t from = out->len;
  put_python(out, v);
  for (size_t i = from; upper && i < out->len; i++)
    if (out->at[i] >= 'a' && out->at[i] <= 'z') out->at[i] = (char)(out->at[i] - 'a' + 'A');
  str_add(out, MARK);
  *any = true;
}

static hp_status put_gemma4_parameters(str *out, const tree_node *parameters) {
  const tree_node *properties = tree_get(parameters, "properties");
  const tree_node *required = tree_get(parameters, "required");
  bool any = false;
  str_add(out, ",parameters:{");
  if (holds(properties)) {
    HP_TRY(tree_expect(properties, TREE_MAP));
    str_add(out, "properties:{");
    for (uint32_t i = 0; i < properties->len; i++) {
      bool inner = false;
      HP_TRY(tree_expect(properties->child[i], TREE_MAP));
      str_printf(out, "%s%s:{", i ? "," : "", properties->child[i]->key);
      put_marked(out, properties->child[i], "description", false, &inner);
      put_marked(out, properties->child[i], "type", true, &inner);
      str_add_char(out, '}');
    }
    str_add_char(out, '}');
    any = true;
  }
  if (holds(required)) {
    HP_TRY(tree_expect(required, TREE_LIST));
    str_printf(out, "%srequired:[", any ? "," : "");
    for (uint32_t i = 0; i < required->len; i++) {
      str_add(out, i ? "," MARK : MARK);
      put_python(out, required->child[i]);
      str_add(out, MARK);
    }
    str_add_char(out, ']');
    any = true;
  }
  put_marked(out, parameters, "type", true, &any);
  str_add_char(out, '}');
  return HP_OK;
}

hp_status tools_gemma4(const tree_node *tools, str *out) {
  for (uint32_t i = 0; i < tools->len; i++) {
    const tree_node *tool, *parameters, *response;
    const char *name;
    HP_TRY(unwrap(tools->child[i], &tool));
    HP_TRY(tree_need_string(tool, "name", &name));
    str_printf(out, "%sdeclaration:%s{description:" MARK, i ? "\n" : "", name);
    put_member(out, tool, "description");
    str_add(out, MARK);
    parameters = tree_get(tool, "parameters");
    if (holds(parameters)) HP_TRY(put_gemma4_parameters(out, parameters));
    response = tree_get(tool, "response");
    if (holds(response)) {
      const tree_node *type = tree_get(response, "type");
      bool any = false,
           object = type && type->kind == TREE_STRING && !strcasecmp(type->string, "object");
      str_add(out, ",response:{");
      put_marked(out, response, "description", false, &any);
      if (object) put_marked(out, response, "type", true, &any);
      str_add_char(out, '}');
    }
    str_add_char(out, '}');
  }
  return HP_OK;
}
