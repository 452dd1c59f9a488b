# Questions with answers, in alpaca's form, made from the stories of `make demo`.
#   awk -f questions.awk build/demo/stories.jsonl > questions.jsonl
# Each story is the answer to a question that names its child and its animal.

function capture(text, before, after,   start, rest) { # what stands between two patterns
  if (!match(text, before)) return ""
  rest = substr(text, RSTART + RLENGTH)
  return match(rest, after) ? substr(rest, 1, RSTART - 1) : ""
}

{
  story = capture($0, "\"text\": \"", "\"}$")
  child = capture(story, "(named|called) ", "[.]")
  animal = capture(story, "Then ", " came by")
  if (child != "" && animal != "")
    printf "{\"instruction\": \"Tell a story about %s and %s.\", \"output\": \"%s\"}\n", child, animal, story
}
