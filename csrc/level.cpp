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
};

}  // namespace thalweg::THALWEG_LEVEL
