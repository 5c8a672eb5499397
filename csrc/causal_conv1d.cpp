// Depthwise causal convolution and SiLU: channels [first, last) of one sequence, token by token.
#include "functions.h"
#include "ops.h"

namespace thalweg::THALWEG_LEVEL {

void conv(const ConvCall& c, int64_t sequence, int64_t first, int64_t last) {
  constexpr int64_t kMostTaps = 16;
  int64_t past = c.taps - 1, slot_size = past * c.channels;
  int64_t bos = c.seqs.cu_seqlens[sequence], eos = c.seqs.cu_seqlens[sequence + 1];
  const float* loaded = c.pool + c.seqs.load_slots[sequence] * slot_size;
  for (int64_t ch = first; ch < last; ch += W) {
    int64_t n = least(W, last - ch);
    vf weight[kMostTaps], window[kMostTaps];  // window[0] is the oldest input
    for (int64_t j = 0; j < c.taps; ++j) weight[j] = get(c.weight + j * c.channels + ch, n);
    for (int64_t j = 0; j < past; ++j) window[j] = get(loaded + j * c.channels + ch, n);
    for (int64_t t = bos; t < eos; ++t) {
      window[past] = get(c.x + t * c.x_stride + ch, n);
      vf total = window[0] * weight[0];
      for (int64_t j = 1; j < c.taps; ++j) total = fma(window[j], weight[j], total);
      put(c.out + t * c.channels + ch, silu(total), n);
      for (int64_t j = 0; j < past; ++j) window[j] = window[j + 1];
      if (int32_t slot = c.seqs.store_slots[t]; slot != kSkip) {
        float* stored = c.pool + slot * slot_size;
        for (int64_t j = 0; j < past; ++j) put(stored + j * c.channels + ch, window[j], n);
      }
    }
  }
}

}  // namespace thalweg::THALWEG_LEVEL
