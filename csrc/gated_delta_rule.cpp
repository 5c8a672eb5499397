// The gated delta rule, token by token. Columns of the state are independent: they are the lanes,
// and a slice of 32 of them stays in the cache for all tokens of a sequence.
#include "functions.h"
#include "ops.h"

namespace thalweg::THALWEG_LEVEL {
namespace {

constexpr int64_t kSlice = 32;
constexpr int kVectors = kSlice / W;
constexpr int64_t kMostKeys = 512;

// x / |x| * scale, and 0 for 0.
INLINE void normalise(const float* x, int64_t k_dim, float scale, float* out) {
  Lanes lanes = zero_lanes();
  int64_t i = 0;
  for (; i + W <= k_dim; i += W) {
    vf v = load(x + i);
    lanes.part[i / W % kParts] = fma(v, v, lanes.part[i / W % kParts]);
  }
  if (i < k_dim) {
    vf v = load_some(x + i, k_dim - i);
    lanes.part[i / W % kParts] = fma(v, v, lanes.part[i / W % kParts]);
  }
  float factor = 1.0f / __builtin_sqrtf(fold(lanes) + 1e-6f);
  for (int64_t j = 0; j < k_dim; ++j) out[j] = x[j] * factor * scale;
}

// Magnitudes below 2^-100 are 0; comparing the bits leaves NaN as it is.
INLINE vf flushed(vf s) {
  vi magnitude = (vi)s & 0x7fffffff;
  return (vf)((vi)s & (magnitude >= 0x0d800000));
}

// S^T k of a token: even and odd keys apart, added at the end.
struct Read {
  vf part[2][kVectors];
};

INLINE Read nothing_read() {
  Read read;
  for (int i = 0; i < kVectors; ++i) read.part[0][i] = read.part[1][i] = zero();
  return read;
}

// A row of the state after the token before decays, and is read.
INLINE void decay_row(float* row, vf* s, int64_t r, const float* key, vf decay, Read& read) {
  vf k = splat(key[r]);
  for (int i = 0; i < kVectors; ++i) {
    s[i] = s[i] * decay;
    store(row + i * W, s[i]);
    read.part[r % 2][i] = fma(k, s[i], read.part[r % 2][i]);
  }
}

// A token finds the state decayed and read, and corrects it; on the way it decays and is read for
// the next token, if one follows at once.
template <bool Next>
Read step(float* state, int64_t k_dim, const float* key, const float* query, const float* v,
          const Read& read, float beta, const float* next_key, float next_decay, float* out) {
  vf u[kVectors], o[kVectors];
  for (int i = 0; i < kVectors; ++i) {
    u[i] = (load(v + i * W) - (read.part[0][i] + read.part[1][i])) * beta;
    o[i] = zero();
  }
  Read next = nothing_read();
  vf decay = splat(next_decay);
  auto row = [&](int64_t r) __attribute__((always_inline)) {
    vf k = splat(key[r]), q = splat(query[r]), s[kVectors];
    float* p = state + r * kSlice;
    for (int i = 0; i < kVectors; ++i) {
      s[i] = flushed(fma(k, u[i], load(p + i * W)));
      o[i] = fma(q, s[i], o[i]);
      if constexpr (!Next) store(p + i * W, s[i]);
    }
    if constexpr (Next) decay_row(p, s, r, next_key, decay, next);
  };
  int64_t r = 0;
  for (; r + 2 <= k_dim; r += 2) row(r), row(r + 1);
  if (r < k_dim) row(r);
  for (int i = 0; i < kVectors; ++i) store(out + i * W, o[i]);
  return next;
}

Read first_read(float* state, int64_t k_dim, const float* key, float decay) {
  Read read = nothing_read();
  for (int64_t r = 0; r < k_dim; ++r) {
    vf s[kVectors];
    for (int i = 0; i < kVectors; ++i) s[i] = load(state + r * kSlice + i * W);
    decay_row(state + r * kSlice, s, r, key, splat(decay), read);
  }
  return read;
}

INLINE void copy(float* to, int64_t to_stride, const float* from, int64_t from_stride, int64_t rows,
                 int64_t width) {
  for (int64_t r = 0; r < rows; ++r) {
    if (width == kSlice) {
      for (int i = 0; i < kVectors; ++i) {
        store(to + r * to_stride + i * W, load(from + r * from_stride + i * W));
      }
    } else {
      for (int64_t j = 0; j < width; ++j) to[r * to_stride + j] = from[r * from_stride + j];
    }
  }
}

}  // namespace

void gates(const GatesCall& c, int64_t token) {
  for (int64_t h = 0; h < c.heads; h += W) {
    int64_t n = least(W, c.heads - h);
    vf a = load_some(c.a + token * c.a_stride + h, n);
    vf b = load_some(c.b + token * c.b_stride + h, n);
    vf rate = load_some(c.rate + h, n), dt_bias = load_some(c.dt_bias + h, n);
    store_some(c.g + token * c.heads + h, rate * softplus(a + dt_bias), n);
    store_some(c.beta + token * c.heads + h, sigmoid(b), n);
  }
}

void delta(const DeltaCall& c, int64_t sequence, int64_t head) {
  int64_t bos = c.seqs.cu_seqlens[sequence], eos = c.seqs.cu_seqlens[sequence + 1];
  if (bos == eos) return;
  int64_t key_head = head / (c.num_v_heads / c.num_k_heads);
  int64_t head_size = c.k_dim * c.v_dim, slot_size = c.num_v_heads * head_size;
  const float* loaded = c.pool + c.seqs.load_slots[sequence] * slot_size + head * head_size;
  alignas(64) float state[kMostKeys * kSlice];
  for (int64_t column = 0; column < c.v_dim; column += kSlice) {
    int64_t width = least(kSlice, c.v_dim - column);
    if (width < kSlice) std::memset(state, 0, sizeof(float) * c.k_dim * kSlice);
    copy(state, kSlice, loaded + column, c.v_dim, c.k_dim, width);
    alignas(64) float keys[2][kMostKeys], query[kMostKeys], v[kSlice] = {}, o[kSlice];
    Read read;
    bool decayed = false;
    for (int64_t t = bos; t < eos; ++t) {
      float* key = keys[t % 2];
      float* next_key = keys[(t + 1) % 2];
      if (!decayed) {
        normalise(c.k + t * c.k_token + key_head * c.k_head, c.k_dim, 1.0f, key);
        read = first_read(state, c.k_dim, key, exp_of(c.g[t * c.num_v_heads + head]));
      }
      normalise(c.q + t * c.q_token + key_head * c.q_head, c.k_dim, c.scale, query);
      const float* values = c.v + t * c.v_token + head * c.v_head + column;
      for (int64_t j = 0; j < width; ++j) v[j] = values[j];
      float beta = c.beta[t * c.num_v_heads + head];
      int32_t slot = c.seqs.store_slots[t];
      decayed = t + 1 < eos && slot == kSkip;
      if (decayed) {
        normalise(c.k + (t + 1) * c.k_token + key_head * c.k_head, c.k_dim, 1.0f, next_key);
        float decay = exp_of(c.g[(t + 1) * c.num_v_heads + head]);
        read = step<true>(state, c.k_dim, key, query, v, read, beta, next_key, decay, o);
      } else {
        step<false>(state, c.k_dim, key, query, v, read, beta, nullptr, 0.0f, o);
      }
      float* out = c.out + (t * c.num_v_heads + head) * c.v_dim + column;
      for (int64_t j = 0; j < width; ++j) out[j] = o[j];
      if (slot != kSkip) {
        float* stored = c.pool + slot * slot_size + head * head_size + column;
        copy(stored, c.v_dim, state, kSlice, c.k_dim, width);
      }
    }
  }
}

}  // namespace thalweg::THALWEG_LEVEL
