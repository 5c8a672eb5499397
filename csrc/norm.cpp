// RMS norm alone, after a residual addition, and with a SiLU gate.
#include "functions.h"
#include "ops.h"

namespace thalweg::THALWEG_LEVEL {
namespace {

// Calls body(offset, count) for each vector of a row; the last may have count < W.
template <class Body>
INLINE void each_vector(int64_t width, Body body) {
  int64_t i = 0;
  for (; i + W <= width; i += W) body(i, int64_t{W});
  if (i < width) body(i, width - i);
}

INLINE float sum_of_squares(const float* x, int64_t width) {
  Lanes lanes = zero_lanes();
  int64_t i = 0;
  for (; i + kLanes <= width; i += kLanes) {
    for (int j = 0; j < kParts; ++j) {
      vf v = load(x + i + j * W);
      lanes.part[j] = fma(v, v, lanes.part[j]);
    }
  }
  for (int j = 0; i < width; i += W, ++j) {
    vf v = get(x + i, least(W, width - i));
    lanes.part[j] = fma(v, v, lanes.part[j]);
  }
  return fold(lanes);
}

}  // namespace

void norm(const NormCall& c, int64_t first_row, int64_t last_row) {
  for (int64_t row = first_row; row < last_row; ++row) {
    int64_t token = row / c.heads, head = row % c.heads;
    const float* x = c.x + token * c.x_token + head * c.x_head;
    if (c.residual) {
      const float* residual = c.residual + token * c.residual_token;
      float* sum = c.sum + row * c.width;
      each_vector(c.width, [&](int64_t i, int64_t n) {
        put(sum + i, get(x + i, n) + get(residual + i, n), n);
      });
      x = sum;
    }
    float mean = sum_of_squares(x, c.width) / static_cast<float>(c.width);
    float factor = 1.0f / __builtin_sqrtf(mean + c.eps);
    float* out = c.out + row * c.width;
    if (c.z) {
      const float* z = c.z + token * c.z_token + head * c.z_head;
      each_vector(c.width, [&](int64_t i, int64_t n) {
        vf normed = get(x + i, n) * factor * get(c.scale + i, n);
        put(out + i, normed * silu(get(z + i, n)), n);
      });
    } else {
      each_vector(c.width, [&](int64_t i, int64_t n) {
        put(out + i, get(x + i, n) * factor * get(c.scale + i, n), n);
      });
    }
  }
}

}  // namespace thalweg::THALWEG_LEVEL
