#include "test.h"

#include "report/chart.h"

#include <math.h>

static chart of(const chart_line *line, int n) {
  return (chart){.title = "a <b> & \"c\"",
                 .x_label = "step",
                 .y_label = "loss",
                 .line = line,
                 .lines = n,
                 .width = 600,
                 .height = 400};
}

static int count(const char *s, const char *part) {
  int n = 0;
  for (; (s = strstr(s, part)); s++) n++;
  return n;
}

/* Expected: LlamaFactory's smooth([3, 1, 4, 1, 5]). */
TEST(smoothing_is_llamafactorys) {
  const double y[] = {3, 1, 4, 1, 5}, want[] = {3.0, 1.2238354031888732, 3.689298039077053,
                                                1.300980055435929, 4.58601418965241};
  double out[5];
  chart_smooth(y, 5, out);
  for (int i = 0; i < 5; i++) CHECK_NEAR(out[i], want[i], 1e-15);
  chart_smooth(y, 0, out);
}

TEST(a_chart_shows_its_lines_and_escapes_its_words) {
  const double x[] = {1, 2, 3}, y[] = {4, 2, 1}, z[] = {5, NAN, 3};
  chart_line line[] = {{"original", x, y, 3, 0, 0.4, NULL}, {"smoothed", x, z, 3, 1, 1, NULL}};
  chart c = of(line, 2);
  str s = {0};
  chart_svg(&c, CHART_ALONE, &s);
  CHECK_OK(str_status(&s));
  CHECK(strstr(s.at, "a &lt;b&gt; &amp; &quot;c&quot;"));
  CHECK(strstr(s.at, ">original</text>") && strstr(s.at, ">smoothed</text>"));
  CHECK(strstr(s.at, "prefers-color-scheme"));
  CHECK_EQ(count(s.at, "class=\"c0\""), 2); /* legend and line */
  CHECK_EQ(count(s.at, "class=\"c1\""), 3); /* cut in two by the gap */
  CHECK(!strstr(s.at, "nan") && !strstr(s.at, "inf"));
  str first = s;
  s = (str){0};
  chart_svg(&c, CHART_ALONE, &s);
  CHECK_STR(s.at, first.at);
  str_clear(&s);
  CHECK_OK(chart_png(&c, &s));
  CHECK(s.len > 1000 && !memcmp(s.at, "\x89PNG", 4));
  str_free(&s);
  str_free(&first);
}

TEST(nothing_one_point_and_equal_points_are_drawn_too) {
  const double x[] = {7, 7, 8}, y[] = {2, 2, 2}, odd[] = {NAN, INFINITY, -INFINITY},
               big[] = {1e300, -1e300, 0}, small[] = {0, 1e-320, 0};
  const double *const ys[] = {y, odd, big, small};
  for (int i = 0; i < 4; i++)
    for (size_t n = 0; n <= 3; n++) {
      chart_line line = {"y", x, ys[i], n, 0, 1, NULL};
      chart c = of(&line, 1);
      str s = {0};
      chart_svg(&c, CHART_IN_PAGE, &s);
      CHECK_OK(chart_png(&c, &s));
      CHECK(!memmem(s.at, s.len, "nan", 3) && !memmem(s.at, s.len, "d=\"Minf", 7));
      str_free(&s);
    }
}

TEST(a_long_line_is_thinned_but_keeps_its_peaks) {
  enum { N = 200000 };
  static double x[N], y[N];
  for (int i = 0; i < N; i++) {
    x[i] = i;
    y[i] = 1;
  }
  y[123457] = 100;
  chart_line line = {"y", x, y, N, 0, 1, NULL};
  chart c = of(&line, 1);
  str s = {0};
  chart_svg(&c, CHART_ALONE, &s);
  CHECK(s.len < 100000);
  chart_frame f = chart_layout(&c);
  char peak[40];
  snprintf(peak, sizeof peak, " %.2f",
           f.bottom - (100 - f.y0) / (f.y1 - f.y0) * (f.bottom - f.top));
  CHECK(strstr(s.at, peak));
  str_free(&s);
}

TEST(bytes_and_counts_read_well) {
  static const struct {
    double x;
    const char *bytes, *count;
  } row[] = {{0, "0 B", "0"},
             {1536, "1.50 KiB", "1.54 k"},
             {1073741824, "1 GiB", "1.07 G"},
             {12345678, "11.8 MiB", "12.3 M"},
             {999, "999 B", "999"}};
  for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
    str s = {0};
    chart_print_bytes(row[i].x, &s);
    CHECK_STR(s.at, row[i].bytes);
    str_clear(&s);
    chart_print_count(row[i].x, &s);
    CHECK_STR(s.at, row[i].count);
    str_free(&s);
  }
}
