// Products with packed matrices. An output is a chain of fused multiply-adds over its inputs in
// ascending order within segments of 256, the segments' sums added in ascending order, then the
// bias. Few rows read the packed weights once and widen them in registers; many rows widen a
// segment of panels into the cache first. Both do the same operations for each output.
#include "ops.h"

#include "vec.h"

namespace thalweg::THALWEG_LEVEL {
namespace {

constexpr int kVectors = kPanel / W;
constexpr int kHalf = 16;
constexpr int kHalfVectors = kHalf / W;
constexpr int64_t kFewRows = 6;  // up to here widening in registers is faster

// Bytes of `k` inputs (a multiple of 32 for grouped formats) of one panel.
INLINE int64_t panel_offset(Format f, int64_t k) {
  switch (f) {
    case Format::F32: return k * kPanel * 4;
    case Format::BF16:
    case Format::F16: return k * kPanel * 2;
    case Format::Q8: return k / kGroup * (64 + 32 * kPanel);
    case Format::Q4: return k / kGroup * (64 + 16 * kPanel);
    case Format::Q4M: return k / kGroup * (128 + 16 * kPanel);
  }
  return 0;
}

// Vector v of the 32 weights that one input has in a panel; `p` is the input's row of it.
template <Format F>
INLINE vf plain_weights(const uint8_t* p, int v) {
  if constexpr (F == Format::F32) {
    return load(reinterpret_cast<const float*>(p) + v * W);
  } else if constexpr (F == Format::BF16) {
    // 16 words; the low halves are columns 0 .. 15, the high ones 16 .. 31.
    int column = v * W;
    if (column < 16) return (vf)(load_bits(p + column * 4) << 16);
    return (vf)(load_bits(p + (column - 16) * 4) & 0xffff0000u);
  } else {
    return load_f16(reinterpret_cast<const uint16_t*>(p) + v * W);
  }
}

// The scales and minimums of 32 columns for a group of 32 inputs.
template <Format F>
struct Group {
  vf scale[kVectors], minimum[kVectors];
  const uint8_t* codes;

  INLINE Group read(const uint8_t* p) {
    Group g;
    const uint16_t* halves = reinterpret_cast<const uint16_t*>(p);
    for (int v = 0; v < kVectors; ++v) {
      g.scale[v] = load_f16(halves + v * W);
      if constexpr (F == Format::Q4) g.minimum[v] = g.scale[v] * -8.0f;
      if constexpr (F == Format::Q4M) g.minimum[v] = load_f16(halves + kPanel + v * W);
    }
    g.codes = p + (F == Format::Q4M ? 128 : 64);
    return g;
  }

  // Input j of the group. Codes lie in 8 words of a row: byte (or nibble) b of word i is
  // column 8 b + i; a row of nibbles holds two inputs.
  INLINE vf weights(const Group& g, int j, int v) {
    int b = v * W / 8, first = v * W % 8;
    if constexpr (F == Format::Q8) {
      vu word = load_bits(g.codes + j * 32 + first * 4);
      vi q = (vi)(b == 3 ? word : word << (24 - 8 * b)) >> 24;
      return to_float(q) * g.scale[v];
    } else {
      vu word = load_bits(g.codes + (j / 2) * 32 + first * 4);
      int nibble = (j % 2) * 4 + b;
      vu q = nibble == 7 ? word >> 28 : (word >> (4 * nibble)) & 15u;
      return fma(to_float((vi)q), g.scale[v], g.minimum[v]);
    }
  }
};

// Inputs [begin, end) of M rows against one panel -> sums [M][32]
template <Format F, int M>
void few_rows(const uint8_t* p, const float* const* x, int64_t begin, int64_t end, float* sums) {
  vf acc[M][kVectors];
  for (int m = 0; m < M; ++m) {
    for (int v = 0; v < kVectors; ++v) acc[m][v] = zero();
  }
  if constexpr (F == Format::F32 || F == Format::BF16 || F == Format::F16) {
    constexpr int64_t bytes = kPanel * (F == Format::F32 ? 4 : 2);
    for (int64_t k = begin; k < end; ++k, p += bytes) {
      vf a[M];
      for (int m = 0; m < M; ++m) a[m] = splat(x[m][k]);
      for (int v = 0; v < kVectors; ++v) {
        vf w = plain_weights<F>(p, v);
        for (int m = 0; m < M; ++m) acc[m][v] = fma(a[m], w, acc[m][v]);
      }
    }
  } else {
    for (int64_t k = begin; k < end; k += kGroup, p += panel_offset(F, kGroup)) {
      Group<F> group = Group<F>::read(p);
      for (int j = 0; j < kGroup; j += 2) {
        for (int v = 0; v < kVectors; ++v) {
          vf w0 = Group<F>::weights(group, j, v), w1 = Group<F>::weights(group, j + 1, v);
          for (int m = 0; m < M; ++m) acc[m][v] = fma(splat(x[m][k + j]), w0, acc[m][v]);
          for (int m = 0; m < M; ++m) acc[m][v] = fma(splat(x[m][k + j + 1]), w1, acc[m][v]);
        }
      }
    }
  }
  for (int m = 0; m < M; ++m) {
    for (int v = 0; v < kVectors; ++v) store(sums + m * kPanel + v * W, acc[m][v]);
  }
}

// A segment of one panel as floats: two halves of [length][16].
template <Format F>
void widen(const uint8_t* p, int64_t length, float* out) {
  float* halves[2] = {out, out + length * kHalf};
  auto put = [&](int64_t k, int v, vf w) {
    store(halves[v / kHalfVectors] + k * kHalf + v % kHalfVectors * W, w);
  };
  if constexpr (F == Format::F32 || F == Format::BF16 || F == Format::F16) {
    constexpr int64_t bytes = kPanel * (F == Format::F32 ? 4 : 2);
    for (int64_t k = 0; k < length; ++k, p += bytes) {
      for (int v = 0; v < kVectors; ++v) put(k, v, plain_weights<F>(p, v));
    }
  } else {
    for (int64_t k = 0; k < length; k += kGroup, p += panel_offset(F, kGroup)) {
      Group<F> group = Group<F>::read(p);
      for (int j = 0; j < kGroup; j += 2) {
        for (int v = 0; v < kVectors; ++v) {
          put(k + j, v, Group<F>::weights(group, j, v));
          put(k + j + 1, v, Group<F>::weights(group, j + 1, v));
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
  constexpr int kMost = 3;
  const uint8_t* data = c.weight.data + panel * c.weight.panel_bytes;
  int64_t columns = least(kPanel, c.weight.n - panel * kPanel);
  int64_t size = block_size(c.rows, kMost);
  for (int64_t row = 0; row < c.rows; row += size) {
    int64_t m = least(size, c.rows - row);
    const float* x[kMost];
    for (int64_t i = 0; i < m; ++i) x[i] = row_of(c, row + i);
    alignas(64) float total[kMost * kPanel], sums[kMost * kPanel];
    for (int64_t begin = 0; begin < c.weight.k || begin == 0; begin += kSegment) {
      int64_t end = least(begin + kSegment, c.weight.k);
      const uint8_t* p = data + panel_offset(F, begin);
      float* to = begin == 0 ? total : sums;
      switch (m) {
        case 1: few_rows<F, 1>(p, x, begin, end, to); break;
        case 2: few_rows<F, 2>(p, x, begin, end, to); break;
        default: few_rows<F, 3>(p, x, begin, end, to); break;
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

constexpr int kMostRows = 6;

// One half panel's sums of a segment into the rows' outputs.
INLINE void add_sums(const LinearCall& c, int64_t row, int64_t m, int64_t column,
                     const float* sums, bool first, bool last) {
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
        widen<F>(c.weight.data + (panel + i) * c.weight.panel_bytes + panel_offset(F, begin),
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
  }
}

}  // namespace thalweg::THALWEG_LEVEL
