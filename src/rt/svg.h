/* What pictures are made of: boxes, and words that stay within their room.  Words are of one width
 * a character, so what they take is known without a font. */
#ifndef RT_SVG_H
#define RT_SVG_H

#include "base/str.h"

/* Of a character at 12 pixels, with what the widest of the usual fonts has more. */
#define SVG_CHAR 7.3

/* Opens a picture, with the style of all; in a page it has no size of its own and keeps its style
 * to itself. */
void svg_begin(str *out, double width, double height, bool in_page);
void svg_end(str *out);
typedef enum { SVG_START, SVG_MIDDLE, SVG_END } svg_anchor;
/* Words in so much room: those that are wider are cut, and whole in a tip.  soft: paler. */
void svg_text(str *out, double x, double y, svg_anchor a, bool soft, double room,
              const char *words);
/* class: of the style, or a colour "d" with a number; tip: NULL, or what a pointer shows. */
void svg_box(str *out, double x, double y, double w, double h, const char *class, int color,
             const char *tip);
void svg_line(str *out, double x0, double y0, double x1, double y1, const char *class, int color);

enum { SVG_COLORS = 8 };

#endif
