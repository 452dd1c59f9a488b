/* Layouts as text, the same in dumps, YAML and `hyper layout`:
 *   (2,2,2)(dp,sp,mp)(mp,(sp,dp),None)+sum:dp@0,1,2,3,4,5,6,7
 * device matrix, axis names, one entry per tensor dim (a name, names in parentheses, the first
 * outermost, or None), then optional partial reductions and rank list.  A number in an entry,
 * such as mp:64, gives the length of a shard.  Blanks are ignored. */
#ifndef SHARD_LAYOUT_TEXT_H
#define SHARD_LAYOUT_TEXT_H

#include "ir/layout.h"
#include "topo/mesh.h"

/* Sets one dim, from names.  name: the n axes of dim `dim`; "None" is ignored.  HP_ERR_LAYOUT
 * for an unknown axis, or one that is used already. */
hp_status layout_split_dim(const mesh *m, layout *l, int dim, const char *const *name, int n);
/* HP_ERR_LAYOUT if the axis shards a dim, or another reduction is partial over it. */
hp_status layout_set_partial(const mesh *m, layout *l, const char *axis, const char *op);

/* From one placement per axis, "S(dim)", "R" or "P(op)"; a dim may count from the end.  Several
 * axes of one dim shard it in the order of the mesh. */
hp_status layout_from_placements(const mesh *m, const char *const *placement, int n, int rank,
                                 layout *out);

/* The full form.  Without the third part *called is false and *l empty. */
hp_status layout_parse(const char *text, mesh *m, layout *l, bool *called);
/* The third part and the partial reductions: "(mp,(sp,dp))+sum:dp". */
hp_status layout_parse_on(const char *text, const mesh *m, layout *l);
void mesh_print(const mesh *m, str *out);       /* (2,2)(dp,mp) */
void mesh_print_ranks(const mesh *m, str *out); /* @0,2,1,3; nothing for 0, 1, 2, ... */
/* (dp,None)+sum:mp */
void layout_print_on(const mesh *m, const layout *l, str *out);
/* The full form. */
void layout_print(const mesh *m, const layout *l, str *out);

#endif
