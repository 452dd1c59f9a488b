/* What tokenizers 0.23.3 makes of small tokenizers: the ids of a text with special tokens, and the
 * text of those ids.  `json` is a whole tokenizer.json, or, without "model", the members besides the
 * byte-level model that test_tokenizer.c writes; ` stands for a double quote; NULL: as above. */
/* clang-format off */
static const struct {
  const char *name, *json, *text, *ids, *decoded;
  size_t n, decoded_n; /* bytes of text and of decoded */
} tokenizer_case[] = {
    {"gpt2", "{`pre_tokenizer`:{`type`:`ByteLevel`,`add_prefix_space`:false,`use_regex`:true}}",
     "hello the  things 12 12x33's\n\nin", "261 262 32 259 104 263 115 267 50 267 50 120 269 271"
     " 10 10 258", "hello the  things 12 12x33's\n\nin", 32, 32},
    {"gpt2", NULL, "H\303\251llo\302\240the ab 333 the\314\201 \341\272\233\314\243 \344\275\240"
     "\345\245\2751\357\274\222\342\221\242 the.", "72 270 257 111 194 160 266 264 98 32 269 51 "
     "262 204 129 32 225 186 155 204 163 32 228 189 160 229 165 189 49 239 188 146 226 145 162 2"
     "62 46", "H\303\251llo\302\240the ab 333 the\314\201 \341\272\233\314\243 \344\275\240\345"
     "\245\2751\357\274\222\342\221\242 the.", 49, 49},
    {"gpt2", NULL, "", "", "", 0, 0},
    {"gpt2", NULL, " ", "32", " ", 1, 1},
    {"gpt2", NULL, " \n  the", "32 10 32 262", " \n  the", 7, 7},
    {"gpt2", NULL, "\341\240\216 the\342\200\250 x", "225 160 142 262 226 128 168 32 120",
     "\341\240\216 the\342\200\250 x", 12, 12},
    {"gpt2", NULL, "\360\236\223\220a \360\221\275\220\360\221\275\221",
     "240 158 147 144 97 32 240 145 189 144 240 145 189 145",
     "\360\236\223\220a \360\221\275\220\360\221\275\221", 14, 14},
    {"prefix_space", "{`pre_tokenizer`:{`type`:`ByteLevel`,`add_prefix_space`:true,`use_regex`:t"
     "rue}}", "the", "262", " the", 3, 4},
    {"prefix_space", NULL, " the", "262", " the", 4, 4},
    {"prefix_space", NULL, "\nthe", "32 10 266", " \nthe", 4, 5},
    {"prefix_space", NULL, "", "", "", 0, 0},
    {"no_regex", "{`pre_tokenizer`:{`type`:`ByteLevel`,`add_prefix_space`:true,`use_regex`:false"
     "}}", "hello the  things 12 12x33's\n\nin", "32 261 262 32 259 104 263 115 267 50 267 50 12"
     "0 269 271 272 258", " hello the  things 12 12x33's\n\nin", 32, 33},
    {"llama3", "{`pre_tokenizer`:{`type`:`Sequence`,`pretokenizers`:[{`type`:`Split`,`pattern`:{"
     "`Regex`:`(\077i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\\\r\\\\n\\\\p{L}\\\\p{N}]\077\\\\p{L}+|\\\\p{"
     "N}{1,3}| \077[^\\\\s\\\\p{L}\\\\p{N}]+[\\\\r\\\\n]*|\\\\s*[\\\\r\\\\n]+|\\\\s+(\077!\\\\S)"
     "|\\\\s+`},`behavior`:`Isolated`,`invert`:false},{`type`:`ByteLevel`,`add_prefix_space`:fal"
     "se,`use_regex`:false}]}}", "hello the  things 12 12x33's\n\nin",
     "261 262 32 259 104 263 115 32 268 32 268 120 269 271 272 258",
     "hello the  things 12 12x33's\n\nin", 32, 32},
    {"llama3", NULL, "H\303\251llo\302\240the ab 333 the\314\201 \341\272\233\314\243 \344\275"
     "\240\345\245\2751\357\274\222\342\221\242 the.", "72 270 257 111 194 160 266 264 98 32 269"
     " 51 262 204 129 32 225 186 155 204 163 32 228 189 160 229 165 189 49 239 188 146 226 145 1"
     "62 262 46", "H\303\251llo\302\240the ab 333 the\314\201 \341\272\233\314\243 \344\275\240"
     "\345\245\2751\357\274\222\342\221\242 the.", 49, 49},
    {"llama3", NULL, "a'S 1234 12345  \015\n x", "97 39 83 32 268 51 52 32 268 51 52 53 265 13 1"
     "0 32 120", "a'S 1234 12345  \015\n x", 20, 20},
    {"possessive", "{`pre_tokenizer`:{`type`:`Sequence`,`pretokenizers`:[{`type`:`Split`,`patter"
     "n`:{`Regex`:`'(\077i:[sdmt]|ll|ve|re)|[^\\\\r\\\\n\\\\p{L}\\\\p{N}]\077+\\\\p{L}++|\\\\p{N"
     "}{1,3}+| \077[^\\\\s\\\\p{L}\\\\p{N}]++[\\\\r\\\\n]*+|\\\\s++$|\\\\s*[\\\\r\\\\n]|\\\\s+("
     "\077!\\\\S)|\\\\s`},`behavior`:`Isolated`,`invert`:false},{`type`:`ByteLevel`,`add_prefix_"
     "space`:false,`use_regex`:false}]}}", "hello the  things 12 12x33's\n\nin",
     "261 262 32 259 104 263 115 32 268 32 268 120 269 271 272 258",
     "hello the  things 12 12x33's\n\nin", 32, 32},
    {"possessive", NULL, "12 12345 ab12 the  \n", "268 32 268 51 52 53 264 98 268 262 265 10",
     "12 12345 ab12 the  \n", 20, 20},
    {"split Isolated", "{`pre_tokenizer`:{`type`:`Sequence`,`pretokenizers`:[{`type`:`Split`,`pa"
     "ttern`:{`Regex`:`-|[ae]`},`behavior`:`Isolated`,`invert`:false},{`type`:`ByteLevel`,`add_p"
     "refix_space`:false,`use_regex`:false}]}}", "a-b--c, d!the",
     "97 45 98 45 45 99 44 32 100 33 116 104 101", "a-b--c, d!the", 13, 13},
    {"split Isolated", NULL, "--ab", "45 45 97 98", "--ab", 4, 4},
    {"split inverted Isolated", "{`pre_tokenizer`:{`type`:`Sequence`,`pretokenizers`:[{`type`:`S"
     "plit`,`pattern`:{`Regex`:`-|[ae]`},`behavior`:`Isolated`,`invert`:true},{`type`:`ByteLevel"
     "`,`add_prefix_space`:false,`use_regex`:false}]}}", "a-b--c, d!the",
     "97 45 98 45 45 99 44 32 100 33 116 104 101", "a-b--c, d!the", 13, 13},
    {"split inverted Isolated", NULL, "--ab", "45 45 97 98", "--ab", 4, 4},
    {"split Removed", "{`pre_tokenizer`:{`type`:`Sequence`,`pretokenizers`:[{`type`:`Split`,`pat"
     "tern`:{`Regex`:`-|[ae]`},`behavior`:`Removed`,`invert`:false},{`type`:`ByteLevel`,`add_pre"
     "fix_space`:false,`use_regex`:false}]}}", "a-b--c, d!the", "98 99 44 32 100 33 116 104",
     "bc, d!th", 13, 8},
    {"split Removed", NULL, "--ab", "98", "b", 4, 1},
    {"split inverted Removed", "{`pre_tokenizer`:{`type`:`Sequence`,`pretokenizers`:[{`type`:`Sp"
     "lit`,`pattern`:{`Regex`:`-|[ae]`},`behavior`:`Removed`,`invert`:true},{`type`:`ByteLevel`,"
     "`add_prefix_space`:false,`use_regex`:false}]}}", "a-b--c, d!the", "97 45 45 45 101",
     "a---e", 13, 5},
    {"split inverted Removed", NULL, "--ab", "45 45 97", "--a", 4, 3},
    {"split MergedWithPrevious", "{`pre_tokenizer`:{`type`:`Sequence`,`pretokenizers`:[{`type`:`"
     "Split`,`pattern`:{`Regex`:`-|[ae]`},`behavior`:`MergedWithPrevious`,`invert`:false},{`type"
     "`:`ByteLevel`,`add_prefix_space`:false,`use_regex`:false}]}}", "a-b--c, d!the",
     "97 45 98 45 45 99 44 32 100 33 266", "a-b--c, d!the", 13, 13},
    {"split MergedWithPrevious", NULL, "--ab", "45 45 97 98", "--ab", 4, 4},
    {"split inverted MergedWithPrevious", "{`pre_tokenizer`:{`type`:`Sequence`,`pretokenizers`:["
     "{`type`:`Split`,`pattern`:{`Regex`:`-|[ae]`},`behavior`:`MergedWithPrevious`,`invert`:true"
     "},{`type`:`ByteLevel`,`add_prefix_space`:false,`use_regex`:false}]}}", "a-b--c, d!the",
     "97 45 98 45 45 99 44 32 100 33 116 104 101", "a-b--c, d!the", 13, 13},
    {"split inverted MergedWithPrevious", NULL, "--ab", "45 45 273", "--ab", 4, 4},
    {"split MergedWithNext", "{`pre_tokenizer`:{`type`:`Sequence`,`pretokenizers`:[{`type`:`Spli"
     "t`,`pattern`:{`Regex`:`-|[ae]`},`behavior`:`MergedWithNext`,`invert`:false},{`type`:`ByteL"
     "evel`,`add_prefix_space`:false,`use_regex`:false}]}}", "a-b--c, d!the",
     "97 45 98 45 45 99 44 32 100 33 116 104 101", "a-b--c, d!the", 13, 13},
    {"split MergedWithNext", NULL, "--ab", "45 45 273", "--ab", 4, 4},
    {"split inverted MergedWithNext", "{`pre_tokenizer`:{`type`:`Sequence`,`pretokenizers`:[{`ty"
     "pe`:`Split`,`pattern`:{`Regex`:`-|[ae]`},`behavior`:`MergedWithNext`,`invert`:true},{`type"
     "`:`ByteLevel`,`add_prefix_space`:false,`use_regex`:false}]}}", "a-b--c, d!the",
     "97 45 98 45 45 99 44 32 100 33 266", "a-b--c, d!the", 13, 13},
    {"split inverted MergedWithNext", NULL, "--ab", "45 45 97 98", "--ab", 4, 4},
    {"split Contiguous", "{`pre_tokenizer`:{`type`:`Sequence`,`pretokenizers`:[{`type`:`Split`,`"
     "pattern`:{`Regex`:`-|[ae]`},`behavior`:`Contiguous`,`invert`:false},{`type`:`ByteLevel`,`a"
     "dd_prefix_space`:false,`use_regex`:false}]}}", "a-b--c, d!the",
     "97 45 98 45 45 99 44 32 100 33 116 104 101", "a-b--c, d!the", 13, 13},
    {"split Contiguous", NULL, "--ab", "45 45 97 98", "--ab", 4, 4},
    {"split inverted Contiguous", "{`pre_tokenizer`:{`type`:`Sequence`,`pretokenizers`:[{`type`:"
     "`Split`,`pattern`:{`Regex`:`-|[ae]`},`behavior`:`Contiguous`,`invert`:true},{`type`:`ByteL"
     "evel`,`add_prefix_space`:false,`use_regex`:false}]}}", "a-b--c, d!the",
     "97 45 98 45 45 99 44 32 100 33 116 104 101", "a-b--c, d!the", 13, 13},
    {"split inverted Contiguous", NULL, "--ab", "45 45 97 98", "--ab", 4, 4},
    {"split string", "{`pre_tokenizer`:{`type`:`Sequence`,`pretokenizers`:[{`type`:`Split`,`patt"
     "ern`:{`String`:`12`},`behavior`:`Removed`,`invert`:false},{`type`:`ByteLevel`,`add_prefix_"
     "space`:false,`use_regex`:false}]}}", "hello the  things 12 12x33's\n\nin",
     "261 262 32 259 104 263 115 32 32 120 269 271 272 258", "hello the  things  x33's\n\nin",
     32, 28},
    {"split string", NULL, "112212", "49 50", "12", 6, 2},
    {"split dots", "{`pre_tokenizer`:{`type`:`Sequence`,`pretokenizers`:[{`type`:`Split`,`patter"
     "n`:{`String`:`.-`},`behavior`:`Isolated`,`invert`:false},{`type`:`ByteLevel`,`add_prefix_s"
     "pace`:false,`use_regex`:false}]}}", "a.-bx-.-", "97 46 45 98 120 45 46 45", "a.-bx-.-", 8,
     8},
    {"ruby classes", "{`pre_tokenizer`:{`type`:`Sequence`,`pretokenizers`:[{`type`:`Split`,`patt"
     "ern`:{`Regex`:`\\\\h{2}|\\\\w+|[[:punct:]]|\\\\u0020`},`behavior`:`Isolated`,`invert`:fals"
     "e},{`type`:`ByteLevel`,`add_prefix_space`:false,`use_regex`:false}]}}",
     "hello the ab 12 \302\274x \302\275_\303\251 $ab", "261 32 266 32 273 32 268 32 194 188 120"
     " 32 194 189 95 270 32 36 273", "hello the ab 12 \302\274x \302\275_\303\251 $ab", 29, 29},
    {"ruby dot", "{`pre_tokenizer`:{`type`:`Sequence`,`pretokenizers`:[{`type`:`Split`,`pattern`"
     ":{`Regex`:`(\077m:t.h)|^i|l$`},`behavior`:`Isolated`,`invert`:false},{`type`:`ByteLevel`,`"
     "add_prefix_space`:false,`use_regex`:false}]}}", "t\nhell\nin",
     "116 10 104 101 108 108 10 105 110", "t\nhell\nin", 9, 9},
    {"look around", "{`pre_tokenizer`:{`type`:`Sequence`,`pretokenizers`:[{`type`:`Split`,`patte"
     "rn`:{`Regex`:`(\077<=h)e|l(\077=l)`},`behavior`:`Isolated`,`invert`:false},{`type`:`ByteLe"
     "vel`,`add_prefix_space`:false,`use_regex`:false}]}}", "hello the",
     "104 101 108 108 111 259 104 101", "hello the", 9, 9},
    {"interval", "{`pre_tokenizer`:{`type`:`Sequence`,`pretokenizers`:[{`type`:`Split`,`pattern`"
     ":{`Regex`:`l{2}\077o|[0-3]{,2}3|(\077:ab){2}+`},`behavior`:`Isolated`,`invert`:false},{`ty"
     "pe`:`ByteLevel`,`add_prefix_space`:false,`use_regex`:false}]}}",
     "hello llo 12333 ababababab", "256 257 111 32 257 111 32 268 51 269 32 273 273 273 273 273",
     "hello llo 12333 ababababab", 26, 26},
    {"digits", "{`pre_tokenizer`:{`type`:`Sequence`,`pretokenizers`:[{`type`:`Digits`,`individua"
     "l_digits`:false},{`type`:`ByteLevel`,`add_prefix_space`:false,`use_regex`:false}]}}",
     "H\303\251llo\302\240the ab 333 the\314\201 \341\272\233\314\243 \344\275\240\345\245\2751"
     "\357\274\222\342\221\242 the.", "72 270 257 111 194 160 266 264 98 32 269 51 262 204 129 3"
     "2 225 186 155 204 163 32 228 189 160 229 165 189 49 239 188 146 226 145 162 262 46",
     "H\303\251llo\302\240the ab 333 the\314\201 \341\272\233\314\243 \344\275\240\345\245\2751"
     "\357\274\222\342\221\242 the.", 49, 49},
    {"digits", NULL, "a12b33", "97 268 98 269", "a12b33", 6, 6},
    {"digits each", "{`pre_tokenizer`:{`type`:`Sequence`,`pretokenizers`:[{`type`:`Digits`,`indi"
     "vidual_digits`:true},{`type`:`ByteLevel`,`add_prefix_space`:false,`use_regex`:false}]}}",
     "H\303\251llo\302\240the ab 333 the\314\201 \341\272\233\314\243 \344\275\240\345\245\2751"
     "\357\274\222\342\221\242 the.", "72 270 257 111 194 160 266 264 98 32 51 51 51 262 204 129"
     " 32 225 186 155 204 163 32 228 189 160 229 165 189 49 239 188 146 226 145 162 262 46",
     "H\303\251llo\302\240the ab 333 the\314\201 \341\272\233\314\243 \344\275\240\345\245\2751"
     "\357\274\222\342\221\242 the.", 49, 49},
    {"digits each", NULL, "a12b33", "97 49 50 98 51 51", "a12b33", 6, 6},
    {"punctuation", "{`pre_tokenizer`:{`type`:`Sequence`,`pretokenizers`:[{`type`:`Punctuation`,"
     "`behavior`:`Isolated`},{`type`:`ByteLevel`,`add_prefix_space`:false,`use_regex`:false}]}}",
     "a-b--c, d!the", "97 45 98 45 45 99 44 32 100 33 266", "a-b--c, d!the", 13, 13},
    {"punctuation", NULL, "the's\302\277the", "266 39 115 194 191 266", "the's\302\277the", 10,
     10},
    {"punctuation removed", "{`pre_tokenizer`:{`type`:`Sequence`,`pretokenizers`:[{`type`:`Punct"
     "uation`,`behavior`:`Removed`},{`type`:`ByteLevel`,`add_prefix_space`:false,`use_regex`:fal"
     "se}]}}", "a-b--c, d!the", "97 98 99 32 100 266", "abc dthe", 13, 8},
    {"whitespace", "{`pre_tokenizer`:{`type`:`Sequence`,`pretokenizers`:[{`type`:`Whitespace`},{"
     "`type`:`ByteLevel`,`add_prefix_space`:false,`use_regex`:false}]}}",
     "hello the  things 12 12x33's\n\nin", "261 266 116 104 263 115 268 268 120 269 39 115 258",
     "hellothethings1212x33'sin", 32, 25},
    {"whitespace", NULL, "H\303\251llo\302\240the ab 333 the\314\201 \341\272\233\314\243 \344"
     "\275\240\345\245\2751\357\274\222\342\221\242 the.", "72 270 257 111 266 273 269 51 266 20"
     "4 129 225 186 155 204 163 228 189 160 229 165 189 49 239 188 146 226 145 162 266 46",
     "H\303\251llotheab333the\314\201\341\272\233\314\243\344\275\240\345\245\2751\357\274\222"
     "\342\221\242the.", 49, 41},
    {"whitespace", NULL, "ab_1, --the\302\255x\342\200\215y",
     "273 95 49 44 45 45 266 194 173 120 226 128 141 121", "ab_1,--the\302\255x\342\200\215y",
     18, 17},
    {"whitespace split", "{`pre_tokenizer`:{`type`:`Sequence`,`pretokenizers`:[{`type`:`Whitespa"
     "ceSplit`},{`type`:`ByteLevel`,`add_prefix_space`:false,`use_regex`:false}]}}",
     "hello the  things 12 12x33's\n\nin", "261 266 116 104 263 115 268 268 120 269 271 258",
     "hellothethings1212x33'sin", 32, 25},
    {"whitespace split", NULL, "H\303\251llo\302\240the ab 333 the\314\201 \341\272\233\314\243 "
     "\344\275\240\345\245\2751\357\274\222\342\221\242 the.",
     "72 270 257 111 266 273 269 51 266 204 129 225 186 155 204 163 228 189 160 229 165 189 49 2"
     "39 188 146 226 145 162 266 46", "H\303\251llotheab333the\314\201\341\272\233\314\243\344"
     "\275\240\345\245\2751\357\274\222\342\221\242the.", 49, 41},
    {"bert pre", "{`pre_tokenizer`:{`type`:`Sequence`,`pretokenizers`:[{`type`:`BertPreTokenizer"
     "`},{`type`:`ByteLevel`,`add_prefix_space`:false,`use_regex`:false}]}}",
     "hello the  things 12 12x33's\n\nin", "261 266 116 104 263 115 268 268 120 269 39 115 258",
     "hellothethings1212x33'sin", 32, 25},
    {"bert pre", NULL, "a-b--c, d!the", "97 45 98 45 45 99 44 100 33 266", "a-b--c,d!the", 13,
     12},
    {"delimiter", "{`pre_tokenizer`:{`type`:`Sequence`,`pretokenizers`:[{`type`:`CharDelimiterSp"
     "lit`,`delimiter`:`e`},{`type`:`ByteLevel`,`add_prefix_space`:false,`use_regex`:false}]}}",
     "hello the  things 12 12x33's\n\nin", "104 257 111 259 104 32 259 104 263 115 267 50 267 50"
     " 120 269 271 272 258", "hllo th  things 12 12x33's\n\nin", 32, 30},
    {"fixed length", "{`pre_tokenizer`:{`type`:`Sequence`,`pretokenizers`:[{`type`:`FixedLength`"
     ",`length`:3},{`type`:`ByteLevel`,`add_prefix_space`:false,`use_regex`:false}]}}",
     "H\303\251llo\302\240the ab 333 the\314\201 \341\272\233\314\243 \344\275\240\345\245\2751"
     "\357\274\222\342\221\242 the.", "72 270 108 108 111 194 160 266 264 98 32 269 51 259 256 2"
     "04 129 32 225 186 155 204 163 32 228 189 160 229 165 189 49 239 188 146 226 145 162 259 10"
     "4 101 46", "H\303\251llo\302\240the ab 333 the\314\201 \341\272\233\314\243 \344\275\240"
     "\345\245\2751\357\274\222\342\221\242 the.", 49, 49},
    {"metaspace always split", "{`added_tokens`:[{`id`:276,`content`:`<x>`,`special`:true,`norma"
     "lized`:false}],`pre_tokenizer`:{`type`:`Sequence`,`pretokenizers`:[{`type`:`Metaspace`,`re"
     "placement`:`\342\226\201`,`prepend_scheme`:`always`,`split`:true},{`type`:`ByteLevel`,`add"
     "_prefix_space`:false,`use_regex`:false}]}}", "the  ab", "275 266 275 275 273",
     "\342\226\201the\342\226\201\342\226\201ab", 7, 14},
    {"metaspace always split", NULL, "<x> the<x>the ", "276 275 266 276 275 266 275",
     "<x>\342\226\201the<x>\342\226\201the\342\226\201", 14, 21},
    {"metaspace always whole", "{`added_tokens`:[{`id`:276,`content`:`<x>`,`special`:true,`norma"
     "lized`:false}],`pre_tokenizer`:{`type`:`Sequence`,`pretokenizers`:[{`type`:`Metaspace`,`re"
     "placement`:`\342\226\201`,`prepend_scheme`:`always`,`split`:false},{`type`:`ByteLevel`,`ad"
     "d_prefix_space`:false,`use_regex`:false}]}}", "the  ab", "275 266 275 275 273",
     "\342\226\201the\342\226\201\342\226\201ab", 7, 14},
    {"metaspace always whole", NULL, "<x> the<x>the ", "276 275 266 276 275 266 275",
     "<x>\342\226\201the<x>\342\226\201the\342\226\201", 14, 21},
    {"metaspace first split", "{`added_tokens`:[{`id`:276,`content`:`<x>`,`special`:true,`normal"
     "ized`:false}],`pre_tokenizer`:{`type`:`Sequence`,`pretokenizers`:[{`type`:`Metaspace`,`rep"
     "lacement`:`\342\226\201`,`prepend_scheme`:`first`,`split`:true},{`type`:`ByteLevel`,`add_p"
     "refix_space`:false,`use_regex`:false}]}}", "the  ab", "275 266 275 275 273",
     "\342\226\201the\342\226\201\342\226\201ab", 7, 14},
    {"metaspace first split", NULL, "<x> the<x>the ", "276 275 266 276 266 275",
     "<x>\342\226\201the<x>the\342\226\201", 14, 18},
    {"metaspace first whole", "{`added_tokens`:[{`id`:276,`content`:`<x>`,`special`:true,`normal"
     "ized`:false}],`pre_tokenizer`:{`type`:`Sequence`,`pretokenizers`:[{`type`:`Metaspace`,`rep"
     "lacement`:`\342\226\201`,`prepend_scheme`:`first`,`split`:false},{`type`:`ByteLevel`,`add_"
     "prefix_space`:false,`use_regex`:false}]}}", "the  ab", "275 266 275 275 273",
     "\342\226\201the\342\226\201\342\226\201ab", 7, 14},
    {"metaspace first whole", NULL, "<x> the<x>the ", "276 275 266 276 266 275",
     "<x>\342\226\201the<x>the\342\226\201", 14, 18},
    {"metaspace never split", "{`added_tokens`:[{`id`:276,`content`:`<x>`,`special`:true,`normal"
     "ized`:false}],`pre_tokenizer`:{`type`:`Sequence`,`pretokenizers`:[{`type`:`Metaspace`,`rep"
     "lacement`:`\342\226\201`,`prepend_scheme`:`never`,`split`:true},{`type`:`ByteLevel`,`add_p"
     "refix_space`:false,`use_regex`:false}]}}", "the  ab", "266 275 275 273",
     "the\342\226\201\342\226\201ab", 7, 11},
    {"metaspace never split", NULL, "<x> the<x>the ", "276 275 266 276 266 275",
     "<x>\342\226\201the<x>the\342\226\201", 14, 18},
    {"metaspace never whole", "{`added_tokens`:[{`id`:276,`content`:`<x>`,`special`:true,`normal"
     "ized`:false}],`pre_tokenizer`:{`type`:`Sequence`,`pretokenizers`:[{`type`:`Metaspace`,`rep"
     "lacement`:`\342\226\201`,`prepend_scheme`:`never`,`split`:false},{`type`:`ByteLevel`,`add_"
     "prefix_space`:false,`use_regex`:false}]}}", "the  ab", "266 275 275 273",
     "the\342\226\201\342\226\201ab", 7, 11},
    {"metaspace never whole", NULL, "<x> the<x>the ", "276 275 266 276 266 275",
     "<x>\342\226\201the<x>the\342\226\201", 14, 18},
    {"norm NFC", "{`normalizer`:{`type`:`NFC`},`pre_tokenizer`:{`type`:`ByteLevel`,`add_prefix_s"
     "pace`:false,`use_regex`:true}}", "H\303\251llo\302\240the ab 333 the\314\201 \341\272\233"
     "\314\243 \344\275\240\345\245\2751\357\274\222\342\221\242 the.",
     "72 270 257 111 194 160 266 264 98 32 269 51 259 104 270 32 225 186 155 204 163 32 228 189 "
     "160 229 165 189 49 239 188 146 226 145 162 262 46", "H\303\251llo\302\240the ab 333 th\303"
     "\251 \341\272\233\314\243 \344\275\240\345\245\2751\357\274\222\342\221\242 the.", 49, 48},
    {"norm NFC", NULL, "\304\260\303\200\357\254\201\341\272\233\314\243\314\201\352\260\200\341"
     "\204\222\341\205\241\341\206\253\315\204\307\205 \342\200\213\001x\357\273\277",
     "196 176 195 128 239 172 129 225 186 155 204 163 204 129 234 176 128 237 149 156 204 136 20"
     "4 129 199 133 32 226 128 139 1 120 239 187 191", "\304\260\303\200\357\254\201\341\272\233"
     "\314\243\314\201\352\260\200\355\225\234\314\210\314\201\307\205 \342\200\213\001x\357\273"
     "\277", 39, 35},
    {"norm NFC", NULL, "q\314\201\314\250\314\243 \360\236\200\260\340\253\277\314\200",
     "113 204 168 204 163 204 129 32 240 158 128 176 224 171 191 204 128",
     "q\314\250\314\243\314\201 \360\236\200\260\340\253\277\314\200", 17, 17},
    {"norm NFD", "{`normalizer`:{`type`:`NFD`},`pre_tokenizer`:{`type`:`ByteLevel`,`add_prefix_s"
     "pace`:false,`use_regex`:true}}", "H\303\251llo\302\240the ab 333 the\314\201 \341\272\233"
     "\314\243 \344\275\240\345\245\2751\357\274\222\342\221\242 the.",
     "72 101 204 129 257 111 194 160 266 264 98 32 269 51 262 204 129 32 197 191 204 163 204 135"
     " 32 228 189 160 229 165 189 49 239 188 146 226 145 162 262 46",
     "He\314\201llo\302\240the ab 333 the\314\201 \305\277\314\243\314\207 \344\275\240\345\245"
     "\2751\357\274\222\342\221\242 the.", 49, 51},
    {"norm NFD", NULL, "\304\260\303\200\357\254\201\341\272\233\314\243\314\201\352\260\200\341"
     "\204\222\341\205\241\341\206\253\315\204\307\205 \342\200\213\001x\357\273\277",
     "73 204 135 65 204 128 239 172 129 197 191 204 163 204 135 204 129 225 132 128 225 133 161 "
     "225 132 146 225 133 161 225 134 171 204 136 204 129 199 133 32 226 128 139 1 120 239 187 1"
     "91", "I\314\207A\314\200\357\254\201\305\277\314\243\314\207\314\201\341\204\200\341\205"
     "\241\341\204\222\341\205\241\341\206\253\314\210\314\201\307\205 \342\200\213\001x\357\273"
     "\277", 39, 47},
    {"norm NFD", NULL, "q\314\201\314\250\314\243 \360\236\200\260\340\253\277\314\200",
     "113 204 168 204 163 204 129 32 240 158 128 176 224 171 191 204 128",
     "q\314\250\314\243\314\201 \360\236\200\260\340\253\277\314\200", 17, 17},
    {"norm NFKC", "{`normalizer`:{`type`:`NFKC`},`pre_tokenizer`:{`type`:`ByteLevel`,`add_prefix"
     "_space`:false,`use_regex`:true}}", "H\303\251llo\302\240the ab 333 the\314\201 \341\272"
     "\233\314\243 \344\275\240\345\245\2751\357\274\222\342\221\242 the.",
     "72 270 257 111 262 264 98 32 269 51 259 104 270 32 225 185 169 32 228 189 160 229 165 189 "
     "268 51 262 46", "H\303\251llo the ab 333 th\303\251 \341\271\251 \344\275\240\345\245\2751"
     "23 the.", 49, 41},
    {"norm NFKC", NULL, "\304\260\303\200\357\254\201\341\272\233\314\243\314\201\352\260\200"
     "\341\204\222\341\205\241\341\206\253\315\204\307\205 \342\200\213\001x\357\273\277",
     "196 176 195 128 102 105 225 185 169 204 129 234 176 128 237 149 156 204 136 204 129 68 197"
     " 190 32 226 128 139 1 120 239 187 191", "\304\260\303\200fi\341\271\251\314\201\352\260"
     "\200\355\225\234\314\210\314\201D\305\276 \342\200\213\001x\357\273\277", 39, 33},
    {"norm NFKC", NULL, "q\314\201\314\250\314\243 \360\236\200\260\340\253\277\314\200",
     "113 204 168 204 163 204 129 32 240 158 128 176 224 171 191 204 128",
     "q\314\250\314\243\314\201 \360\236\200\260\340\253\277\314\200", 17, 17},
    {"norm NFKD", "{`normalizer`:{`type`:`NFKD`},`pre_tokenizer`:{`type`:`ByteLevel`,`add_prefix"
     "_space`:false,`use_regex`:true}}", "H\303\251llo\302\240the ab 333 the\314\201 \341\272"
     "\233\314\243 \344\275\240\345\245\2751\357\274\222\342\221\242 the.",
     "72 101 204 129 257 111 262 264 98 32 269 51 262 204 129 32 115 204 163 204 135 32 228 189 "
     "160 229 165 189 268 51 262 46", "He\314\201llo the ab 333 the\314\201 s\314\243\314\207 "
     "\344\275\240\345\245\275123 the.", 49, 45},
    {"norm NFKD", NULL, "\304\260\303\200\357\254\201\341\272\233\314\243\314\201\352\260\200"
     "\341\204\222\341\205\241\341\206\253\315\204\307\205 \342\200\213\001x\357\273\277",
     "73 204 135 65 204 128 102 105 115 204 163 204 135 204 129 225 132 128 225 133 161 225 132 "
     "146 225 133 161 225 134 171 204 136 204 129 68 122 204 140 32 226 128 139 1 120 239 187 19"
     "1", "I\314\207A\314\200fis\314\243\314\207\314\201\341\204\200\341\205\241\341\204\222\341"
     "\205\241\341\206\253\314\210\314\201Dz\314\214 \342\200\213\001x\357\273\277", 39, 47},
    {"norm NFKD", NULL, "q\314\201\314\250\314\243 \360\236\200\260\340\253\277\314\200",
     "113 204 168 204 163 204 129 32 240 158 128 176 224 171 191 204 128",
     "q\314\250\314\243\314\201 \360\236\200\260\340\253\277\314\200", 17, 17},
    {"norm Lowercase", "{`normalizer`:{`type`:`Lowercase`},`pre_tokenizer`:{`type`:`ByteLevel`,`"
     "add_prefix_space`:false,`use_regex`:true}}", "H\303\251llo\302\240the ab 333 the\314\201 "
     "\341\272\233\314\243 \344\275\240\345\245\2751\357\274\222\342\221\242 the.",
     "104 270 257 111 194 160 266 264 98 32 269 51 262 204 129 32 225 186 155 204 163 32 228 189"
     " 160 229 165 189 49 239 188 146 226 145 162 262 46", "h\303\251llo\302\240the ab 333 the"
     "\314\201 \341\272\233\314\243 \344\275\240\345\245\2751\357\274\222\342\221\242 the.", 49,
     49},
    {"norm Lowercase", NULL, "\304\260\303\200\357\254\201\341\272\233\314\243\314\201\352\260"
     "\200\341\204\222\341\205\241\341\206\253\315\204\307\205 \342\200\213\001x\357\273\277",
     "105 204 135 195 160 239 172 129 225 186 155 204 163 204 129 234 176 128 225 132 146 225 13"
     "3 161 225 134 171 205 132 199 134 32 226 128 139 1 120 239 187 191",
     "i\314\207\303\240\357\254\201\341\272\233\314\243\314\201\352\260\200\341\204\222\341\205"
     "\241\341\206\253\315\204\307\206 \342\200\213\001x\357\273\277", 39, 40},
    {"norm Lowercase", NULL, "q\314\201\314\250\314\243 \360\236\200\260\340\253\277\314\200",
     "113 204 129 204 168 204 163 32 240 158 128 176 224 171 191 204 128",
     "q\314\201\314\250\314\243 \360\236\200\260\340\253\277\314\200", 17, 17},
    {"norm StripAccents", "{`normalizer`:{`type`:`StripAccents`},`pre_tokenizer`:{`type`:`ByteLe"
     "vel`,`add_prefix_space`:false,`use_regex`:true}}", "H\303\251llo\302\240the ab 333 the\314"
     "\201 \341\272\233\314\243 \344\275\240\345\245\2751\357\274\222\342\221\242 the.",
     "72 270 257 111 194 160 266 264 98 32 269 51 262 32 225 186 155 32 228 189 160 229 165 189 "
     "49 239 188 146 226 145 162 262 46", "H\303\251llo\302\240the ab 333 the \341\272\233 \344"
     "\275\240\345\245\2751\357\274\222\342\221\242 the.", 49, 45},
    {"norm StripAccents", NULL, "\304\260\303\200\357\254\201\341\272\233\314\243\314\201\352"
     "\260\200\341\204\222\341\205\241\341\206\253\315\204\307\205 \342\200\213\001x\357\273\277",
     "196 176 195 128 239 172 129 225 186 155 234 176 128 225 132 146 225 133 161 225 134 171 19"
     "9 133 32 226 128 139 1 120 239 187 191", "\304\260\303\200\357\254\201\341\272\233\352\260"
     "\200\341\204\222\341\205\241\341\206\253\307\205 \342\200\213\001x\357\273\277", 39, 33},
    {"norm StripAccents", NULL, "q\314\201\314\250\314\243 \360\236\200\260\340\253\277\314\200",
     "113 32 240 158 128 176 224 171 191", "q \360\236\200\260\340\253\277", 17, 9},
    {"norm Nmt", "{`normalizer`:{`type`:`Nmt`},`pre_tokenizer`:{`type`:`ByteLevel`,`add_prefix_s"
     "pace`:false,`use_regex`:true}}", "H\303\251llo\302\240the ab 333 the\314\201 \341\272\233"
     "\314\243 \344\275\240\345\245\2751\357\274\222\342\221\242 the.",
     "72 270 257 111 194 160 266 264 98 32 269 51 262 204 129 32 225 186 155 204 163 32 228 189 "
     "160 229 165 189 49 239 188 146 226 145 162 262 46", "H\303\251llo\302\240the ab 333 the"
     "\314\201 \341\272\233\314\243 \344\275\240\345\245\2751\357\274\222\342\221\242 the.", 49,
     49},
    {"norm Nmt", NULL, "\304\260\303\200\357\254\201\341\272\233\314\243\314\201\352\260\200\341"
     "\204\222\341\205\241\341\206\253\315\204\307\205 \342\200\213\001x\357\273\277",
     "196 176 195 128 239 172 129 225 186 155 204 163 204 129 234 176 128 225 132 146 225 133 16"
     "1 225 134 171 205 132 199 133 32 32 120 32", "\304\260\303\200\357\254\201\341\272\233\314"
     "\243\314\201\352\260\200\341\204\222\341\205\241\341\206\253\315\204\307\205  x ", 39, 34},
    {"norm Nmt", NULL, "q\314\201\314\250\314\243 \360\236\200\260\340\253\277\314\200",
     "113 204 129 204 168 204 163 32 240 158 128 176 224 171 191 204 128",
     "q\314\201\314\250\314\243 \360\236\200\260\340\253\277\314\200", 17, 17},
    {"norm sequence", "{`normalizer`:{`type`:`Sequence`,`normalizers`:[{`type`:`NFD`},{`type`:`S"
     "tripAccents`},{`type`:`Lowercase`}]},`pre_tokenizer`:{`type`:`ByteLevel`,`add_prefix_space"
     "`:false,`use_regex`:true}}", "H\303\211LLO Th\303\251", "261 262", "hello the", 11, 9},
    {"norm strip", "{`normalizer`:{`type`:`Strip`,`strip_left`:true,`strip_right`:true},`pre_tok"
     "enizer`:{`type`:`ByteLevel`,`add_prefix_space`:false,`use_regex`:true}}",
     "  the \302\240\n", "266", "the", 9, 3},
    {"norm strip", NULL, " ", "", "", 1, 0},
    {"norm strip left", "{`normalizer`:{`type`:`Strip`,`strip_left`:true,`strip_right`:false},`p"
     "re_tokenizer`:{`type`:`ByteLevel`,`add_prefix_space`:false,`use_regex`:true}}", "  the  ",
     "266 265", "the  ", 7, 5},
    {"norm replace", "{`normalizer`:{`type`:`Replace`,`pattern`:{`Regex`:`\\\\s+`},`content`:` `"
     "},`pre_tokenizer`:{`type`:`ByteLevel`,`add_prefix_space`:false,`use_regex`:true}}",
     "the \n the\343\200\200ab", "266 262 264 98", "the the ab", 14, 10},
    {"norm replace string", "{`normalizer`:{`type`:`Replace`,`pattern`:{`String`:`.`},`content`:"
     "`\342\226\201`},`pre_tokenizer`:{`type`:`ByteLevel`,`add_prefix_space`:false,`use_regex`:t"
     "rue}}", "a.b.", "97 275 98 275", "a\342\226\201b\342\226\201", 4, 8},
    {"norm prepend", "{`normalizer`:{`type`:`Prepend`,`prepend`:` `},`pre_tokenizer`:{`type`:`By"
     "teLevel`,`add_prefix_space`:false,`use_regex`:true}}", "the", "262", " the", 3, 4},
    {"norm prepend", NULL, "", "", "", 0, 0},
    {"norm bert", "{`normalizer`:{`type`:`BertNormalizer`,`clean_text`:true,`handle_chinese_char"
     "s`:true,`lowercase`:true},`pre_tokenizer`:{`type`:`ByteLevel`,`add_prefix_space`:false,`us"
     "e_regex`:true}}", "H\303\211LLO\000\344\275\240\345\245\275\342\200\215\011\302\240\357"
     "\277\275The\302\205\013.", "261 32 228 189 160 32 32 229 165 189 265 262 46",
     "hello \344\275\240  \345\245\275   the.", 29, 21},
    {"norm bert plain", "{`normalizer`:{`type`:`BertNormalizer`,`clean_text`:false,`handle_chine"
     "se_chars`:false,`strip_accents`:true,`lowercase`:false},`pre_tokenizer`:{`type`:`ByteLevel"
     "`,`add_prefix_space`:false,`use_regex`:true}}", "H\303\211LLO\344\275\240",
     "72 69 76 76 79 228 189 160", "HELLO\344\275\240", 9, 8},
    {"norm bytes", "{`normalizer`:{`type`:`ByteLevel`}}", "the \303\251\n", "266 32 270 10",
     "the \303\251\n", 7, 7},
    {"added tokens", "{`added_tokens`:[{`content`:`<s>`,`special`:true,`id`:276,`normalized`:fal"
     "se},{`content`:`</s>`,`special`:true,`lstrip`:true,`id`:277,`normalized`:false},{`content`"
     ":`<m>`,`special`:true,`rstrip`:true,`id`:278,`normalized`:false},{`content`:`<b>`,`special"
     "`:true,`lstrip`:true,`rstrip`:true,`id`:279,`normalized`:false},{`content`:`<w>`,`special`"
     ":true,`single_word`:true,`id`:280,`normalized`:false},{`content`:`the`,`id`:266,`normalize"
     "d`:false},{`content`:`hell`,`id`:260,`normalized`:false},{`content`:`  `,`id`:281,`normali"
     "zed`:false}],`pre_tokenizer`:{`type`:`ByteLevel`,`add_prefix_space`:false,`use_regex`:true"
     "}}", "<s>the hello  them </s> x </s>", "276 266 32 260 111 281 266 109 277 32 120 277",
     "<s>the hello  them</s> x</s>", 30, 28},
    {"added tokens", NULL, "a <m>  b<m>\n\n<b> the  <b>   <w>, <w>x <w> \303\251<w>",
     "97 32 278 281 98 278 279 266 281 279 281 32 280 44 32 60 119 62 120 32 280 32 270 60 119 6"
     "2", "a <m>  b<m><b>the  <b>   <w>, <w>x <w> \303\251<w>", 47, 44},
    {"added tokens", NULL, "<m>   the", "278 281 32 266", "<m>   the", 9, 9},
    {"added tokens", NULL, "hellthell", "260 266 257", "hellthell", 9, 9},
    {"added normalized", "{`added_tokens`:[{`id`:276,`content`:`THE`,`normalized`:true},{`id`:27"
     "7,`content`:`\303\251 x`,`normalized`:true,`special`:true},{`id`:201,`content`:`\303\211`,"
     "`normalized`:false,`special`:true}],`normalizer`:{`type`:`Lowercase`},`pre_tokenizer`:{`ty"
     "pe`:`ByteLevel`,`add_prefix_space`:false,`use_regex`:true}}",
     "the THE tHe \303\211 x\303\251 X \303\251 x", "276 32 276 32 276 32 201 32 120 277 32 277",
     "the the the \357\277\275 x\303\251 x \303\251 x", 25, 26},
    {"added normalized", NULL, "th\303\251 x the", "116 104 277 32 276", "th\303\251 x the", 10,
     10},
    {"template", "{`pre_tokenizer`:{`type`:`ByteLevel`,`add_prefix_space`:false,`use_regex`:true"
     "},`post_processor`:{`type`:`TemplateProcessing`,`single`:[{`SpecialToken`:{`id`:`[A]`,`typ"
     "e_id`:0}},{`Sequence`:{`id`:`A`,`type_id`:0}},{`SpecialToken`:{`id`:`[B]`,`type_id`:0}}],`"
     "pair`:[{`Sequence`:{`id`:`A`,`type_id`:0}},{`Sequence`:{`id`:`B`,`type_id`:1}}],`special_t"
     "okens`:{`[A]`:{`id`:`[A]`,`ids`:[5,6],`tokens`:[`x`,`y`]},`[B]`:{`id`:`[B]`,`ids`:[7],`tok"
     "ens`:[`z`]}}}}", "the", "5 6 266 7", "\005\006the\007", 3, 6},
    {"template", NULL, "", "5 6 7", "\005\006\007", 0, 3},
    {"post sequence", "{`pre_tokenizer`:{`type`:`ByteLevel`,`add_prefix_space`:false,`use_regex`"
     ":true},`post_processor`:{`type`:`Sequence`,`processors`:[{`type`:`ByteLevel`,`add_prefix_s"
     "pace`:false,`use_regex`:true},{`type`:`TemplateProcessing`,`single`:[{`SpecialToken`:{`id`"
     ":`[A]`,`type_id`:0}},{`Sequence`:{`id`:`A`,`type_id`:0}},{`SpecialToken`:{`id`:`[B]`,`type"
     "_id`:0}}],`pair`:[{`Sequence`:{`id`:`A`,`type_id`:0}},{`Sequence`:{`id`:`B`,`type_id`:1}}]"
     ",`special_tokens`:{`[A]`:{`id`:`[A]`,`ids`:[5,6],`tokens`:[`x`,`y`]},`[B]`:{`id`:`[B]`,`id"
     "s`:[7],`tokens`:[`z`]}}}]}}", "the", "5 6 266 7", "\005\006the\007", 3, 6},
    {"post roberta", "{`pre_tokenizer`:{`type`:`ByteLevel`,`add_prefix_space`:false,`use_regex`:"
     "true},`post_processor`:{`type`:`RobertaProcessing`,`sep`:[`</s>`,2],`cls`:[`<s>`,0],`add_p"
     "refix_space`:false}}", "the", "0 266 2", "\000the\002", 3, 5},
    {"no decoder", "{`pre_tokenizer`:{`type`:`ByteLevel`,`add_prefix_space`:false,`use_regex`:tr"
     "ue},`decoder`:null}", "hello the ab", "261 262 264 98", "hello \304\240the \304\240a b",
     12, 17},
    {"decoder replace", "{`pre_tokenizer`:{`type`:`ByteLevel`,`add_prefix_space`:false,`use_rege"
     "x`:true},`decoder`:{`type`:`Sequence`,`decoders`:[{`type`:`Replace`,`pattern`:{`String`:`"
     "\304\240`},`content`:`_`},{`type`:`Fuse`},{`type`:`Strip`,`content`:`_`,`start`:2,`stop`:1"
     "}]}}", "  hello the ", "32 32 261 262 32", "hello_the", 12, 9},
    {"decoder replace", NULL, "hello", "261", "hello", 5, 5},
    {"decoder metaspace", "{`pre_tokenizer`:{`type`:`ByteLevel`,`add_prefix_space`:false,`use_re"
     "gex`:true},`decoder`:{`type`:`Metaspace`,`replacement`:`\304\240`,`prepend_scheme`:`always"
     "`,`split`:true}}", " hello the", "32 261 262", "hello the", 10, 9},
    {"WordPiece", "{`pre_tokenizer`:{`type`:`BertPreTokenizer`},`post_processor`:{`type`:`BertPr"
     "ocessing`,`sep`:[`[SEP]`,2],`cls`:[`[CLS]`,1]},`decoder`:{`type`:`WordPiece`,`prefix`:`##`"
     ",`cleanup`:true},`model`:{`type`:`WordPiece`,`unk_token`:`[UNK]`,`continuing_subword_prefi"
     "x`:`##`,`max_input_chars_per_word`:8,`vocab`:{`[UNK]`:0,`[CLS]`:1,`[SEP]`:2,`un`:3,`##aff`"
     ":4,`##able`:5,`a`:6,`##a`:7,`##b`:8,`.`:9,`'`:10,`s`:11,`n`:12,`##'t`:13}}}",
     "unaffable un a.", "1 0 3 6 9 2", "[CLS] [UNK] un a. [SEP]", 15, 23},
    {"WordPiece", NULL, "ab aab abc", "1 6 8 6 7 8 0 2", "[CLS] ab aab [UNK] [SEP]", 10, 24},
    {"WordPiece", NULL, "un's n't unaffablea", "1 3 10 11 12 10 0 0 2",
     "[CLS] un ' s n ' [UNK] [UNK] [SEP]", 19, 34},
    {"WordPiece", NULL, "", "1 2", "[CLS] [SEP]", 0, 11},
    {"WordPiece no cleanup", "{`pre_tokenizer`:{`type`:`BertPreTokenizer`},`post_processor`:{`ty"
     "pe`:`BertProcessing`,`sep`:[`[SEP]`,2],`cls`:[`[CLS]`,1]},`decoder`:{`type`:`WordPiece`,`p"
     "refix`:`##`,`cleanup`:false},`model`:{`type`:`WordPiece`,`unk_token`:`[UNK]`,`continuing_s"
     "ubword_prefix`:`##`,`max_input_chars_per_word`:8,`vocab`:{`[UNK]`:0,`[CLS]`:1,`[SEP]`:2,`u"
     "n`:3,`##aff`:4,`##able`:5,`a`:6,`##a`:7,`##b`:8,`.`:9,`'`:10,`s`:11,`n`:12,`##'t`:13}}}",
     "unaffable a .", "1 0 6 9 2", "[CLS] [UNK] a . [SEP]", 13, 21},
    {"WordPiece without type", "{`pre_tokenizer`:{`type`:`BertPreTokenizer`},`post_processor`:{`"
     "type`:`BertProcessing`,`sep`:[`[SEP]`,2],`cls`:[`[CLS]`,1]},`decoder`:{`type`:`WordPiece`,"
     "`prefix`:`##`,`cleanup`:true},`model`:{`unk_token`:`[UNK]`,`continuing_subword_prefix`:`##"
     "`,`max_input_chars_per_word`:8,`vocab`:{`[UNK]`:0,`[CLS]`:1,`[SEP]`:2,`un`:3,`##aff`:4,`##"
     "able`:5,`a`:6,`##a`:7,`##b`:8,`.`:9,`'`:10,`s`:11,`n`:12,`##'t`:13}}}", "unaffable",
     "1 0 2", "[CLS] [UNK] [SEP]", 9, 17},
    {"WordLevel", "{`added_tokens`:[{`id`:3,`content`:`[X]`,`special`:true,`normalized`:false}],"
     "`normalizer`:{`type`:`Lowercase`},`pre_tokenizer`:{`type`:`Whitespace`},`model`:{`type`:`W"
     "ordLevel`,`unk_token`:`<unk>`,`vocab`:{`<unk>`:0,`hello`:1,`world`:2}}}",
     "Hello WORLD, hello[X]world", "1 2 0 1 3 2", "hello world <unk> hello [X] world", 26, 33},
    {"Unigram", "{`pre_tokenizer`:{`type`:`Metaspace`,`replacement`:`\342\226\201`,`prepend_sche"
     "me`:`always`,`split`:true},`decoder`:{`type`:`Metaspace`,`replacement`:`\342\226\201`,`pre"
     "pend_scheme`:`always`,`split`:true},`model`:{`type`:`Unigram`,`unk_id`:0,`vocab`:[[`<unk>`"
     ",0.0],[`\342\226\201`,-3.0],[`a`,-2.0],[`b`,-2.5],[`ab`,-3.5],[`\342\226\201ab`,-3.75],[`a"
     "bc`,-9.0],[`c`,-4.0],[`bc`,-4.25],[`\303\251`,-5.0]],`byte_fallback`:false}}", "ab abc",
     "5 5 7", "ab abc", 6, 6},
    {"Unigram", NULL, "xyz a \344\275\240\345\245\275b", "1 0 1 2 1 0 3", "<unk> a <unk>b", 13,
     14},
    {"Unigram", NULL, "aabbcc \303\251", "1 2 4 8 7 1 9", "aabbcc \303\251", 9, 9},
    {"Unigram", NULL, "", "", "", 0, 0},
    {"Unigram bytes", "{`pre_tokenizer`:{`type`:`Metaspace`,`replacement`:`\342\226\201`,`prepen"
     "d_scheme`:`always`,`split`:true},`decoder`:{`type`:`Sequence`,`decoders`:[{`type`:`ByteFal"
     "lback`},{`type`:`Fuse`}]},`model`:{`type`:`Unigram`,`unk_id`:0,`vocab`:[[`<unk>`,0.0],[`"
     "\342\226\201`,-3.0],[`a`,-2.0],[`b`,-2.5],[`ab`,-3.5],[`\342\226\201ab`,-3.75],[`abc`,-9.0"
     "],[`c`,-4.0],[`bc`,-4.25],[`\303\251`,-5.0],[`<0xE4>`,-20.0],[`<0xBD>`,-20.0],[`<0xA0>`,-2"
     "0.0],[`<0x78>`,-20.0]],`byte_fallback`:true}}", "x a \344\275\240b",
     "1 13 1 2 1 10 11 12 3", "\342\226\201x\342\226\201a\342\226\201\344\275\240b", 8, 15},
    {"Unigram bytes", NULL, "xx\345\245\275", "1 0", "\342\226\201<unk>", 5, 8},
    {"byte fallback", "{`normalizer`:{`type`:`Sequence`,`normalizers`:[{`type`:`Prepend`,`prepen"
     "d`:`\342\226\201`},{`type`:`Replace`,`pattern`:{`String`:` `},`content`:`\342\226\201`}]},"
     "`decoder`:{`type`:`Sequence`,`decoders`:[{`type`:`Replace`,`pattern`:{`String`:`\342\226"
     "\201`},`content`:` `},{`type`:`ByteFallback`},{`type`:`Fuse`},{`type`:`Strip`,`content`:` "
     "`,`start`:1,`stop`:0}]},`model`:{`type`:`BPE`,`unk_token`:`<unk>`,`fuse_unk`:true,`byte_fa"
     "llback`:true,`ignore_merges`:false,`vocab`:{`<unk>`:0,`\342\226\201`:1,`a`:2,`b`:3,`ab`:4,"
     "`\342\226\201a`:5,`\342\226\201ab`:6,`aa`:7,`aaa`:8,`<0xC3>`:9,`<0xA9>`:10,`<0x0A>`:11,`<0"
     "xE4>`:12},`merges`:[[`a`,`b`],[`\342\226\201`,`a`],[`\342\226\201`,`ab`],[`a`,`a`],[`aa`,`"
     "a`]]}}", "ab aab", "6 5 4", "ab aab", 6, 6},
    {"byte fallback", NULL, "\303\251\nab x\344\275\240a", "1 9 10 11 4 1 0 2",
     "\303\251\nab <unk>a", 11, 12},
    {"byte fallback", NULL, "aaaaaaa b", "5 7 7 7 1 3", "aaaaaaa b", 9, 9},
    {"byte fallback", NULL, "x\303\251xa", "1 9 10 0 2", "\303\251<unk>a", 5, 8},
    {"byte fallback unfused", "{`normalizer`:{`type`:`Sequence`,`normalizers`:[{`type`:`Prepend`"
     ",`prepend`:`\342\226\201`},{`type`:`Replace`,`pattern`:{`String`:` `},`content`:`\342\226"
     "\201`}]},`decoder`:{`type`:`Sequence`,`decoders`:[{`type`:`Replace`,`pattern`:{`String`:`"
     "\342\226\201`},`content`:` `},{`type`:`ByteFallback`},{`type`:`Fuse`},{`type`:`Strip`,`con"
     "tent`:` `,`start`:1,`stop`:0}]},`model`:{`type`:`BPE`,`unk_token`:`<unk>`,`fuse_unk`:false"
     ",`byte_fallback`:true,`ignore_merges`:false,`vocab`:{`<unk>`:0,`\342\226\201`:1,`a`:2,`b`:"
     "3,`ab`:4,`\342\226\201a`:5,`\342\226\201ab`:6,`aa`:7,`aaa`:8,`<0xC3>`:9,`<0xA9>`:10,`<0x0A"
     ">`:11,`<0xE4>`:12},`merges`:[[`a`,`b`],[`\342\226\201`,`a`],[`\342\226\201`,`ab`],[`a`,`a`"
     "],[`aa`,`a`]]}}", "\303\251\nab xx\344\275\240a", "1 9 10 11 4 1 0 0 0 2",
     "\303\251\nab <unk><unk><unk>a", 12, 22},
    {"prefix and suffix", "{`pre_tokenizer`:{`type`:`WhitespaceSplit`},`decoder`:{`type`:`BPEDec"
     "oder`,`suffix`:`</w>`},`model`:{`type`:`BPE`,`unk_token`:`<unk>`,`continuing_subword_prefi"
     "x`:`@@`,`end_of_word_suffix`:`</w>`,`fuse_unk`:false,`byte_fallback`:false,`vocab`:{`<unk>"
     "`:0,`a`:1,`b`:2,`@@a`:3,`@@b`:4,`@@a</w>`:5,`@@b</w>`:6,`a</w>`:7,`ab</w>`:8,`@@ab</w>`:9,"
     "`aa`:10,`aab</w>`:11},`merges`:[`@@a @@b</w>`,`a @@b</w>`,`a @@a`,`aa @@b</w>`]}}",
     "ab aab aaab a x", "8 1 9 10 9 7 0", "ab a@@ab aa@@ab a <unk>", 15, 23},
    {"prefix and suffix", NULL, "ba bab", "2 5 2 9", "b@@a b@@ab", 6, 10},
    {"ignore merges", "{`pre_tokenizer`:{`type`:`WhitespaceSplit`},`decoder`:{`type`:`Fuse`},`mo"
     "del`:{`type`:`BPE`,`continuing_subword_prefix`:``,`end_of_word_suffix`:``,`fuse_unk`:false"
     ",`byte_fallback`:false,`ignore_merges`:true,`vocab`:{`a`:0,`b`:1,`c`:2,`abc`:3,`ab`:4},`me"
     "rges`:[`a b`]}}", "abc ab abcabc dad", "3 4 4 2 4 2 0", "abcababcabca", 17, 12},
    {"merges kept", "{`pre_tokenizer`:{`type`:`WhitespaceSplit`},`decoder`:{`type`:`Fuse`},`mode"
     "l`:{`type`:`BPE`,`continuing_subword_prefix`:``,`end_of_word_suffix`:``,`fuse_unk`:false,`"
     "byte_fallback`:false,`ignore_merges`:false,`vocab`:{`a`:0,`b`:1,`c`:2,`abc`:3,`ab`:4},`mer"
     "ges`:[`a b`]}}", "abc ab abcabc dad", "4 2 4 4 2 4 2 0", "abcababcabca", 17, 12},
};
/* clang-format on */
