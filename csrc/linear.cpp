// Products with packed matrices. An output is a chain of fused multiply-adds over its inputs in
// ascending order within segments of 256, the segments' sums added in ascending order, then the
// bias. Few rows read the packed weights once and widen them in registers; many rows widen a
// segment of panels into the cache first. Both do the same operations for each output.
#include "ops.h"

#include "vec.h"

namespace thalweg::THALWEG_LEVEL {
namespace {

constexpr int kHalf = 16;  // columns that fit the registers together with 6 rows
constexpr int kHalfVectors = kHalf / W;
constexpr int kMostRows = 6;
constexpr int64_t kFewRows = 12;  // up to here widening in registers is faster
constexpr int64_t kAhead = 1536;  // bytes to ask the memory for before they are needed

// The weights of one input in half a panel: 16 columns. `p` is the input's row of the panel.
template <Format F>
INLINE void plain_weights(const uint8_t* p, int half, vf* w) {
  for (int v = 0; v < kHalfVectors; ++v) {
    int column = half * kHalf + v * W;
    if constexpr (F == Format::F32) {
      w[v] = load(reinterpret_cast<const float*>(p) + column);
    } else if constexpr (F == Format::F16) {
      w[v] = load_f16(reinterpret_cast<const uint16_t*>(p) + column);
    } else {
      // 8 words for each half; columns 0 .. 7 are their low halves, 8 .. 15 the high ones.
      vu word = load_bits(p + (half * 8 + v * W % 8) * 4);
      w[v] = (vf)(v * W < 8 ? word << 16 : word & 0xffff0000u);
    }
  }
}

// 32 codes of a row as 128 + code / 256, which costs no conversion: the code is byte 1 of a float
// whose other bytes are those of 128. Column c is byte c % 8 / 4 * 16 + c / 8 * 4 + c % 4, where
// unpacking finds it.
#if defined(__AVX2__)
struct CodeRow {
  __m256i codes;
  INLINE CodeRow bytes(const uint8_t* p) {
    return {_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p))};
  }
  INLINE CodeRow nibbles(const uint8_t* p, int high) {
    __m256i x = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
    if (high) x = _mm256_srli_epi16(x, 4);
    return {_mm256_and_si256(x, _mm256_set1_epi8(15))};
  }
  INLINE void spread(const CodeRow& row, int half, vf* out) {
    __m256i zeros = _mm256_setzero_si256(), top = _mm256_set1_epi16(0x4300);
    __m256i words =
        half ? _mm256_unpackhi_epi8(zeros, row.codes) : _mm256_unpacklo_epi8(zeros, row.codes);
    out[0] = _mm256_castsi256_ps(_mm256_unpacklo_epi16(words, top));
    out[1] = _mm256_castsi256_ps(_mm256_unpackhi_epi16(words, top));
  }
};
#else
struct CodeRow {
  const uint8_t* p;
  int shift, mask;
  INLINE CodeRow bytes(const uint8_t* p) { return {p, 0, 255}; }
  INLINE CodeRow nibbles(const uint8_t* p, int high) { return {p, high ? 4 : 0, 15}; }
  INLINE void spread(const CodeRow& row, int half, vf* out) {
    for (int v = 0; v < kHalfVectors; ++v) {
      for (int i = 0; i < W; ++i) {
        int c = half * kHalf + v * W + i;
        int code = row.p[c % 8 / 4 * 16 + c / 8 * 4 + c % 4] >> row.shift & row.mask;
        out[v][i] = 128.0f + static_cast<float>(code) * 0x1p-8f;
      }
    }
  }
};
#endif

// Half a panel's scales for a group of inputs. Every step to a weight is exact but the last one of
// formats with a minimum, which is one rounding of scale * code + minimum.
template <Format F>
struct Group {
  vf scale[kHalfVectors], offset[kHalfVectors];

  INLINE Group read(const uint8_t* p, int half) {
    Group g;
    for (int v = 0; v < kHalfVectors; ++v) {
      int column = half * kHalf + v * W;
      vf d = numbers(p, column);
      g.scale[v] = d * 256.0f;
      if constexpr (F == Format::Q8) g.offset[v] = d * -32896.0f;  // 256 * 128 + 128
      if constexpr (F == Format::Q4) g.offset[v] = d * -32776.0f;  // 256 * 128 + 8
      if constexpr (has_minimum(F)) g.offset[v] = numbers(p + scale_bytes(F), column);
    }
    return g;
  }

  INLINE vf numbers(const uint8_t* p, int column) {
    if constexpr (has_float_scale(F)) return load(reinterpret_cast<const float*>(p) + column);
    return load_f16(reinterpret_cast<const uint16_t*>(p) + column);
  }

  // Of input j of the group.
  INLINE void weights(const Group& g, const uint8_t* codes, int j, int half, vf* w) {
    CodeRow row = is_half_byte(F) ? CodeRow::nibbles(codes + j / 2 * 32, j % 2)
                                  : CodeRow::bytes(codes + j * 32);
    CodeRow::spread(row, half, w);
    for (int v = 0; v < kHalfVectors; ++v) {
      if constexpr (F == Format::Q6K) {  // its scale has too many bits to be multiplied by 32800
        w[v] = (w[v] - 128.125f) * g.scale[v];
      } else {
        if constexpr (has_minimum(F)) w[v] = w[v] - 128.0f;
        w[v] = fma(w[v], g.scale[v], g.offset[v]);
      }
    }
  }
};

// Rows at once while widening in registers: scales take some.
constexpr int64_t rows_at_once(Format f) { return is_plain(f) ? 6 : 4; }

// Inputs [begin, end) of M rows against `Halves` halves of a panel -> sums [M][32]
template <Format F, int M, int Halves>
INLINE void few_rows(const uint8_t* p, const float* const* x, int64_t begin, int64_t end,
                     int first_half, float* sums) {
  vf acc[M][Halves][kHalfVectors];
  for (int m = 0; m < M; ++m) {
    for (int h = 0; h < Halves; ++h) {
      for (int v = 0; v < kHalfVectors; ++v) acc[m][h][v] = zero();
    }
  }
  auto add = [&](int64_t k, int h, const vf* w) __attribute__((always_inline)) {
    for (int m = 0; m < M; ++m) {
      vf a = splat(x[m][k]);
      for (int v = 0; v < kHalfVectors; ++v) acc[m][h][v] = fma(a, w[v], acc[m][h][v]);
    }
  };
  if constexpr (is_plain(F)) {
    constexpr int64_t bytes = kPanel * (F == Format::F32 ? 4 : 2);
    for (int64_t k = begin; k < end; ++k, p += bytes) {
      for (int64_t i = 0; i < bytes; i += 64) __builtin_prefetch(p + kAhead + i);
      for (int h = 0; h < Halves; ++h) {
        vf w[kHalfVectors];
        plain_weights<F>(p, first_half + h, w);
        add(k, h, w);
      }
    }
  } else {
    for (int64_t k = begin; k < end; k += group_size(F), p += panel_bytes(F, group_size(F))) {
      Group<F> groups[Halves];
      for (int h = 0; h < Halves; ++h) groups[h] = Group<F>::read(p, first_half + h);
      for (int j = 0; j < group_size(F); j += 2) {
        constexpr int64_t pair = is_half_byte(F) ? 32 : 64;
        if (pair == 64 || j % 4 == 0) __builtin_prefetch(p + kAhead + j / 2 * pair);
        for (int i = 0; i < 2; ++i) {
          for (int h = 0; h < Halves; ++h) {
            vf w[kHalfVectors];
            Group<F>::weights(groups[h], p + codes_offset(F), j + i, first_half + h, w);
            add(k + j + i, h, w);
          }
        }
      }
    }
  }
  for (int m = 0; m < M; ++m) {
    for (int h = 0; h < Halves; ++h) {
      for (int v = 0; v < kHalfVectors; ++v) {
        store(sums + m * kPanel + (first_half + h) * kHalf + v * W, acc[m][h][v]);
      }
    }
  }
}

template <Format F, int M>
void few_rows(const uint8_t* p, const float* const* x, int64_t begin, int64_t end, float* sums) {
  if constexpr (M <= 2) {
    few_rows<F, M, 2>(p, x, begin, end, 0, sums);
  } else {
    few_rows<F, M, 1>(p, x, begin, end, 0, sums);
    few_rows<F, M, 1>(p, x, begin, end, 1, sums);
  }
}

// A segment of one panel as floats: two halves of [length][16].
template <Format F>
void widen(const uint8_t* p, int64_t length, float* out) {
  auto put = [&](int64_t k, int half, const vf* w) __attribute__((always_inline)) {
    float* to = out + (half * length + k) * kHalf;
    for (int v = 0; v < kHalfVectors; ++v) store(to + v * W, w[v]);
  };
  vf w[kHalfVectors];
  if constexpr (is_plain(F)) {
    constexpr int64_t bytes = kPanel * (F == Format::F32 ? 4 : 2);
    for (int64_t k = 0; k < length; ++k, p += bytes) {
      for (int half = 0; half < 2; ++half) {
        plain_weights<F>(p, half, w);
        put(k, half, w);
      }
    }
  } else {
    for (int64_t k = 0; k < length; k += group_size(F), p += panel_bytes(F, group_size(F))) {
      Group<F> groups[2] = {Group<F>::read(p, 0), Group<F>::read(p, 1)};
      for (int j = 0; j < group_size(F); j += 2) {
        for (int i = 0; i < 2; ++i) {
          for (int half = 0; half < 2; ++half) {
            Group<F>::weights(groups[half], p + codes_offset(F), j + i, half, w);
            put(k + j + i, half, w);
          }
        }
      }
    }
  }
}

// A segment of M rows against half a panel of floats -> sums [M][16]
template <int M>
void many_rows(const float* w, const float* const* x, int64_t length, float* sums) {
  vf acc[M][kHalfVectors];
  for (int m = 0; m < M; ++m) {
    for (int v = 0; v < kHalfVectors; ++v) acc[m][v] = zero();
  }
  for (int64_t k = 0; k < length; ++k, w += kHalf) {
    vf b[kHalfVectors];
    for (int v = 0; v < kHalfVectors; ++v) b[v] = load(w + v * W);
    for (int m = 0; m < M; ++m) {
      vf a = splat(x[m][k]);
      for (int v = 0; v < kHalfVectors; ++v) acc[m][v] = fma(a, b[v], acc[m][v]);
    }
  }
  for (int m = 0; m < M; ++m) {
    for (int v = 0; v < kHalfVectors; ++v) store(sums + m * kHalf + v * W, acc[m][v]);
  }
}

INLINE const float* row_of(const LinearCall& c, int64_t row) {
  return c.x + (c.x_rows ? c.x_rows[row] : row) * c.x_stride;
}

// Rows in blocks of at most `limit`, as even as possible.
INLINE int64_t block_size(int64_t rows, int64_t limit) {
  int64_t blocks = (rows + limit - 1) / limit;
  return (rows + blocks - 1) / blocks;
}

template <Format F>
void few(const LinearCall& c, int64_t panel) {
  const uint8_t* data = c.weight.data + panel * c.weight.panel_bytes;
  int64_t columns = least(kPanel, c.weight.n - panel * kPanel);
  int64_t size = block_size(c.rows, rows_at_once(F));
  for (int64_t row = 0; row < c.rows; row += size) {
    int64_t m = least(size, c.rows - row);
    const float* x[kMostRows];
    for (int64_t i = 0; i < m; ++i) x[i] = row_of(c, row + i);
    alignas(64) float total[kMostRows * kPanel], sums[kMostRows * kPanel];
    for (int64_t begin = 0; begin < c.weight.k || begin == 0; begin += kSegment) {
      int64_t end = least(begin + kSegment, c.weight.k);
      const uint8_t* p = data + panel_bytes(F, begin);
      float* to = begin == 0 ? total : sums;
      switch (m) {
        case 1: few_rows<F, 1>(p, x, begin, end, to); break;
        case 2: few_rows<F, 2>(p, x, begin, end, to); break;
        case 3: few_rows<F, 3>(p, x, begin, end, to); break;
        case 4: few_rows<F, 4>(p, x, begin, end, to); break;
        default:
          if constexpr (is_plain(F)) {
            if (m == 5) few_rows<F, 5>(p, x, begin, end, to);
            if (m == 6) few_rows<F, 6>(p, x, begin, end, to);
          }
      }
      if (begin != 0) {
        for (int64_t i = 0; i < m * kPanel; ++i) total[i] = total[i] + sums[i];
      }
    }
    for (int64_t i = 0; i < m; ++i) {
      float* out = c.out + (row + i) * c.out_stride + panel * kPanel;
      const float* t = total + i * kPanel;
      if (c.bias) {
        for (int64_t n = 0; n < columns; ++n) out[n] = t[n] + c.bias[panel * kPanel + n];
      } else {
        for (int64_t n = 0; n < columns; ++n) out[n] = t[n];
      }
    }
  }
}

// One half panel's sums of a segment into the rows' outputs.
INLINE void add_sums(const LinearCall& c, int64_t row, int64_t m, int64_t column, const float* sums,
                     bool first, bool last) {
  int64_t columns = least(kHalf, c.weight.n - column);
  const float* bias = last && c.bias ? c.bias + column : nullptr;
  for (int64_t i = 0; i < m; ++i, sums += kHalf) {
    float* out = c.out + (row + i) * c.out_stride + column;
    if (columns == kHalf) {
      for (int v = 0; v < kHalf; v += W) {
        vf y = load(sums + v);
        if (!first) y = load(out + v) + y;
        if (bias) y = y + load(bias + v);
        store(out + v, y);
      }
    } else {
      for (int64_t n = 0; n < columns; ++n) {
        float y = first ? sums[n] : out[n] + sums[n];
        out[n] = bias ? y + bias[n] : y;
      }
    }
  }
}

template <Format F>
void many(const LinearCall& c, int64_t first_panel, int64_t last_panel) {
  constexpr int64_t kPanels = 2;
  alignas(64) float widened[kPanels * kSegment * kPanel];
  int64_t size = block_size(c.rows, kMostRows);
  for (int64_t panel = first_panel; panel < last_panel; panel += kPanels) {
    int64_t panels = least(kPanels, last_panel - panel);
    for (int64_t begin = 0; begin < c.weight.k || begin == 0; begin += kSegment) {
      int64_t length = least(kSegment, c.weight.k - begin);
      bool first = begin == 0, last = begin + length >= c.weight.k;
      for (int64_t i = 0; i < panels; ++i) {
        widen<F>(c.weight.data + (panel + i) * c.weight.panel_bytes + panel_bytes(F, begin),
                 length, widened + i * kSegment * kPanel);
      }
      for (int64_t row = 0; row < c.rows; row += size) {
        int64_t m = least(size, c.rows - row);
        const float* x[kMostRows];
        for (int64_t i = 0; i < m; ++i) x[i] = row_of(c, row + i) + begin;
        for (int64_t half = 0; half < 2 * panels; ++half) {
          int64_t column = panel * kPanel + half * kHalf;
          if (column >= c.weight.n) break;
          const float* w = widened + half / 2 * kSegment * kPanel + half % 2 * length * kHalf;
          alignas(64) float sums[kMostRows * kHalf];
          switch (m) {
            case 1: many_rows<1>(w, x, length, sums); break;
            case 2: many_rows<2>(w, x, length, sums); break;
            case 3: many_rows<3>(w, x, length, sums); break;
            case 4: many_rows<4>(w, x, length, sums); break;
            case 5: many_rows<5>(w, x, length, sums); break;
            default: many_rows<6>(w, x, length, sums); break;
          }
          add_sums(c, row, m, column, sums, first, last);
        }
      }
    }
  }
}

template <Format F>
void panels(const LinearCall& c, int64_t first_panel, int64_t last_panel) {
  if (c.rows > kFewRows) {
    many<F>(c, first_panel, last_panel);
  } else {
    for (int64_t panel = first_panel; panel < last_panel; ++panel) few<F>(c, panel);
  }
}

}  // namespace

void linear(const LinearCall& c, int64_t first_panel, int64_t last_panel) {
  switch (c.weight.format) {
    case Format::F32: return panels<Format::F32>(c, first_panel, last_panel);
    case Format::BF16: return panels<Format::BF16>(c, first_panel, last_panel);
    case Format::F16: return panels<Format::F16>(c, first_panel, last_panel);
    case Format::Q8: return panels<Format::Q8>(c, first_panel, last_panel);
    case Format::Q4: return panels<Format::Q4>(c, first_panel, last_panel);
    case Format::Q4M: return panels<Format::Q4M>(c, first_panel, last_panel);
    case Format::Q4K: return panels<Format::Q4K>(c, first_panel, last_panel);
    case Format::Q5K: return panels<Format::Q5K>(c, first_panel, last_panel);
    case Format::Q6K: return panels<Format::Q6K>(c, first_panel, last_panel);
  }
}

}  // namespace thalweg::THALWEG_LEVEL
