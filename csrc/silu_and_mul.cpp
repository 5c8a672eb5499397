#include "functions.h"
#include "ops.h"

namespace thalweg::THALWEG_LEVEL {

void silu_and_mul(const SiluCall& c, int64_t row, int64_t begin, int64_t end) {
  const float* gate = c.gate_up + row * c.stride;
  const float* up = gate + c.width;
  float* out = c.out + row * c.width;
  int64_t i = begin;
  for (; i + W <= end; i += W) store(out + i, silu(load(gate + i)) * load(up + i));
  if (int64_t n = end - i; n > 0) {
    store_some(out + i, silu(load_some(gate + i, n)) * load_some(up + i, n), n);
  }
}

}  // namespace thalweg::THALWEG_LEVEL
