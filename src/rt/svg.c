#include "rt/svg.h"

#include <string.h>

static const char style[] =
    "<style>\n"
    ".hx text{font:12px ui-monospace,monospace;fill:#111827}.hx text.soft{fill:#6b7280}\n"
    ".hx .part{fill:none;stroke:#374151}.hx .many{fill:#e5e7eb}.hx .grid{stroke:#e5e7eb}\n"
    ".hx .d0{fill:#bfdbfe}.hx .d1{fill:#fed7aa}.hx .d2{fill:#bbf7d0}.hx .d3{fill:#ddd6fe}"
    ".hx .d4{fill:#fecaca}.hx .d5{fill:#a5f3fc}.hx .d6{fill:#fbcfe8}.hx .d7{fill:#d6d3d1}\n"
    ".hx .s0{fill:#2563eb}.hx .s1{fill:#d97706}.hx .s2{fill:#059669}.hx .s3{fill:#7c3aed}"
    ".hx .s4{fill:#dc2626}.hx .s5{fill:#0891b2}.hx .s6{fill:#db2777}.hx .s7{fill:#64748b}\n"
    ".hx .l0{stroke:#2563eb}.hx .l1{stroke:#d97706}.hx .l2{stroke:#059669}.hx .l3{stroke:#7c3aed}"
    ".hx .l4{stroke:#dc2626}.hx .l5{stroke:#0891b2}.hx .l6{stroke:#db2777}.hx .l7{stroke:#64748b}"
    ".hx .link{stroke-width:3;fill:none}\n"
    ".hx .limit{stroke:#dc2626;stroke-width:1.5;stroke-dasharray:7 4;fill:none}"
    ".hx .planned{stroke:#6b7280;stroke-dasharray:2 3;fill:none}"
    ".hx .expected{stroke:#374151;stroke-dasharray:5 3;fill:none}\n"
    "@media(prefers-color-scheme:dark){.hx text{fill:#f3f4f6}.hx text.soft{fill:#9ca3af}"
    ".hx .part{stroke:#d1d5db}.hx .many{fill:#374151}.hx .grid{stroke:#374151}\n"
    ".hx .d0{fill:#1e40af}.hx .d1{fill:#9a3412}.hx .d2{fill:#166534}.hx .d3{fill:#5b21b6}"
    ".hx .d4{fill:#991b1b}.hx .d5{fill:#155e75}.hx .d6{fill:#9d174d}.hx .d7{fill:#57534e}}\n"
    "</style>\n";
static const char alone[] =
    "<style>svg.hx{background:#fff}@media(prefers-color-scheme:dark){svg.hx{"
    "background:#111827}}</style>\n";

void svg_begin(str *out, double width, double height, bool in_page) {
  str_add(out, "<svg class=\"hx\" xmlns=\"http://www.w3.org/2000/svg\" ");
  if (!in_page) str_printf(out, "width=\"%.0f\" height=\"%.0f\" ", width, height);
  str_printf(out, "viewBox=\"0 0 %.0f %.0f\" role=\"img\">\n%s%s", width, height, style,
             in_page ? "" : alone);
}

void svg_end(str *out) { str_add(out, "</svg>\n"); }

static void add_tip(str *out, const char *tip) {
  str_add(out, "<title>");
  str_add_xml(out, tip);
  str_add(out, "</title>");
}

/* Characters of UTF-8 text. */
static size_t length(const char *s) {
  size_t n = 0;
  for (; *s; s++) n += ((unsigned char)*s & 0xc0) != 0x80;
  return n;
}

/* The first n characters. */
static void add_first(str *out, const char *words, size_t n) {
  str part = {0};
  for (; *words && (n || ((unsigned char)*words & 0xc0) == 0x80); words++) {
    if (((unsigned char)*words & 0xc0) != 0x80) n--;
    str_add_char(&part, *words);
  }
  if (part.at) str_add_xml(out, part.at);
  out->failed |= part.failed;
  str_free(&part);
}

void svg_text(str *out, double x, double y, svg_anchor a, bool soft, double room,
              const char *words) {
  static const char *const anchor[] = {"", " text-anchor=\"middle\"", " text-anchor=\"end\""};
  size_t fits = room > 0 ? (size_t)(room / SVG_CHAR) : 0;
  bool whole = length(words) <= fits;
  if (fits < 4 && !whole) return; /* not even dots fit */
  str_printf(out, "<text x=\"%.1f\" y=\"%.1f\"%s%s>", x, y, anchor[a],
             soft ? " class=\"soft\"" : "");
  if (whole) str_add_xml(out, words);
  else {
    add_tip(out, words);
    add_first(out, words, fits - 3);
    str_add(out, "...");
  }
  str_add(out, "</text>\n");
}

void svg_pale_box(str *out, double x, double y, double w, double h, const char *class, int color,
                  double strength, const char *tip) {
  str_printf(out, "<rect x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\" class=\"%s", x, y, w,
             h, class);
  if (color >= 0) str_printf(out, "%d", color % SVG_COLORS);
  str_add_char(out, '"');
  if (strength < 0.95) str_printf(out, " fill-opacity=\"%.2f\"", strength < 0.15 ? 0.15 : strength);
  if (tip) {
    str_add_char(out, '>');
    add_tip(out, tip);
    str_add(out, "</rect>\n");
  } else {
    str_add(out, "/>\n");
  }
}

void svg_box(str *out, double x, double y, double w, double h, const char *class, int color,
             const char *tip) {
  svg_pale_box(out, x, y, w, h, class, color, 1, tip);
}

void svg_line(str *out, double x0, double y0, double x1, double y1, const char *class, int color) {
  str_printf(out, "<path d=\"M%.1f %.1fL%.1f %.1f\" class=\"%s", x0, y0, x1, y1, class);
  if (color >= 0) str_printf(out, " l%d", color % SVG_COLORS);
  str_add(out, "\"/>\n");
}
