#include "test.h"

#include "ir/einsum_eq.h"

static const char *again(const char *text) {
  static char out[EINSUM_TEXT_MAX];
  einsum_eq eq;
  CHECK_OK(einsum_parse(text, &eq));
  return einsum_print(&eq, out);
}

TEST(einsum_equations_print_as_they_were_read) {
  CHECK_STR(again("btd,de->bte"), "btd,de->bte");
  CHECK_STR(again(" b h t d , b h s d -> b h t s "), "bhtd,bhsd->bhts");
  CHECK_STR(again("i,i->"), "i,i->");
  CHECK_STR(again(",i->i"), ",i->i");
  CHECK_STR(again(",->"), ",->");
  CHECK_STR(again("abcdef,ABCDEF->aAbBcC"), "abcdef,ABCDEF->aAbBcC");
}

TEST(einsum_refuses_what_is_not_an_equation) {
  einsum_eq eq = {.a = "keep"};
  const struct {
    const char *text, *why;
  } row[] = {{"", "the end, expected a letter or ','"},
             {"ab", "at character 3"},
             {"ab,bc", "\"->\""},
             {"ab,bc-", "at character 6"},
             {"ab,bc->ac,", "at character 10 there is ','"},
             {"ab,bc,cd->ad", "at character 6"},
             {"a...,b->ab", "at character 2"},
             {"a1,b->ab", "'1'"},
             {"\x01,b->b", "'?'"},
             {"aab,b->a", "'a' occurs twice in the first operand"},
             {"ab,cbc->a", "'c' occurs twice in the second operand"},
             {"ab,b->aa", "'a' occurs twice in the result"},
             {"ab,bc->ad", "'d' of the result is in neither operand"},
             {"abcdefg,a->a", "more than 6 letters"},
             {"a,b->abcdefgh", "more than 6 letters"}};
  for (size_t i = 0; i < sizeof row / sizeof *row; i++)
    CHECK_FAILS(einsum_parse(row[i].text, &eq), row[i].why);
  CHECK_STR(eq.a, "keep"); /* outputs are untouched */
}

TEST(einsum_letters_have_roles) {
  einsum_eq eq;
  char l[EINSUM_LETTERS_MAX + 1];
  CHECK_OK(einsum_parse("bxmk,kbyn->bnm", &eq));
  CHECK_EQ(einsum_letter_role(&eq, 'b'), EINSUM_BATCH);
  CHECK_EQ(einsum_letter_role(&eq, 'm'), EINSUM_ROW);
  CHECK_EQ(einsum_letter_role(&eq, 'n'), EINSUM_COL);
  CHECK_EQ(einsum_letter_role(&eq, 'k'), EINSUM_INNER);
  CHECK_EQ(einsum_letter_role(&eq, 'x'), EINSUM_SUM_A);
  CHECK_EQ(einsum_letter_role(&eq, 'y'), EINSUM_SUM_B);
  CHECK_EQ(einsum_letter_role(&eq, 'z'), EINSUM_NONE);
  CHECK_EQ(einsum_letter_role(&eq, 0), EINSUM_NONE);
  CHECK_OK(einsum_parse("hdm,dhn->mn", &eq));
  CHECK_EQ(einsum_letters(&eq, EINSUM_INNER, l), 2);
  CHECK_STR(l, "hd"); /* in the order of the first operand */
}

TEST(einsum_shape_of_the_result) {
  einsum_eq eq;
  hp_shape a = {3, {2, 3, 4}}, b = {2, {4, 5}}, out = {0};
  CHECK_OK(einsum_parse("btd,de->ebt", &eq));
  CHECK_OK(einsum_out_shape(&eq, &a, &b, &out));
  CHECK_EQ(out.rank, 3);
  CHECK_EQ(out.dim[0], 5);
  CHECK_EQ(out.dim[1], 2);
  CHECK_EQ(out.dim[2], 3);
  b.dim[0] = 7;
  CHECK_FAILS(einsum_out_shape(&eq, &a, &b, &out), "'d' is 4 in the first operand and 7");
  CHECK_FAILS(einsum_out_shape(&eq, &b, &b, &out), "has 3 dims, its tensor has 2");
  b.dim[0] = -4;
  CHECK_FAILS(einsum_out_shape(&eq, &a, &b, &out), "size -4");
  hp_shape big = {2, {INT64_MAX / 4, 4}};
  CHECK_OK(einsum_parse("ab,cd->abcd", &eq));
  CHECK_FAILS(einsum_out_shape(&eq, &big, &big, &out), "more elements");
}

static const char *grad(const char *text, int operand, const char *missing) {
  static char out[EINSUM_TEXT_MAX];
  einsum_eq eq;
  einsum_grad g;
  CHECK_OK(einsum_parse(text, &eq));
  einsum_grad_of(&eq, operand, &g);
  CHECK_STR(g.missing, missing);
  return einsum_print(&g.eq, out);
}

TEST(einsum_gradients_are_einsums) {
  CHECK_STR(grad("btd,de->bte", 0, ""), "bte,de->btd");
  CHECK_STR(grad("btd,de->bte", 1, ""), "btd,bte->de");
  CHECK_STR(grad("bthd,bshd->bhts", 0, ""), "bhts,bshd->bthd");
  CHECK_STR(grad("bthd,bshd->bhts", 1, ""), "bthd,bhts->bshd");
  CHECK_STR(grad("ixj,j->i", 0, "x"), "i,j->ij"); /* broadcast along x afterwards */
  CHECK_STR(grad("ij,xj->i", 1, "x"), "ij,i->j");
  CHECK_STR(grad("i,i->", 1, ""), "i,->i");
}
