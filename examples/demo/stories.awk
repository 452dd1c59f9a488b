# Little stories, one a line as JSON, made from a grammar: the text that `make demo` trains on.
#   awk -v n=4000 -v seed=7 -f stories.awk > stories.jsonl
# The numbers come from a generator of its own, so that every awk writes the same text.

function draw(k) { # 0 .. k-1: a linear congruential generator, high bits
  state = (state * 16807) % 2147483647
  return int(state / 2147483647 * k)
}
function pick(list,   part, k) {
  k = split(list, part, "|")
  return part[draw(k) + 1]
}
function capital(s) { return toupper(substr(s, 1, 1)) substr(s, 2) }

function story(   who, friend, thing, place, look, feel, s) {
  who = pick("Lily|Tom|Mia|Ben|Anna|Max|Zoe|Sam|Nora|Leo")
  friend = pick("a small dog|a grey cat|an old owl|a brown bear|a quick fox|a tiny mouse|a green frog|a white goat")
  thing = pick("red ball|blue kite|shiny stone|wooden boat|yellow hat|silver bell|paper star|round cake")
  place = pick("the garden|the park|the forest|the beach|the hill|the river|the old barn|the school yard")
  look = pick("big|little|bright|pretty|strange|soft|heavy|lovely")
  feel = pick("happy|sad|proud|tired|curious|brave|shy|glad")
  s = pick("Once upon a time there was a child named |One day there was a child called |Long ago there lived a child named ") who ". "
  s = s who " loved to play in " place ". "
  s = s pick("One morning|One sunny day|After lunch|In the evening|One rainy day") ", " who " found a " look " " thing " in " place ". "
  s = s pick("\\\"What is this?\\\" asked |\\\"Look at this!\\\" said |\\\"I want to keep it,\\\" said ") who ". "
  s = s "Then " friend " came by and " pick("looked at|wanted|sniffed|liked|asked about") " the " thing ". "
  if (draw(2)) {
    s = s who " felt " feel " and " pick("shared|hid|showed|gave away|held") " the " thing ". "
    s = s capital(friend) " was " pick("very happy|so thankful|a good friend|full of joy|not afraid any more") ". "
  } else {
    s = s "They " pick("played with|carried|cleaned|painted|looked after") " the " thing " " pick("all day|until dark|for a long time|together|with great care") ". "
    s = s who " felt " feel " and " pick("laughed|smiled|sang a song|danced|went home") ". "
  }
  s = s pick("From that day on|After that|In the end") ", " who " and " friend " " pick("were best friends|met in " place " every day|never lost the " thing " again|told everyone about the " thing) "."
  return s
}

BEGIN {
  state = seed ? seed : 7
  for (i = 0; i < 10; i++) draw(2)
  for (i = 0; i < n; i++) printf "{\"text\": \"%s\"}\n", story()
}
