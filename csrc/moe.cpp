// Routing and the weighted sum of experts; their products are `linear`'s.
#include "functions.h"
#include "ops.h"

namespace thalweg::THALWEG_LEVEL {

// Softmax (16 lanes), the top_k largest (ties: the lowest id), written by ascending id.
void route(const RouterCall& c, int64_t row) {
  constexpr int64_t kMostExperts = 4096;
  const float* logits = c.logits + row * c.num_experts;
  int32_t* experts = c.experts + row * c.top_k;
  float* weights = c.weights + row * c.top_k;
  alignas(64) float probs[kMostExperts];
  float max = -__builtin_inff();
  for (int64_t e = 0; e < c.num_experts; ++e) max = logits[e] > max ? logits[e] : max;
  Lanes lanes = zero_lanes();
  for (int64_t e = 0; e < c.num_experts; e += W) {
    int64_t n = least(W, c.num_experts - e);
    vf p = exp_of(load_some(logits + e, n) - max);
    store_some(probs + e, p, n);
    for (int64_t i = n; i < W; ++i) p[i] = 0.0f;
    lanes.part[e / W % kParts] = lanes.part[e / W % kParts] + p;
  }
  float total = fold(lanes);
  for (int64_t e = 0; e < c.num_experts; ++e) probs[e] = probs[e] / total;
  float floor = 0.0f;
  for (int64_t i = 0; i < c.top_k; ++i) {
    int64_t best = -1;
    for (int64_t e = 0; e < c.num_experts; ++e) {
      bool taken = false;
      for (int64_t j = 0; j < i; ++j) taken = taken || experts[j] == e;
      if (!taken && (best < 0 || probs[e] > probs[best])) best = e;
    }
    experts[i] = static_cast<int32_t>(best);
    floor = floor + probs[best];  // in descending order
  }
  for (int64_t i = 1; i < c.top_k; ++i) {
    int32_t e = experts[i];
    int64_t j = i;
    for (; j > 0 && experts[j - 1] > e; --j) experts[j] = experts[j - 1];
    experts[j] = e;
  }
  for (int64_t i = 0; i < c.top_k; ++i) {
    weights[i] = c.normalise ? probs[experts[i]] / floor : probs[experts[i]];
  }
}

void combine(const CombineCall& c, int64_t row) {
  float gate = c.shared ? sigmoid(splat(c.gate[row]))[0] : 0.0f;
  for (int64_t i = 0; i < c.width; i += W) {
    int64_t n = least(W, c.width - i);
    vf sum = zero();
    for (int64_t j = 0; j < c.top_k; ++j) {
      const float* y = c.y + c.places[row * c.top_k + j] * c.width + i;
      vf v = n == W ? load(y) : load_some(y, n);
      sum = fma(splat(c.weights[row * c.top_k + j]), v, sum);
    }
    if (c.shared) {
      const float* y = c.shared + row * c.width + i;
      vf v = n == W ? load(y) : load_some(y, n);
      sum = fma(splat(gate), v, sum);
    }
    store_some(c.out + row * c.width + i, sum, n);
  }
}

}  // namespace thalweg::THALWEG_LEVEL
