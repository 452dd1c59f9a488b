/* The layouts and stages of a model's tensors on the device. */
#include "model/lm_stages.h"

hp_status placement_apply(const placement *p, lm *m, hp_device *d) {
  placement_tell_idle(p, m);
  HP_TRY(lm_place(m, d, p));
  if (p->groups == 1) return strategy_apply(&p->group[0].by, m, d, -1);
  for (int i = 0, stage = 0; i < p->groups; i++)
    for (int64_t k = 0; k < p->group[i].by.pp; k++)
      HP_TRY(strategy_apply(&p->group[i].by, m, d, stage++));
  return HP_OK;
}
