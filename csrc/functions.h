// exp and what follows from it: one sequence of operations on every level. See docs/numerics.md.
#pragma once

#include "vec.h"

namespace thalweg::THALWEG_LEVEL {

// Cody and Waite's reduction, Cephes' polynomial: within 1.1 ulp. Overflows to inf, and goes
// through the subnormals to 0.
INLINE vf exp_of(vf x) {
  const vf magic = splat(12582912.0f);  // 1.5 * 2^23: adding it rounds to an integer
  x = x > splat(89.0f) ? splat(89.0f) : x;
  x = x < splat(-104.0f) ? splat(-104.0f) : x;
  vf shifted = fma(x, splat(1.44269504f), magic);
  vf n = shifted - magic;
  vu k = (vu)shifted - (vu)magic;
  vf r = fma(n, splat(-0.693359375f), x);
  r = fma(n, splat(2.12194440e-4f), r);
  vf p = splat(1.9875691500e-4f);
  p = fma(p, r, splat(1.3981999507e-3f));
  p = fma(p, r, splat(8.3334519073e-3f));
  p = fma(p, r, splat(4.1665795894e-2f));
  p = fma(p, r, splat(1.6666665459e-1f));
  p = fma(p, r, splat(5.0000001201e-1f));
  vf y = fma(p, r * r, r) + 1.0f;
  vu half = (vu)((vi)k >> 1);  // in two steps: 2^128 and 2^-150 are no floats
  vf first = (vf)((half + 127u) << 23), second = (vf)((k - half + 127u) << 23);
  return y * first * second;
}

INLINE vf sigmoid(vf x) { return 1.0f / (1.0f + exp_of(-x)); }
INLINE vf silu(vf x) { return x / (1.0f + exp_of(-x)); }

// log(1 + y) for y in [0, 1]: 2 atanh(y / (2 + y)) by its series.
INLINE vf log1p_of(vf y) {
  vf s = y / (2.0f + y);
  vf z = s * s;
  vf p = splat(1.0f / 17);
  p = fma(p, z, splat(1.0f / 15));
  p = fma(p, z, splat(1.0f / 13));
  p = fma(p, z, splat(1.0f / 11));
  p = fma(p, z, splat(1.0f / 9));
  p = fma(p, z, splat(1.0f / 7));
  p = fma(p, z, splat(1.0f / 5));
  p = fma(p, z, splat(1.0f / 3));
  vf twice = s + s;
  return fma(twice * z, p, twice);
}

INLINE vf softplus(vf x) {
  vf magnitude = (vf)((vu)x & 0x7fffffffu);
  vf positive = x > zero() ? x : zero();
  vf y = positive + log1p_of(exp_of(-magnitude));
  return x == x ? y : x;
}

INLINE float exp_of(float x) { return exp_of(splat(x))[0]; }

}  // namespace thalweg::THALWEG_LEVEL
