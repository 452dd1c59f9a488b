/* Chat templates: renderings of jinja_cases.h as Python gives them, failures with their places,
 * limits. */
#include "base/json.h"
#include "jinja/jinja.h"
#include "test.h"
#include "unit/jinja_cases.h"

static hp_status render(const char *text, const char *context, str *out) {
  const jinja_options o = {.now = 1764230400};
  jinja *t = NULL;
  tree vars;
  HP_TRY(json_parse(context, strlen(context), "context", &vars));
  hp_status st = jinja_parse("chat_template", text, strlen(text), &t);
  if (!st) st = jinja_render(t, vars.root, &o, out);
  jinja_free(t);
  tree_free(&vars);
  return st;
}

static void check_renders(const char *text, const char *context, const char *want) {
  str out = {0};
  hp_status st = render(text, context, &out);
  if (st) test_fail(__FILE__, __LINE__, "%s: %s", text, err_message());
  if (strcmp(out.at, want))
    test_fail(__FILE__, __LINE__, "%s gives\n  \"%s\", want\n  \"%s\"", text, out.at, want);
  str_free(&out);
}

static void check_refused(const char *text, const char *part) {
  str out = {0};
  str_add(&out, "before");
  CHECK_FAILS(render(text, "{\"list\": [1], \"name\": \"Ada\", \"map\": {\"a\": 1}}", &out), part);
  CHECK_STR(out.at, "before");
  str_free(&out);
}

TEST(templates_render_as_in_python) {
  for (size_t i = 0; i < sizeof jinja_cases / sizeof *jinja_cases; i++)
    check_renders(jinja_cases[i].text, jinja_context, jinja_cases[i].want);
}

/* --- failures ---------------------------------------------------------------------------- */

TEST(broken_templates_are_refused_with_their_place) {
  static const struct {
    const char *text, *part;
  } bad[] = {
      {"a\n{{ name", "chat_template:2:1: the tag has no end \"}}\""},
      {"{% if name %}\n x", "chat_template:1:4: the \"if\" has no \"endif\""},
      {"{% for x in list %}{% endif %}",
       "chat_template:1:23: unknown tag \"endif\"; the \"for\" of line 1 is still open"},
      {"x{# never ends", "chat_template:1:2: the comment has no end"},
      {"{% raw %} {{ x }}", "chat_template:1:1: \"{% raw %}\" has no"},
      {"{{ 'abc }}", "chat_template:1:4: the string has no end"},
      {"{{ (1, 2] }}", "chat_template:1:9: unexpected ']', expected ')'"},
      {"{{ 1 + }}", "chat_template:1:8: expected a value, found \"}}\""},
      {"{{ a b }}", "chat_template:1:6: expected \"}}\", found \"b\""},
      {"{{ }}", "chat_template:1:4: expected a value"},
      {"{{ a $ b }}", "chat_template:1:6: unexpected character '$'"},
      {"{{ \xc3\xa9 }}", "chat_template:1:4: unexpected character '\xc3\xa9'"},
      {"{{ name | nope }}", "chat_template:1:11: there is no filter \"nope\""},
      {"{{ name is nope }}", "chat_template:1:12: there is no test \"nope\""},
      {"{{ 99999999999999999999 }}", "integers have 64 bits"},
      {"{{ '\\x4' }}", "the escape needs 2 hexadecimal digits"},
      {"{{ '\\ud83d' }}", "the escape is no character of Unicode"},
      {"{{ '\\N{BULLET}' }}", "characters by name"},
      {"{% call 5 %}{% endcall %}", "chat_template:1:9: expected the call of a macro"},
      {"{% with a %}{% endwith %}", "expected \"=\", found \"%}\""},
      {"{% set 1 = 2 %}", "chat_template:1:8: expected the name of a variable to set"},
      {"{% set true = 2 %}", "chat_template:1:8: expected the name of a variable to set"},
      {"{% for x of list %}{% endfor %}", "chat_template:1:10: expected \"in\", found \"of\""},
      {"{% break %}", "chat_template:1:4: \"break\" is not in a loop"},
      {"{% for x in list %}{% macro m() %}{% continue %}{% endmacro %}{% endfor %}",
       "\"continue\" is not in a loop"},
      {"{% macro m(a=1, b) %}{% endmacro %}", "a parameter without a default after one with"},
      {"{{ f(a=1, 2) }}", "an argument without a name after one with a name"},
      {"{% nope %}", "chat_template:1:4: unknown tag \"nope\""},
      {"{% %}", "expected the name of a tag"},
      {"{{ a is b is c }}", "there is no test \"b\""},
      {"{{ 1 is none is none }}", "tests cannot be chained"},
      {"\xff", "chat_template: the template is not UTF-8"},
  };
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) check_refused(bad[i].text, bad[i].part);
}

TEST(what_jinja_has_and_the_subset_lacks_is_refused_by_name) {
  static const struct {
    const char *text, *part;
  } bad[] = {
      {"{% include 'x' %}", "chat_template:1:4: the tag \"include\" is not supported"},
      {"{% import 'x' as y %}", "the tag \"import\" is not supported"},
      {"{% extends 'x' %}", "the tag \"extends\" is not supported"},
      {"{% block b %}{% endblock %}", "the tag \"block\" is not supported"},
      {"{% for x in list recursive %}{% endfor %}", "recursive loops are not supported"},
      {"\n{{ list | groupby('a') }}",
       "chat_template:2:11: the filter \"groupby\" is not supported"},
      {"{{ f(*list) }}", "arguments from a list or dict, \"*\", are not supported"},
      {"{{ f(**map) }}", "arguments from a list or dict, \"**\", are not supported"},
      {"{{ name.__class__ }}", "attribute \"__class__\""},
      {"{{ list[1, 2] }}", "a subscript of several values"},
      {"{{ name.encode() }}", "the method encode is not supported"},
      {"{{ name.translate({}) }}", "the method translate is not supported"},
      {"{{ joiner() }}", "the function joiner is not supported"},
  };
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) check_refused(bad[i].text, bad[i].part);
}

/* As long as nothing needs it. */
TEST(filters_in_branches_that_are_not_taken_may_be_unknown) {
  check_renders("{% if no %}{{ 1 | from_json }}{% else %}ok{% endif %}", "{}", "ok");
  check_refused("{% if list %}{{ 1 | from_json }}{% endif %}",
                "chat_template:1:21: the filter from_json is not supported");
  check_refused("{% if no %}{% endif %}{{ 1 | from_json }}", "there is no filter \"from_json\"");
}

TEST(failures_of_renderings_name_the_line) {
  static const struct {
    const char *text, *part;
  } bad[] = {
      {"a\n\n{{ missing.x }}", "chat_template:3:12: 'missing' is undefined"},
      {"{{ map.b.c }}", "chat_template:1:10: 'dict object' has no attribute 'b'"},
      {"{{ list[5].x }}", "'list object' has no element '5'"},
      {"{{ missing + 1 }}", "'missing' is undefined"},
      {"{{ missing() }}", "'missing' is undefined"},
      {"{{ name() }}", "a str cannot be called"},
      {"{{ name + 1 }}", "chat_template:1:9: 'str' + 'int' is not possible"},
      {"{{ 1 < 'a' }}", "'int' and 'str' have no order"},
      {"{{ 1 / 0 }}", "division by zero"},
      {"{{ 1.5 // 0 }}", "division by zero"},
      {"{{ 9223372036854775807 + 1 }}", "has more than 64 bits"},
      {"{{ 3 ** 99 }}", "has more than 64 bits"},
      {"{{ 0 ** -1 }}", "0 to the power of -1"},
      {"{{ -name }}", "a str has no sign"},
      {"{{ 1 in 'a' }}", "only a string can be in a string"},
      {"{{ 1 in 5 }}", "a int cannot be looped over"},
      {"{% for x in 5 %}{% endfor %}", "chat_template:1:4: a int cannot be looped over"},
      {"{% for a, b in [[1]] %}{% endfor %}", "1 values for 2 variables"},
      {"{% set name.x = 1 %}", "attributes can be set of a namespace only"},
      {"{{ list.append(1) }}", "lists and dicts cannot be changed: templates run in a sandbox"},
      {"{{ map.update({}) }}", "lists and dicts cannot be changed"},
      {"{{ {[1]: 2} }}", "a list cannot be a key of a dict"},
      {"{{ name.upper }}", "a method has no text"},
      {"{{ list | map('nope') }}", "there is no filter \"nope\""},
      {"{{ list | select('nope') | list }}", "there is no test \"nope\""},
      {"{{ list | map }}", "map needs the name of a filter"},
      {"{{ name | replace('a') }}", "the filter replace needs 2 arguments: old new count"},
      {"{{ name | trim('a', 'b') }}", "the filter trim takes 1 arguments, 2 are given"},
      {"{{ list | join(x=1) }}", "the filter join has no argument 'x'; it has: d attribute"},
      {"{{ list | join('a', d='b') }}", "gets its argument 'd' twice"},
      {"{{ name.split('') }}", "a string cannot be split at an empty one"},
      {"{{ list[::0] }}", "the step of a slice is 0"},
      {"{{ list['a':] }}", "a slice needs integers, not a str"},
      {"{{ map[1:] }}", "a dict cannot be cut by a slice"},
      {"{{ 5 | length }}", "a int has no length"},
      {"{{ 5 | items }}", "items needs a dict, not a int"},
      {"{{ list | map('string') | tojson }}", "tojson: a generator has no JSON"},
      {"{{ missing | tojson }}", "'missing' is undefined"},
      {"{{ {(1,): 2} | tojson }}", "tojson: a tuple cannot be a key"},
      {"{{ range(1000000) }}", "a range of more than 100000 values"},
      {"{{ range(1, 2, 0) }}", "the step of a range is 0"},
      {"{% macro m(a) %}{% endmacro %}{{ m(1, 2) }}", "macro 'm' takes 1 arguments, 2 are given"},
      {"{% macro m(a) %}{% endmacro %}{{ m(b=2) }}", "macro 'm' has no argument 'b' to set"},
      {"{% macro m(a) %}{% endmacro %}{{ m(1, a=2) }}", "macro 'm' has no argument 'a' to set"},
      {"{{ raise_exception('no ' ~ name) }}",
       "chat_template:1:19: the template refuses the conversation: no Ada"},
      {"{{ ('a' if false).x }}", "the condition of an inline if is false, and it has no else"},
      {"{{ '%s %s' % name }}", "the format needs more values"},
      {"{{ '%s' % (1, 2) }}", "the format does not need all values"},
      {"{{ '%d' % name }}", "a str cannot be written by \"%d\""},
      {"{{ '%y' % name }}", "a format that is not supported behind a %"},
      {"{{ '%' % name }}", "a format that is not supported behind a %"},
      {"{{ '%(a)s' % list }}", "a name in a format needs a dict of values"},
      {"{{ '%(b)s' % map }}", "no value for 'b' of the format"},
      {"{{ '%(b' % map }}", "a name in a format has no \")\""},
      {"{{ '%99999d' % 1 }}", "format: a width above 10000"},
      {"{{ '%.999f' % 1 }}", "format: a precision above 300"},
      {"{{ '%.3d' % 1 }}", "a precision of a whole number is not supported"},
      {"{{ '{}{}'.format(1) }}", "format: no value for \"{}\""},
      {"{{ '{x}'.format(1) }}", "format: no value for \"{x}\""},
      {"{{ '{'.format(1) }}", "format: a single \"{\""},
      {"{{ '}'.format(1) }}", "format: a single \"}\""},
      {"{{ '{:d}'.format(name) }}", "format: a str cannot be written so"},
      {"{{ '{:>9}'.format(list) }}", "format: a list cannot be written so"},
      {"{{ '{:9999999d}'.format(1) }}", "format: a width above 10000"},
      {"{{ '{:q}'.format(1) }}", "format: \"q\" is not supported"},
      {"{{ '{!x}'.format(1) }}", "format: the conversion must be !r or !s"},
      {"{{ '{:{}}'.format(1, 2) }}", "format: "},
      {"{{ '{0.x}'.format(1) }}", "'int object' has no attribute 'x'"},
      {"{{ name | format(1, a=2) }}", "values by position or by name, not both"},
      {"{{ name.center(9, 'ab') }}", "the fill character must be one character"},
      {"{{ list | slice(0) | list }}", "slice needs a number from 1 on"},
      {"{{ name.rindex('x') }}", "rindex: the string is not in the other one"},
      {"{% call name() %}{% endcall %}", "a str cannot be called"},
      {"{% macro m() %}{{ caller() }}{% endmacro %}{{ m() }}", "'caller' is undefined"},
      {"{{ list | sort(attribute='a,b') }}", "sort by several attributes is not supported"},
  };
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) check_refused(bad[i].text, bad[i].part);
}

TEST(a_context_must_be_a_map) {
  str out = {0};
  CHECK_FAILS(render("a", "[1]", &out), "expected a map of keys");
}

/* --- limits ------------------------------------------------------------------------------ */

TEST(templates_cannot_run_without_end) {
  check_refused("{% set l = range(9999) %}{% for a in l %}{% for b in l %}{% endfor %}{% endfor %}",
                "more than 10000000 steps");
  check_refused("{% macro m(x) %}{{ m(x) }}{% endmacro %}\n{{ m(1) }}",
                "does a macro call itself without end?");
  check_refused("{% set ns = namespace(s='ab') %}{% for i in range(99) %}"
                "{% set ns.s = ns.s + ns.s %}{% endfor %}",
                "MiB");
  check_refused("{% for i in range(99999) %}{{ 'x' * 9999 }}{% endfor %}", "more than 64 MiB");
  check_refused("{% set l = [1] * 99999999 %}", "take more than 256 MiB");
  check_refused("{% set ns = namespace(l=[1]) %}{% for i in range(99) %}"
                "{% set ns.l = ns.l + ns.l %}{% endfor %}",
                "take more than 256 MiB");
  check_refused("{% set s = 'a' * 9999999 %}{% for i in range(9999) %}{{ 'b' in s }}{% endfor %}",
                "more than 10000000 steps");
  check_refused("{% set s = 'a' * 999999 %}{% set b = 'b' * 1000 %}{% for i in range(99999) %}"
                "{{ s.rfind(b) }}{% endfor %}",
                "more than 10000000 steps");
}

TEST(work_that_one_expression_hides_counts_as_steps) {
  check_refused("{% set l = range(99999) %}{% for i in l %}{{ l == range(99999) }}{% endfor %}",
                "more than 10000000 steps");
  check_refused("{% set l = range(9999) %}{% for i in l %}{{ [l, i] in [[l, -1]] }}{% endfor %}",
                "more than 10000000 steps");
  check_refused(
      "{% set l = range(9999) | list %}{% for i in l %}{{ l + [i] < l + [i] }}{% endfor %}",
      "more than");
  str text = {0};
  str_add(&text, "{% macro m() %}");
  for (int i = 0; i < 20000; i++) str_printf(&text, "{%% set a%d = 1 %%}", i);
  str_add(&text, "{% endmacro %}{{ m() }}");
  check_refused(text.at, "more than 10000000 steps");
  str_free(&text);
}

/* open repeated, a middle, close repeated. */
static void check_deep(const char *open, const char *middle, const char *close, size_t n,
                       const char *part) {
  str text = {0}, out = {0};
  for (size_t i = 0; i < n; i++) str_add(&text, open);
  str_add(&text, middle);
  for (size_t i = 0; i < n; i++) str_add(&text, close);
  if (part) CHECK_FAILS(render(text.at, "{}", &out), part);
  else CHECK_OK(render(text.at, "{}", &out));
  str_free(&text);
  str_free(&out);
}

TEST(a_caller_can_allow_fewer_steps) {
  static const char text[] = "{% for x in range(100) %}{% endfor %}";
  jinja *t;
  tree vars;
  str out = {0};
  CHECK_OK(json_parse("{}", 2, "context", &vars));
  CHECK_OK(jinja_parse("chat_template", text, sizeof text - 1, &t));
  CHECK_FAILS(jinja_render(t, vars.root, &(jinja_options){.steps = 90}, &out),
              "more than 90 steps");
  CHECK_OK(jinja_render(t, vars.root, &(jinja_options){.steps = 900}, &out));
  str_free(&out);
  jinja_free(t);
  tree_free(&vars);
}

TEST(nesting_is_bounded) {
  check_deep("{% if 1 %}", "x", "{% endif %}", 90, NULL);
  check_deep("{% if 1 %}", "x", "{% endif %}", 100000, "in each other");
  str text = {0}, out = {0};
  str_add(&text, "{{ ");
  for (int i = 0; i < 100000; i++) str_add(&text, "(");
  CHECK_FAILS(render(text.at, "{}", &out), "more than 100 brackets in each other");
  str_clear(&text);
  str_add(&text, "{{ ");
  for (int i = 0; i < 100000; i++) str_add(&text, "not ");
  str_add(&text, "1 }}");
  CHECK_FAILS(render(text.at, "{}", &out), "in each other");
  str_clear(&text);
  str_add(&text, "{{ ");
  for (int i = 0; i < 100000; i++) str_add(&text, "- ");
  str_add(&text, "1 }}");
  CHECK_FAILS(render(text.at, "{}", &out), "in each other");
  str_clear(&text);
  str_add(&text, "{{ 1");
  for (int i = 0; i < 400; i++) str_add(&text, " + 1");
  str_add(&text, " }}");
  CHECK_OK(render(text.at, "{}", &out));
  CHECK_STR(out.at, "401");
  str_clear(&text);
  str_add(&text, "{{ 1");
  for (int i = 0; i < 100000; i++) str_add(&text, " + 1");
  str_add(&text, " }}");
  CHECK_FAILS(render(text.at, "{}", &out), "more than 500 operators in each other");
  str_free(&text);
  str_free(&out);
}

TEST(lists_that_hold_themselves_end) {
  check_refused("{% set ns = namespace() %}{% set ns.a = [ns] %}{{ ns }}", "in each other");
  check_refused("{% set ns = namespace() %}{% set ns.a = [ns] %}{% set m = namespace() %}"
                "{% set m.a = [m] %}{{ ns.a == m.a }}{{ ns.a | tojson }}",
                "a Namespace has no JSON");
}

TEST(a_template_of_more_than_4_mib_is_refused) {
  jinja *t = NULL;
  char *text = mem_calloc(JINJA_TEXT_MAX + 1, 1);
  memset(text, 'x', JINJA_TEXT_MAX + 1);
  CHECK_FAILS(jinja_parse("big", text, JINJA_TEXT_MAX + 1, &t), "at most 4194304");
  CHECK_OK(jinja_parse("big", text, JINJA_TEXT_MAX, &t));
  jinja_free(t);
  mem_free(text);
}

TEST(texts_may_hold_nuls) {
  str out = {0};
  CHECK_OK(render("{{ a }}{{ a | length }}{{ '\\0' }}{{ a | tojson }}{{ a.split('\\0') }}",
                  "{\"a\": \"x\\u0000y\"}", &out));
  static const char want[] = "x\0y3\0\"x\\u0000y\"['x', 'y']";
  CHECK_EQ(out.len, sizeof want - 1);
  CHECK(!memcmp(out.at, want, out.len));
  str_free(&out);
}

TEST(one_template_renders_many_conversations) {
  static const char text[] = "{% set n = n + 1 %}{{ n }}";
  jinja *t;
  CHECK_OK(jinja_parse("chat_template", text, sizeof text - 1, &t));
  for (int i = 0; i < 3; i++) {
    tree vars;
    str out = {0};
    CHECK_OK(json_parse("{\"n\": 4}", 8, "context", &vars));
    CHECK_OK(jinja_render(t, vars.root, NULL, &out));
    CHECK_STR(out.at, "5");
    str_free(&out);
    tree_free(&vars);
  }
  jinja_free(t);
}

TEST(the_clock_gives_the_date_if_no_time_is_given) {
  static const char text[] = "{{ strftime_now('%Y') | int > 2024 }}{{ strftime_now('') }}";
  jinja *t;
  tree vars;
  str out = {0};
  CHECK_OK(json_parse("{}", 2, "context", &vars));
  CHECK_OK(jinja_parse("chat_template", text, sizeof text - 1, &t));
  CHECK_OK(jinja_render(t, vars.root, NULL, &out));
  CHECK_STR(out.at, "True");
  str_free(&out);
  jinja_free(t);
  tree_free(&vars);
}

TEST(torture_jinja_every_allocation_fails) {
  static const char text[] =
      "{% macro m(a, b=[1, 2]) %}{% for k, v in a.items() if v %}{{ k ~ loop.index }}{% endfor %}"
      "{% endmacro %}{% set ns = namespace(l=[]) %}{% for x in list | sort(reverse=true) %}"
      "{% set ns.l = ns.l + [x | string] %}{% endfor %}{{ ns.l | join(',') }}{{ m(map) }}"
      "{% set t %}{{ map | tojson(indent=2) }}{% endset %}{{ t | upper }}{{ 'a,b'.split(',') }}";
  for (uint64_t n = 1;; n++) {
    str out = {0};
    mem_fail_at(n);
    hp_status st = render(text, "{\"list\": [1, 2], \"map\": {\"a\": 1, \"b\": [2]}}", &out);
    mem_fail_at(0);
    if (!st) {
      CHECK(n > 10);
      CHECK_STR(out.at, "2,1a1b2{\n  \"A\": 1,\n  \"B\": [\n    2\n  ]\n}['a', 'b']");
      str_free(&out);
      return;
    }
    CHECK_EQ(st, HP_ERR_OOM);
    CHECK(!out.len);
    err_clear();
    str_free(&out);
  }
}
