#!/bin/sh
# `hyper layout`: parts, ways, questions from a file, refusals.
. "$(dirname "$0")/lib.sh"

it "layout tells what each rank holds"
run layout '(2,2,2)(dp,sp,mp)(mp,(sp,dp))' --shape 32,784
out_has '8 devices; every shard is held by 1'
out_has ' 4   1   0   0   [0:16, 196:392]'
out_has ' 2   0   1   0   [0:16, 392:588]'

it "layout tells the steps and bytes to another layout"
run layout '(2,4)(dp,tp)(dp,tp)' --shape 8,8 --to '((dp,tp),None)'
out_has '1 step, 24 bytes received a rank; it holds 8 elements before, 8 at most'
out_has 'all_to_all      over tp, dim 1 to dim 0: 24 bytes a rank, then ((dp,tp),None)'
run layout '(2,4)(dp,tp)(dp,None)+sum:tp' --shape 8,8 --to '(dp,tp)' --json
out_has '"op": "reduce_scatter", "dim": 1, "n": 4, "reduce": "sum", "group": [0, 1, 2, 3]'

it "layout answers a file line by line, refusals too"
cat >q.jsonl <<'END'
{"id": "a", "mesh": [2, 2], "names": ["dp", "mp"], "rank_list": null, "call": [["mp", "dp"], "None"], "shape": [8, 2]}

{"id": "b", "mesh": [2, 2], "names": ["dp", "mp"], "call": ["nope"]}
{"id": "c", "mesh": [2, 2], "names": ["dp", "mp"], "from": ["dp"], "to": ["mp"], "shape": [8]}
{"id": "d", "mesh": [2, "2"], "names": ["dp", "mp"]}
{"id": "e"
{"id": "f", "mesh": [2, 2], "names": ["dp", "mp"], "from": ["dp"], "to": ["mp"], "shape": [8, 8]}
END
run layout --batch q.jsonl
[ "$(wc -l <out)" -eq 6 ] || fail "expected 6 answers"
out_has '"id": "a", "tensor_map": [[0, 1], -1], "repeat_num": 1, "placements": ["S(0)", "S(0)"]'
out_has '"id": "b", "error": "layout: \"nope\" is not an axis of the mesh; its axes are dp, mp"'
out_has '"id": "c", "ops": [{"op": "all_concat"'
out_has '"id": "d", "error": "q.jsonl:5'
out_has '{"error": "q.jsonl:6'
out_has '"id": "f", "error": "the tensor has 2 dims, its layout 1"'

it "layout refuses what makes no sense"
run layout '(2,2)(dp,mp)(DP)'
refused '"DP" is not an axis of the mesh; its axes are dp, mp'
run layout '(2,2)(dp,mp)'
refused 'add an entry for every dim'
run layout '(2,2)(dp,mp)(dp,None)' --shape 8
refused 'as many as the layout has dims'
run layout '(2,2)(dp,mp)(dp,None)' --to '(None,dp)'
refused '--to needs --shape'
run layout --batch nowhere.jsonl
refused 'nowhere.jsonl'
