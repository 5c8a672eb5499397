// Causal attention over the paged cache. A context is walked in tiles of 128 positions from
// position 0. A tile gives each query a partial (max, sum, acc); partials are merged in ascending
// order, wherever each was computed.
//
// Score: 16 lanes along head_dim, folded. Sum of a tile: 16 lanes along positions, folded.
// acc: a chain of fused multiply-adds over the tile's positions, ascending.
#include "functions.h"
#include "ops.h"
#include "scratch.h"

namespace thalweg::THALWEG_LEVEL {
namespace {

constexpr int64_t kMostDim = 512;

struct Rows {
  const AttentionCall& c;
  const AttentionItem& item;
  int64_t padded;  // head_dim, rounded up to whole sums of 16 lanes

  // Where `count` positions from `start` on lie in the caches.
  void find(int64_t start, int64_t count, int64_t* offsets) const {
    const int32_t* table = c.block_table + item.sequence * c.table_stride;
    int64_t block = start / c.block_size, within = start % c.block_size;
    for (int64_t j = 0; j < count; ++j) {
      int64_t row = table[block] * c.block_size + within;
      offsets[j] = (row * c.num_kv_heads + item.kv_head) * c.head_dim;
      if (++within == c.block_size) within = 0, ++block;
    }
  }

  // One of these rows as padded floats.
  void read(const void* cache, int64_t offset, float* out) const {
    int64_t i = 0;
    if (c.bf16_cache) {
      const uint16_t* p = static_cast<const uint16_t*>(cache) + offset;
      for (; i + W <= c.head_dim; i += W) store(out + i, load_bf16(p + i));
      for (; i < c.head_dim; ++i) {
        uint32_t bits = static_cast<uint32_t>(p[i]) << 16;
        std::memcpy(out + i, &bits, 4);
      }
    } else {
      const float* p = static_cast<const float*>(cache) + offset;
      for (; i + W <= c.head_dim; i += W) store(out + i, load(p + i));
      for (; i < c.head_dim; ++i) out[i] = p[i];
    }
    for (; i < padded; ++i) out[i] = 0.0f;
  }
};

INLINE int64_t padded_dim(const AttentionCall& c) { return round_up(c.head_dim, kLanes); }
INLINE int64_t group_of(const AttentionCall& c) { return c.num_heads / c.num_kv_heads; }
INLINE int64_t num_queries(const AttentionCall& c, const AttentionItem& item) {
  return item.num_tokens * group_of(c);
}
// Rows of queries in use: where blocks of 4 cost the least, more of them than there are queries.
INLINE int64_t num_rows(int64_t queries) { return W == kLanes ? round_up(queries, 4) : queries; }
INLINE int64_t position_of(const AttentionCall& c, const AttentionItem& item, int64_t query) {
  return c.positions[item.token + query / group_of(c)];
}

// Scores of M queries with one key; `q` rows are `padded` apart.
template <int M>
INLINE void score(const float* q, int64_t padded, const float* key, float scale, float* out) {
  Lanes lanes[M];
  for (int m = 0; m < M; ++m) lanes[m] = zero_lanes();
  for (int64_t d = 0; d < padded; d += kLanes) {
    for (int j = 0; j < kParts; ++j) {
      vf k = load(key + d + j * W);
      for (int m = 0; m < M; ++m) {
        lanes[m].part[j] = fma(load(q + m * padded + d + j * W), k, lanes[m].part[j]);
      }
    }
  }
  for (int m = 0; m < M; ++m) out[m * kTile] = fold(lanes[m]) * scale;
}

constexpr int64_t kKeys = 4;

// Scores of 4 queries with 4 keys. Widest vectors only: the others have too few registers.
INLINE void score_block([[maybe_unused]] const float* q, [[maybe_unused]] const float* keys,
                        [[maybe_unused]] int64_t padded, [[maybe_unused]] float scale,
                        [[maybe_unused]] float* out) {
#if defined(__AVX512F__)
  vf sum[16];  // of query m and key n: m + 4 n
  for (vf& s : sum) s = zero();
  for (int64_t d = 0; d < padded; d += kLanes) {
    vf a[4];
    for (int m = 0; m < 4; ++m) a[m] = load(q + m * padded + d);
    for (int n = 0; n < 4; ++n) {
      vf k = load(keys + n * padded + d);
      for (int m = 0; m < 4; ++m) sum[m + 4 * n] = fma(a[m], k, sum[m + 4 * n]);
    }
  }
  // What `fold` does, for 16 at once: lanes 8 apart, then 4, 2, 1.
  vf half[8], quarter[4], pair[2];
  for (int i = 0; i < 8; ++i) {
    half[i] = (vf)_mm512_shuffle_f32x4(sum[2 * i], sum[2 * i + 1], 0x44) +
              (vf)_mm512_shuffle_f32x4(sum[2 * i], sum[2 * i + 1], 0xee);
  }
  for (int i = 0; i < 4; ++i) {
    quarter[i] = (vf)_mm512_shuffle_f32x4(half[2 * i], half[2 * i + 1], 0x88) +
                 (vf)_mm512_shuffle_f32x4(half[2 * i], half[2 * i + 1], 0xdd);
  }
  for (int i = 0; i < 2; ++i) {
    pair[i] = (vf)_mm512_shuffle_ps(quarter[2 * i], quarter[2 * i + 1], 0x44) +
              (vf)_mm512_shuffle_ps(quarter[2 * i], quarter[2 * i + 1], 0xee);
  }
  vf total = (vf)_mm512_shuffle_ps(pair[0], pair[1], 0x88) +
             (vf)_mm512_shuffle_ps(pair[0], pair[1], 0xdd);
  total = total * scale;
  alignas(64) float scores[16];
  store(scores, total);
  for (int m = 0; m < 4; ++m) std::memcpy(out + m * kTile, scores + 4 * m, 16);
#endif
}

// acc[m][0 .. N vectors) += weights[m][j] * values[j], j in [begin, end), in order.
template <int M, int N>
INLINE void add_values(const float* weights, const float* values, int64_t padded, int64_t begin,
                       int64_t end, float* acc) {
  vf sum[M][N];
  for (int m = 0; m < M; ++m) {
    for (int n = 0; n < N; ++n) sum[m][n] = load(acc + m * padded + n * W);
  }
  for (int64_t j = begin; j < end; ++j) {
    vf value[N];
    for (int n = 0; n < N; ++n) value[n] = load(values + j * padded + n * W);
    for (int m = 0; m < M; ++m) {
      vf w = splat(weights[m * kTile + j]);
      for (int n = 0; n < N; ++n) sum[m][n] = fma(w, value[n], sum[m][n]);
    }
  }
  for (int m = 0; m < M; ++m) {
    for (int n = 0; n < N; ++n) store(acc + m * padded + n * W, sum[m][n]);
  }
}

INLINE void gather_queries(const AttentionCall& c, const AttentionItem& item, float* q) {
  int64_t group = group_of(c), padded = padded_dim(c);
  for (int64_t i = 0; i < num_queries(c, item); ++i) {
    int64_t token = item.token + i / group, head = item.kv_head * group + i % group;
    const float* from = c.q + token * c.q_token + head * c.q_head;
    for (int64_t d = 0; d < c.head_dim; ++d) q[i * padded + d] = from[d];
    for (int64_t d = c.head_dim; d < padded; ++d) q[i * padded + d] = 0.0f;
  }
  int64_t used = num_queries(c, item) * padded;
  std::memset(q + used, 0, sizeof(float) * (num_rows(num_queries(c, item)) * padded - used));
}

// `values` is room for one tile. Queries before the tile keep sum 0.
void tile_partial(const AttentionCall& c, const AttentionItem& item, int64_t tile, const float* q,
                  float* values, Partial out) {
  int64_t padded = padded_dim(c), start = tile * kTile;
  int64_t last_query = num_queries(c, item) - 1, queries = num_rows(last_query + 1);
  Rows rows{c, item, padded};
  int64_t counts[kMaxQueries], longest = 0;
  for (int64_t i = 0; i < queries; ++i) {
    counts[i] = most(0, least(kTile, position_of(c, item, least(i, last_query)) + 1 - start));
    longest = most(longest, counts[i]);
  }
  alignas(64) float weights[kMaxQueries * kTile];
  int64_t offsets[kTile];
  rows.find(start, longest, offsets);
  alignas(64) float keys[kKeys * kMostDim];
  for (int64_t j = 0; j < longest; j += kKeys) {
    int64_t num_keys = least(kKeys, longest - j);
    for (int64_t n = 0; n < num_keys; ++n) {
      rows.read(c.k_cache, offsets[j + n], keys + n * padded);
    }
    int64_t i = 0;
    if (W == kLanes && num_keys == kKeys) {
      for (; i + 4 <= queries; i += 4) {
        score_block(q + i * padded, keys, padded, c.scale, weights + i * kTile + j);
      }
    }
    for (; i + 4 <= queries; i += 4) {
      for (int64_t n = 0; n < num_keys; ++n) {
        score<4>(q + i * padded, padded, keys + n * padded, c.scale, weights + i * kTile + j + n);
      }
    }
    for (; i < queries; ++i) {
      for (int64_t n = 0; n < num_keys; ++n) {
        score<1>(q + i * padded, padded, keys + n * padded, c.scale, weights + i * kTile + j + n);
      }
    }
  }
  for (int64_t i = 0; i < queries; ++i) {
    float* w = weights + i * kTile;
    for (int64_t j = counts[i]; j < round_up(counts[i], kLanes); ++j) w[j] = -__builtin_inff();
    vf largest = splat(-__builtin_inff());
    for (int64_t j = 0; j < counts[i]; j += W) {
      vf s = load(w + j);
      largest = s > largest ? s : largest;
    }
    float max = largest[0];
    for (int j = 1; j < W; ++j) max = largest[j] > max ? largest[j] : max;
    Lanes lanes = zero_lanes();
    for (int64_t j = 0; j < counts[i]; j += W) {
      vf e = exp_of(load(w + j) - max);
      store(w + j, e);
      lanes.part[j / W % kParts] = lanes.part[j / W % kParts] + e;
    }
    out.max[i] = max;
    out.sum[i] = fold(lanes);
  }
  for (int64_t j = 0; j < longest; ++j) rows.read(c.v_cache, offsets[j], values + j * padded);
  for (int64_t i = 0; i < queries * padded; ++i) out.acc[i] = 0.0f;
  for (int64_t i = 0; i < queries;) {
    int64_t m = queries - i >= 4 ? 4 : 1, together = counts[i];
    for (int64_t j = 1; j < m; ++j) together = least(together, counts[i + j]);
    for (int64_t d = 0, step; d < padded; d += step) {
      constexpr int kWide = W == kLanes ? 4 : kParts;
      const float* w = weights + i * kTile;
      float* acc = out.acc + i * padded + d;
      step = m == 4 && padded - d >= kWide * W ? kWide * W : kLanes;
      if (step == kWide * W && m == 4) {
        add_values<4, kWide>(w, values + d, padded, 0, together, acc);
      } else if (m == 4) {
        add_values<4, kParts>(w, values + d, padded, 0, together, acc);
      } else {
        add_values<1, kParts>(w, values + d, padded, 0, together, acc);
      }
      for (int64_t j = 0; j < m; ++j) {
        for (int64_t e = 0; e < step && counts[i + j] > together; e += kLanes) {
          add_values<1, kParts>(w + j * kTile, values + d + e, padded, together, counts[i + j],
                                acc + j * padded + e);
        }
      }
    }
    i += m;
  }
}

// into = into merged with the next tile's partial.
INLINE void merge(const AttentionCall& c, int64_t queries, Partial into, Partial next) {
  int64_t padded = padded_dim(c);
  for (int64_t i = 0; i < queries; ++i) {
    if (next.sum[i] == 0.0f) continue;  // the query lies before this tile
    float max = into.max[i] > next.max[i] ? into.max[i] : next.max[i];
    float a = exp_of(into.max[i] - max), b = exp_of(next.max[i] - max);
    into.max[i] = max;
    into.sum[i] = fma(into.sum[i], a, next.sum[i] * b);
    float* to = into.acc + i * padded;
    const float* from = next.acc + i * padded;
    for (int64_t d = 0; d < padded; d += W) {
      store(to + d, fma(load(to + d), splat(a), load(from + d) * b));
    }
  }
}

INLINE void write_out(const AttentionCall& c, const AttentionItem& item, Partial total) {
  int64_t group = group_of(c), padded = padded_dim(c);
  for (int64_t i = 0; i < num_queries(c, item); ++i) {
    int64_t token = item.token + i / group, head = item.kv_head * group + i % group;
    float* acc = total.acc + i * padded;
    for (int64_t d = 0; d < padded; d += W) store(acc + d, load(acc + d) / total.sum[i]);
    if (c.gate) {
      const float* gate = c.gate + token * c.gate_token + head * c.gate_head;
      int64_t d = 0;
      for (; d + W <= c.head_dim; d += W) {
        store(acc + d, load(acc + d) * sigmoid(load(gate + d)));
      }
      if (d < c.head_dim) {
        store(acc + d, load(acc + d) * sigmoid(load_some(gate + d, c.head_dim - d)));
      }
    }
    float* out = c.out + (token * c.num_heads + head) * c.head_dim;
    for (int64_t d = 0; d < c.head_dim; ++d) out[d] = acc[d];
  }
}

}  // namespace

void attention_all(const AttentionCall& c, const AttentionItem& item) {
  int64_t padded = padded_dim(c), queries = num_queries(c, item);
  float* q = scratch_floats(padded * (3 * kMaxQueries + kTile));
  float* values = q + kMaxQueries * padded;
  float max[2][kMaxQueries], sum[2][kMaxQueries];
  Partial total{max[0], sum[0], values + kTile * padded};
  Partial next{max[1], sum[1], total.acc + kMaxQueries * padded};
  gather_queries(c, item, q);
  int64_t last = position_of(c, item, queries - 1) / kTile;
  tile_partial(c, item, 0, q, values, total);
  for (int64_t tile = 1; tile <= last; ++tile) {
    tile_partial(c, item, tile, q, values, next);
    merge(c, queries, total, next);
  }
  write_out(c, item, total);
}

void attention_tile(const AttentionCall& c, const AttentionItem& item, int64_t tile, Partial out) {
  int64_t padded = padded_dim(c);
  float* q = scratch_floats(padded * (kMaxQueries + kTile));
  gather_queries(c, item, q);
  tile_partial(c, item, tile, q, q + kMaxQueries * padded, out);
}

void attention_merge(const AttentionCall& c, const AttentionItem& item, const Partial* partials,
                     int64_t num_tiles) {
  for (int64_t tile = 1; tile < num_tiles; ++tile) {
    merge(c, num_queries(c, item), partials[0], partials[tile]);
  }
  write_out(c, item, partials[0]);
}

}  // namespace thalweg::THALWEG_LEVEL
