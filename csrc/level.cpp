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

Largest largest(const float* x, int64_t n) {
  constexpr int64_t kChunk = 1024;
  Largest found{-__builtin_inff(), 0, false};
  int64_t chunk = 0;  // where the largest value is first
  for (int64_t begin = 0; begin < n; begin += kChunk) {
    constexpr int kChains = 4;
    vf most[kChains];
    vi nan{};
    for (vf& m : most) m = splat(found.value);
    int64_t end = least(n, begin + kChunk), i = begin;
    for (; i + kChains * W <= end; i += kChains * W) {
      for (int c = 0; c < kChains; ++c) {
        vf v = load(x + i + c * W);
        most[c] = v > most[c] ? v : most[c];
        nan |= v != v;
      }
    }
    float value = found.value;
    for (int j = 0; j < W; ++j) {
      for (vf& m : most) value = m[j] > value ? m[j] : value;
      found.has_nan |= nan[j] != 0;
    }
    for (; i < end; ++i) {
      value = x[i] > value ? x[i] : value;
      found.has_nan |= x[i] != x[i];
    }
    if (value > found.value) found.value = value, chunk = begin;
  }
  for (int64_t i = chunk; i < n; ++i) {
    if (x[i] == found.value) {
      found.place = i;
      break;
    }
  }
  return found;
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
    largest,
    read_all,
};

}  // namespace thalweg::THALWEG_LEVEL
