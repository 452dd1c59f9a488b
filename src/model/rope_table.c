/* Tables of the rotary embedding, in double and rounded once.
 * Formulas: default and linear (Su et al., kaiokendev), dynamic NTK (bloc97, emozilla), Llama 3.1's
 * smoothing by wavelength, YaRN (Peng et al., 2309.00071), LongRoPE (Ding et al., 2402.13753), as
 * Transformers applies them. */
#include "model/family.h"

#include <math.h>

static const double pi = 3.14159265358979323846;

/* Dim at which a turn takes `turns` rotations over the original length. */
static double find_yarn_dim(const rope_config *r, double dims, double turns) {
  return dims * log(r->original_length / (turns * 2 * pi)) / (2 * log(r->theta));
}

static double compute_yarn_frequency(const rope_config *r, double dims, double i, double plain) {
  double low = find_yarn_dim(r, dims, r->beta_fast), high = find_yarn_dim(r, dims, r->beta_slow);
  if (r->truncate) {
    low = floor(low);
    high = ceil(high);
  }
  if (low < 0) low = 0;
  if (high > dims - 1) high = dims - 1;
  if (low == high) high += 0.001;
  double ramp = (i - low) / (high - low);
  if (ramp < 0) ramp = 0;
  if (ramp > 1) ramp = 1;
  return plain / r->factor * ramp + plain * (1 - ramp);
}

static double compute_llama3_frequency(const rope_config *r, double plain) {
  double wave = 2 * pi / plain;
  if (wave > r->original_length / r->low_freq) return plain / r->factor;
  if (wave < r->original_length / r->high_freq) return plain;
  double smooth = (r->original_length / wave - r->low_freq) / (r->high_freq - r->low_freq);
  return (1 - smooth) * plain / r->factor + smooth * plain;
}

/* Radians per position of pair i, for a sequence of `length`. */
static double compute_frequency(const model_config *c, double dims, double i, double length) {
  const rope_config *r = &c->rope;
  double theta = r->theta;
  if (r->kind == ROPE_DYNAMIC && dims > 2) {
    double most = (double)c->max_length, n = length > most ? length : most;
    theta *= pow(r->factor * n / most - (r->factor - 1), dims / (dims - 2));
  }
  double plain = pow(theta, -2 * i / dims);
  switch (r->kind) {
  case ROPE_LINEAR: return plain / r->factor;
  case ROPE_LLAMA3: return compute_llama3_frequency(r, plain);
  case ROPE_YARN: return compute_yarn_frequency(r, dims, i, plain);
  case ROPE_LONGROPE: return plain / r->stretch[length > r->original_length][(int64_t)i];
  case ROPE_DEFAULT:
  case ROPE_DYNAMIC: break;
  }
  return plain;
}

double rope_mscale(double factor, double mscale) {
  return factor <= 1 ? 1 : 0.1 * mscale * log(factor) + 1;
}

static double compute_amplitude(const rope_config *r) {
  if (r->kind != ROPE_YARN && r->kind != ROPE_LONGROPE) return 1;
  if (r->attention_factor != 0) return r->attention_factor;
  if (r->kind == ROPE_LONGROPE)
    return r->factor <= 1 ? 1 : sqrt(1 + log(r->factor) / log(r->original_length));
  if (r->mscale != 0 && r->mscale_all_dim != 0)
    return rope_mscale(r->factor, r->mscale) / rope_mscale(r->factor, r->mscale_all_dim);
  return rope_mscale(r->factor, 1);
}

bool rope_depends_on_length(const rope_config *r) {
  return r->kind == ROPE_DYNAMIC || r->kind == ROPE_LONGROPE;
}

/* If the scaling depends on the length so far, a token generated at position p is rotated for a
 * sequence of p + 1; all tokens of the prompt for its length. */
void rope_table(const model_config *c, int64_t rows, int64_t length, float *cos_out,
                float *sin_out) {
  int64_t dims = c->rope.dims, half = dims / 2;
  double a = compute_amplitude(&c->rope);
  for (int64_t i = 0; i < half; i++) {
    double turn = compute_frequency(c, (double)dims, (double)i, (double)length);
    for (int64_t p = 0; p < rows; p++) {
      if (p >= length && rope_depends_on_length(&c->rope))
        turn = compute_frequency(c, (double)dims, (double)i, (double)(p + 1));
      cos_out[p * half + i] = (float)(a * cos((double)p * turn));
      sin_out[p * half + i] = (float)(a * sin((double)p * turn));
    }
  }
}
