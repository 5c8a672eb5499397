#include "functions.h"
#include "ops.h"

#define THALWEG_STRING(x) #x
#define THALWEG_NAME(x) THALWEG_STRING(x)

namespace thalweg::THALWEG_LEVEL {

void exp_all(const float* x, float* y, int64_t n) {
  for (int64_t i = 0; i < n; i += W) {
    int64_t some = least(W, n - i);
    store_some(y + i, exp_of(load_some(x + i, some)), some);
  }
}

// Nothing but loads, to compare with: the bits of whole KiB, added up.
uint32_t read_all(const uint8_t* data, int64_t bytes) {
  constexpr int kChains = 8;
  vu sums[kChains] = {};
  for (int64_t i = 0; i + 1024 <= bytes; i += 1024) {
    for (int64_t j = 0; j < 1024; j += 64) __builtin_prefetch(data + i + j + 4096);
    for (int64_t j = 0; j < 1024; j += W * 4) {
      int64_t chain = j / (W * 4) % kChains;
      sums[chain] = sums[chain] + load_bits(data + i + j);
    }
  }
  uint32_t total = 0;
  for (const vu& sum : sums) {
    for (int i = 0; i < W; ++i) total += sum[i];
  }
  return total;
}

const Kernels kKernels = {
    THALWEG_NAME(THALWEG_LEVEL),
    quantise,
    linear,
    norm,
    silu_and_mul,
    rotary,
    conv,
    gates,
    delta,
    attention_all,
    attention_tile,
    attention_merge,
    route,
    combine,
    exp_all,
    read_all,
};

}  // namespace thalweg::THALWEG_LEVEL
