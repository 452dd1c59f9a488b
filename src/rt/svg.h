/* Elements of pictures: boxes, and text that fits its box.  All characters have one width, so
 * the width of a text is known without a font. */
#ifndef RT_SVG_H
#define RT_SVG_H

#include "base/str.h"

/* Width of a character at 12 pixels, with a margin for the widest common font. */
#define SVG_CHAR 7.3

/* Opens a picture, with the common style; within a page it has no size of its own, and its style
 * affects nothing else. */
void svg_begin(str *out, double width, double height, bool in_page);
void svg_end(str *out);
typedef enum { SVG_START, SVG_MIDDLE, SVG_END } svg_anchor;
/* Text in a given width: longer text is shortened, and complete in a tooltip.  soft: paler. */
void svg_text(str *out, double x, double y, svg_anchor a, bool soft, double room,
              const char *words);
/* class: of the style, or a colour "d" with a number; tip: NULL, or the text of a tooltip. */
void svg_box(str *out, double x, double y, double w, double h, const char *class, int color,
             const char *tip);
/* strength: from 0 to 1, of its colour. */
void svg_pale_box(str *out, double x, double y, double w, double h, const char *class, int color,
                  double strength, const char *tip);
void svg_line(str *out, double x0, double y0, double x1, double y1, const char *class, int color);

enum { SVG_COLORS = 8 };

#endif
