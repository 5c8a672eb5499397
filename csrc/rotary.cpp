// Turns channel pairs (i, i + half) by the angle position * frequency. The angle is a float, as
// models are trained with; its sine and cosine are computed in double and rounded once.
#include "ops.h"
#include "vec.h"

namespace thalweg::THALWEG_LEVEL {
namespace {

struct Turn {
  float cos, sin;
};

// Within 0.51 ulp for angles up to 2^20. Two parts of pi / 2, then Taylor's series on
// [-pi / 4, pi / 4], where the first term left out is below 2^-56.
Turn turn_of(float angle) {
  double x = angle;
  double n = __builtin_rint(x * 0.63661977236758134308);
  double r = fma(-n, 1.5707963267948966, x);
  r = fma(-n, 6.123233995736766e-17, r);
  double z = r * r;
  double s = 1.0 / 6227020800.0;
  s = fma(s, z, -1.0 / 39916800.0);
  s = fma(s, z, 1.0 / 362880.0);
  s = fma(s, z, -1.0 / 5040.0);
  s = fma(s, z, 1.0 / 120.0);
  s = fma(s, z, -1.0 / 6.0);
  s = fma(s * z, r, r);
  double c = 1.0 / 479001600.0;
  c = fma(c, z, -1.0 / 3628800.0);
  c = fma(c, z, 1.0 / 40320.0);
  c = fma(c, z, -1.0 / 720.0);
  c = fma(c, z, 1.0 / 24.0);
  c = fma(c, z, -0.5);
  c = fma(c, z, 1.0);
  int64_t quadrant = static_cast<int64_t>(n) & 3;
  double cos = quadrant & 1 ? s : c, sin = quadrant & 1 ? c : s;
  if (quadrant == 1 || quadrant == 2) cos = -cos;
  if (quadrant >= 2) sin = -sin;
  return {static_cast<float>(cos), static_cast<float>(sin)};
}

}  // namespace

void rotary(const RotaryCall& c, int64_t token) {
  constexpr int64_t kMostPairs = 512;
  alignas(64) float cos[kMostPairs], sin[kMostPairs];
  float position = static_cast<float>(c.positions[token]);
  for (int64_t i = 0; i < c.half; ++i) {
    Turn turn = turn_of(position * c.frequencies[i]);
    cos[i] = turn.cos * c.factor;
    sin[i] = turn.sin * c.factor;
  }
  for (int64_t head = 0; head < c.heads; ++head) {
    const float* x = c.x + token * c.x_token + head * c.x_head;
    float* out = c.out + (token * c.heads + head) * c.head_dim;
    int64_t i = 0;
    for (; i + W <= c.half; i += W) {
      vf a = load(x + i), b = load(x + c.half + i), u = load(cos + i), v = load(sin + i);
      store(out + i, fma(a, u, -(b * v)));
      store(out + c.half + i, fma(b, u, a * v));
    }
    for (; i < c.half; ++i) {
      float a = x[i], b = x[c.half + i];
      out[i] = fma(a, cos[i], -(b * sin[i]));
      out[c.half + i] = fma(b, cos[i], a * sin[i]);
    }
    for (int64_t j = 2 * c.half; j < c.head_dim; ++j) out[j] = x[j];
  }
}

}  // namespace thalweg::THALWEG_LEVEL
