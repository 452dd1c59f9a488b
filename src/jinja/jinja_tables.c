/* The tables of filters, tests, methods and functions. */
#include "jinja/jinja_call.h"

#define FILTER(name, fn, least, params) jinja_fn jinja_filter_##fn;
#define REFUSED(name)
#include "jinja/jinja_filters.def"
#undef FILTER
#undef REFUSED
#define TEST(name, fn, least, params) jinja_fn jinja_test_##fn;
#define REFUSED(name)
#include "jinja/jinja_tests.def"
#undef TEST
#undef REFUSED
#define METHOD(kind, name, fn, least, params) jinja_fn jinja_method_##fn;
#define REFUSED(kind, name)
#define CHANGES(kind, name)
#include "jinja/jinja_methods.def"
#undef METHOD
#undef REFUSED
#undef CHANGES
#define FUNCTION(name, fn, least, params) jinja_fn jinja_function_##fn;
#define REFUSED(name)
#include "jinja/jinja_functions.def"
#undef FUNCTION
#undef REFUSED

const jinja_row jinja_filters[] = {
#define FILTER(name, fn, least, params) {#name, jinja_filter_##fn, params, least, 0},
#define REFUSED(name)                   {#name, NULL, "", 0, 0},
#include "jinja/jinja_filters.def"
#undef FILTER
#undef REFUSED
    {NULL, NULL, NULL, 0, 0}};

const jinja_row jinja_tests[] = {
#define TEST(name, fn, least, params) {name, jinja_test_##fn, params, least, 0},
#define REFUSED(name)                 {name, NULL, "", 0, 0},
#include "jinja/jinja_tests.def"
#undef TEST
#undef REFUSED
    {NULL, NULL, NULL, 0, 0}};

const jinja_row jinja_methods[] = {
#define METHOD(kind, name, fn, least, params)                                                      \
  {#name, jinja_method_##fn, params, least, JINJA_##kind},
#define REFUSED(kind, name) {#name, NULL, "", 0, JINJA_##kind},
#define CHANGES(kind, name) {#name, NULL, JINJA_CHANGES, 0, JINJA_##kind},
#include "jinja/jinja_methods.def"
#undef METHOD
#undef REFUSED
#undef CHANGES
    {NULL, NULL, NULL, 0, 0}};

const jinja_row jinja_functions[] = {
#define FUNCTION(name, fn, least, params) {#name, jinja_function_##fn, params, least, 0},
#define REFUSED(name)                     {#name, NULL, "", 0, 0},
#include "jinja/jinja_functions.def"
#undef FUNCTION
#undef REFUSED
    {NULL, NULL, NULL, 0, 0}};
