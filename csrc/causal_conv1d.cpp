// Depthwise causal convolution and SiLU: channels [first, last) of one sequence, token by token.
#include "functions.h"
#include "ops.h"

namespace thalweg::THALWEG_LEVEL {

void conv(const ConvCall& c, int64_t sequence, int64_t first, int64_t last) {
  constexpr int64_t kMostTaps = 16;
  int64_t past = c.taps - 1, slot_size = past * c.channels;
  int64_t bos = c.seqs.cu_seqlens[sequence], eos = c.seqs.cu_seqlens[sequence + 1];
  alignas(64) float loaded[kMostTaps][kConvChannels];  // its slot may be stored to
  const float* inputs[kMostTaps];                      // the oldest first
  int64_t width = last - first;
  for (int64_t j = 0; j < past; ++j) {
    const float* from = c.pool + c.seqs.load_slots[sequence] * slot_size + j * c.channels + first;
    std::memcpy(loaded[j], from, width * sizeof(float));
    inputs[j] = loaded[j];
  }
  for (int64_t t = bos; t < eos; ++t) {
    inputs[past] = c.x + t * c.x_stride + first;
    float* out = c.out + t * c.channels + first;
    for (int64_t i = 0; i < width; i += W) {
      int64_t n = least(W, width - i);
      const float* weight = c.weight + first + i;
      vf total = get(inputs[0] + i, n) * get(weight, n);
      for (int64_t j = 1; j < c.taps; ++j) {
        total = fma(get(inputs[j] + i, n), get(weight + j * c.channels, n), total);
      }
      put(out + i, silu(total), n);
    }
    for (int64_t j = 0; j < past; ++j) inputs[j] = inputs[j + 1];
    if (int32_t slot = c.seqs.store_slots[t]; slot != kSkip) {
      for (int64_t j = 0; j < past; ++j) {
        float* stored = c.pool + slot * slot_size + j * c.channels + first;
        std::memcpy(stored, inputs[j], width * sizeof(float));
      }
    }
  }
}

}  // namespace thalweg::THALWEG_LEVEL
