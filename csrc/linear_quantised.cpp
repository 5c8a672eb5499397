// Products with matrices of grouped codes. Each row of activations is quantised first, 32 inputs
// at a time, so that a group's products and their sum are integers: exact in any order. The sum of
// a group, times the product of both scales, is one fused multiply-add onto the groups before it,
// ascending within segments of 256 inputs; a group's minimum times the sum of its activations
// follows. The segments' sums are added in ascending order, then the bias.
#include "linear_tiles.h"
#include "scratch.h"

namespace thalweg::THALWEG_LEVEL {
namespace {

#if defined(__AVX512VNNI__) || defined(__AVXVNNI__)
#define THALWEG_VNNI
#endif

// For W columns, the sum of codes (unsigned bytes, 4 inputs of a column in a lane) times
// activations (signed bytes, the same 4 in every lane). `Byte`: codes have more than 4 bits.
#if defined(THALWEG_VNNI)
template <bool Byte>
struct Dot {
  vi sum;
  INLINE Dot from(int32_t start) { return {start - vi{}}; }
  INLINE Dot add(Dot d, vu code, vi x) {
#if defined(__AVX512VNNI__)
    return {(vi)_mm512_dpbusd_epi32((__m512i)d.sum, (__m512i)code, (__m512i)x)};
#else
    return {(vi)_mm256_dpbusd_avx_epi32((__m256i)d.sum, (__m256i)code, (__m256i)x)};
#endif
  }
  INLINE vf value(Dot d) { return to_float(d.sum); }
};
#elif defined(__AVX2__)
// Pairs of products of half bytes are at most 15 * 127 * 2, and 8 of them fit 16 bits.
INLINE __m256i add_pairs(__m256i sums, vu code, vi x) {
  return _mm256_add_epi16(sums, _mm256_maddubs_epi16((__m256i)code, (__m256i)x));
}
template <bool Byte>
struct Dot {
  __m256i low, high;
  int32_t start;
  INLINE Dot from(int32_t start) { return {__m256i{}, __m256i{}, start}; }
  INLINE Dot add(Dot d, vu code, vi x) {
    if constexpr (!Byte) return {add_pairs(d.low, code, x), d.high, d.start};
    return {add_pairs(d.low, code & 0x0f0f0f0fu, x), add_pairs(d.high, code >> 4 & 0x0f0f0f0fu, x),
            d.start};
  }
  INLINE vf value(Dot d) {
    const __m256i ones = _mm256_set1_epi16(1);
    vi sum = (vi)_mm256_madd_epi16(d.low, ones) + d.start;
    if constexpr (Byte) sum = sum + ((vi)_mm256_madd_epi16(d.high, ones) << 4);
    return to_float(sum);
  }
};
#else
// The integers are below 2^24, and floats hold them exactly.
template <bool Byte>
struct Dot {
  vf sum;
  INLINE Dot from(int32_t start) { return {splat(static_cast<float>(start))}; }
  INLINE Dot add(Dot d, vu code, vi x) {
    for (int i = 0; i < 4; ++i) {
      vf c = to_float((vi)(code >> (8 * i) & 255u)), a = to_float(x << (24 - 8 * i) >> 24);
      d.sum = d.sum + c * a;
    }
    return d;
  }
  INLINE vf value(Dot d) { return d.sum; }
};
#endif

constexpr bool is_byte(Format f) { return !is_half_byte(f); }

// Rows of a tile at once.
constexpr int rows_at_once([[maybe_unused]] Format f) {
#if defined(__AVX512F__)
  return 6;
#elif defined(THALWEG_VNNI)
  return 4;
#else
  return is_byte(f) ? 2 : 4;
#endif
}
constexpr int kMostRows = 6;
#if defined(__AMX_INT8__)
constexpr int64_t kVectorRows = 12;  // up to here vectors are faster
#endif

// One row of activations from a segment's first input on.
struct Row {
  const int8_t* codes;
  const float* scale;  // of 32
  const int32_t* sum;  // of 16
};

template <Format F>
INLINE vf number(const uint8_t* p, int column) {
  if constexpr (has_float_scale(F)) return load(reinterpret_cast<const float*>(p) + column);
  return load_f16(reinterpret_cast<const uint16_t*>(p) + column);
}

// A segment of M rows against a tile of a panel -> sums [M][kColumns]. `p` is where the segment
// begins; its codes are read from there, or unpacked to bytes from `unpacked`.
template <Format F, bool Unpacked, int M>
INLINE void multiply(const uint8_t* p, const uint8_t* unpacked, const Row* x, int64_t length,
                     int tile, float* sums) {
  constexpr int64_t size = group_size(F), bytes = panel_bytes(F, size);
  constexpr int quads = size / 4, step = kPanel * 4;
  using D = Dot<is_byte(F)>;
  vf acc[M][kVectors];
  for (int m = 0; m < M; ++m) {
    for (int v = 0; v < kVectors; ++v) acc[m][v] = zero();
  }
  for (int64_t k = 0; k < length; k += size, p += bytes) {
    if constexpr (!Unpacked) {
      for (int64_t i = 0; i < bytes; i += 64) __builtin_prefetch(p + kAhead + i);
    }
    D dot[M][kVectors];
    int32_t sum[M];
    for (int m = 0; m < M; ++m) {
      sum[m] = x[m].sum[k / 16] + (size == 32 ? x[m].sum[k / 16 + 1] : 0);
      for (int v = 0; v < kVectors; ++v) dot[m][v] = D::from(-code_bias(F) * sum[m]);
    }
    const uint8_t* codes =
        (Unpacked ? unpacked + k * kPanel : p + codes_offset(F)) + tile * kColumns * 4;
    auto add = [&](const vu* code, int quad) __attribute__((always_inline)) {
      for (int m = 0; m < M; ++m) {
        vi a = splat_bits(x[m].codes + k + quad * 4);
        for (int v = 0; v < kVectors; ++v) dot[m][v] = D::add(dot[m][v], code[v], a);
      }
    };
    if constexpr (is_half_byte(F) && !Unpacked) {
      for (int quad = 0; quad < quads / 2; ++quad) {
        vu low[kVectors], high[kVectors];
        for (int v = 0; v < kVectors; ++v) {
          vu both = load_bits(codes + quad * step + v * W * 4);
          low[v] = both & 0x0f0f0f0fu;
          high[v] = both >> 4 & 0x0f0f0f0fu;
        }
        add(low, quad);
        add(high, quad + quads / 2);
      }
    } else {
      for (int quad = 0; quad < quads; ++quad) {
        vu code[kVectors];
        for (int v = 0; v < kVectors; ++v) code[v] = load_bits(codes + quad * step + v * W * 4);
        add(code, quad);
      }
    }
    for (int v = 0; v < kVectors; ++v) {
      vf scale = number<F>(p, tile * kColumns + v * W), minimum;
      if constexpr (has_minimum(F)) minimum = number<F>(p + scale_bytes(F), tile * kColumns + v * W);
      for (int m = 0; m < M; ++m) {
        float a = x[m].scale[k / kGroup];
        acc[m][v] = fma(D::value(dot[m][v]), scale * a, acc[m][v]);
        if constexpr (has_minimum(F)) {
          acc[m][v] = fma(minimum, splat(a * static_cast<float>(sum[m])), acc[m][v]);
        }
      }
    }
  }
  for (int m = 0; m < M; ++m) {
    for (int v = 0; v < kVectors; ++v) store(sums + m * kColumns + v * W, acc[m][v]);
  }
}

// A panel's half bytes as bytes: [length / 4][32][4]
template <Format F>
void unpack(const uint8_t* p, int64_t length, uint8_t* out) {
  constexpr int half = kGroup * kPanel / 2;
  for (int64_t k = 0; k < length; k += kGroup, p += panel_bytes(F, kGroup), out += 2 * half) {
    const uint8_t* codes = p + codes_offset(F);
    for (int i = 0; i < half; i += W * 4) {
      vu both = load_bits(codes + i);
      store_bits(out + i, both & 0x0f0f0f0fu);
      store_bits(out + half + i, both >> 4 & 0x0f0f0f0fu);
    }
  }
}

template <Format F, bool Unpacked, int M>
void rows(const uint8_t* p, const uint8_t* unpacked, const Row* x, int64_t length, int tile,
          float* sums) {
  if constexpr (M <= rows_at_once(F)) multiply<F, Unpacked, M>(p, unpacked, x, length, tile, sums);
}

template <Format F, bool Unpacked>
void panel_rows(const LinearCall& c, int64_t panel, const uint8_t* unpacked) {
  const QuantisedRows& q = c.quantised;
  const uint8_t* data = c.weight.data + panel * c.weight.panel_bytes;
  int64_t k = c.weight.k, size = block_size(c.rows, rows_at_once(F));
  for (int64_t row = 0; row < c.rows; row += size) {
    int64_t m = least(size, c.rows - row);
    alignas(64) float total[kTiles][kMostRows * kColumns], sums[kMostRows * kColumns];
    for (int64_t begin = 0; begin < k; begin += kSegment) {
      Row x[kMostRows];
      for (int64_t i = 0; i < m; ++i) {
        int64_t first = row_of(c, row + i) * k + begin;
        x[i] = {q.codes + first, q.scale + first / kGroup, q.sum + first / 16};
      }
      const uint8_t* p = data + panel_bytes(F, begin);
      const uint8_t* codes = Unpacked ? unpacked + begin * kPanel : nullptr;
      int64_t length = least(kSegment, k - begin);
      for (int tile = 0; tile < kTiles; ++tile) {
        float* to = begin == 0 ? total[tile] : sums;
        switch (m) {
          case 1: rows<F, Unpacked, 1>(p, codes, x, length, tile, to); break;
          case 2: rows<F, Unpacked, 2>(p, codes, x, length, tile, to); break;
          case 3: rows<F, Unpacked, 3>(p, codes, x, length, tile, to); break;
          case 4: rows<F, Unpacked, 4>(p, codes, x, length, tile, to); break;
          case 5: rows<F, Unpacked, 5>(p, codes, x, length, tile, to); break;
          default: rows<F, Unpacked, 6>(p, codes, x, length, tile, to); break;
        }
        if (begin != 0) add_segment(total[tile], sums, m * kColumns);
      }
    }
    for (int tile = 0; tile < kTiles; ++tile) {
      write_sums(c, row, m, panel * kPanel + tile * kColumns, total[tile]);
    }
  }
}

template <Format F>
void panels(const LinearCall& c, int64_t first_panel, int64_t last_panel) {
#if defined(__AMX_INT8__)
  if (c.rows > kVectorRows) return tile_panels<F>(c, first_panel, last_panel);
#endif
  for (int64_t panel = first_panel; panel < last_panel; ++panel) {
    if (is_half_byte(F) && c.rows > rows_at_once(F)) {
      uint8_t* unpacked = static_cast<uint8_t*>(scratch(c.weight.k * kPanel));
      unpack<F>(c.weight.data + panel * c.weight.panel_bytes, c.weight.k, unpacked);
      panel_rows<F, true>(c, panel, unpacked);
    } else {
      panel_rows<F, false>(c, panel, nullptr);
    }
  }
}

}  // namespace

// A group's scale is its largest magnitude / 127; below 2^-100 it counts as 0, and what is not
// finite makes the scale so.
void quantise(const QuantiseCall& c, int64_t row) {
  const float magic = 12582912.0f;  // 1.5 * 2^23: adding it rounds to an integer
  const float* x = c.x + row * c.x_stride;
  for (int64_t k = row * c.k; k < (row + 1) * c.k; k += kGroup, x += kGroup) {
    vi largest{};
    for (int i = 0; i < kGroup; i += W) {
      vi magnitude = (vi)load(x + i) & 0x7fffffff;
      largest = magnitude > largest ? magnitude : largest;
    }
    int32_t most = 0;
    for (int i = 0; i < W; ++i) most = largest[i] > most ? largest[i] : most;
    float extreme;
    std::memcpy(&extreme, &most, 4);
    bool normal = extreme >= 0x1p-100f && extreme < __builtin_inff();
    float factor = normal ? 127.0f / extreme : 0.0f;
    c.out.scale[k / kGroup] = extreme < 0x1p-100f ? 0.0f : extreme / 127.0f;
    for (int i = 0; i < kGroup; i += W) {
      vi code = (vi)(load(x + i) * factor + magic);
      vb narrow = __builtin_convertvector(code, vb);
      std::memcpy(c.out.codes + k + i, &narrow, W);
    }
    for (int half = 0; half < kGroup; half += 16) {
      int32_t sum = 0;
      for (int i = 0; i < 16; ++i) sum += c.out.codes[k + half + i];
      c.out.sum[(k + half) / 16] = sum;
    }
  }
}

void quantised_linear(const LinearCall& c, int64_t first_panel, int64_t last_panel) {
  switch (c.weight.format) {
    case Format::Q8: return panels<Format::Q8>(c, first_panel, last_panel);
    case Format::Q4: return panels<Format::Q4>(c, first_panel, last_panel);
    case Format::Q4M: return panels<Format::Q4M>(c, first_panel, last_panel);
    case Format::Q4K: return panels<Format::Q4K>(c, first_panel, last_panel);
    case Format::Q5K: return panels<Format::Q5K>(c, first_panel, last_panel);
    case Format::Q6K: return panels<Format::Q6K>(c, first_panel, last_panel);
    default: return;
  }
}

}  // namespace thalweg::THALWEG_LEVEL
