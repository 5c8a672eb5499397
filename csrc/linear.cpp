// Products with packed matrices. An output is a chain of fused multiply-adds over its inputs in
// ascending order within segments of 256, the segments' sums added in ascending order, then the
// bias. Few rows read the packed weights once and widen them in registers; many rows widen a
// segment of panels into the cache first. Both do the same operations for each output.
#include "linear.h"

#include <utility>

namespace thalweg::THALWEG_LEVEL {
namespace {

constexpr int kMostRows = W == 16 ? 12 : 6;
constexpr int kRegisterRows = W == 16 ? 8 : 6;  // at once while widening in registers
constexpr int64_t kFewRows = 12;  // up to here widening in registers is faster

// Vector v of a tile holds the columns from here on. Halves of bfloat16 words are 16 apart.
INLINE int column_of(int tile, int v) {
  constexpr int half = kVectors / 2;
  return v / half * 16 + tile * (kColumns / 2) + v % half * W;
}

// The weights of one input in a tile of columns. `p` is the input's row of the panel.
template <Format F>
INLINE void weights(const uint8_t* p, int tile, vf* w) {
  for (int v = 0; v < kVectors; ++v) {
    int column = column_of(tile, v);
    if constexpr (F == Format::F32) {
      w[v] = load(reinterpret_cast<const float*>(p) + column);
    } else if constexpr (F == Format::F16) {
      w[v] = load_f16(reinterpret_cast<const uint16_t*>(p) + column);
    } else {  // columns 0 .. 15 are the low halves of 16 words, 16 .. 31 the high ones
      vu word = load_bits(p + column % 16 * 4);
      w[v] = (vf)(column < 16 ? word << 16 : word & 0xffff0000u);
    }
  }
}

// A segment of M rows against `Tiles` tiles of a panel -> sums [M][32]
template <Format F, int M, int Tiles>
INLINE void few_rows(const uint8_t* p, const float* const* x, int64_t length, int first_tile,
                     float* sums) {
  vf acc[M][Tiles][kVectors];
  for (int m = 0; m < M; ++m) {
    for (int t = 0; t < Tiles; ++t) {
      for (int v = 0; v < kVectors; ++v) acc[m][t][v] = zero();
    }
  }
  constexpr int64_t bytes = panel_bytes(F, 1);
  for (int64_t k = 0; k < length; ++k, p += bytes) {
    for (int64_t i = 0; i < bytes; i += 64) __builtin_prefetch(p + kAhead + i);
    for (int t = 0; t < Tiles; ++t) {
      vf w[kVectors];
      weights<F>(p, first_tile + t, w);
      for (int m = 0; m < M; ++m) {
        vf a = splat(x[m][k]);
        for (int v = 0; v < kVectors; ++v) acc[m][t][v] = fma(a, w[v], acc[m][t][v]);
      }
    }
  }
  for (int m = 0; m < M; ++m) {
    for (int t = 0; t < Tiles; ++t) {
      for (int v = 0; v < kVectors; ++v) {
        store(sums + m * kPanel + column_of(first_tile + t, v), acc[m][t][v]);
      }
    }
  }
}

template <Format F, int M>
void few_rows(const uint8_t* p, const float* const* x, int64_t length, float* sums) {
  if constexpr (M <= 2 || kTiles == 1) {
    few_rows<F, M, kTiles>(p, x, length, 0, sums);
  } else {
    for (int tile = 0; tile < kTiles; ++tile) few_rows<F, M, 1>(p, x, length, tile, sums);
  }
}

using FewRows = void (*)(const uint8_t*, const float* const*, int64_t, float*);
template <Format F, int... M>
INLINE FewRows few_rows_of(int64_t m, std::integer_sequence<int, M...>) {
  static constexpr FewRows table[] = {few_rows<F, M + 1>...};
  return table[m - 1];
}

template <Format F>
void few(const LinearCall& c, int64_t panel) {
  const uint8_t* data = c.weight.data + panel * c.weight.panel_bytes;
  int64_t columns = least(kPanel, c.weight.n - panel * kPanel);
  int64_t size = block_size(c.rows, kRegisterRows);
  for (int64_t row = 0; row < c.rows; row += size) {
    int64_t m = least(size, c.rows - row);
    alignas(64) float total[kRegisterRows * kPanel], sums[kRegisterRows * kPanel];
    for (int64_t begin = 0; begin < c.weight.k || begin == 0; begin += kSegment) {
      int64_t length = least(kSegment, c.weight.k - begin);
      const float* x[kRegisterRows];
      for (int64_t i = 0; i < m; ++i) x[i] = c.x + row_of(c, row + i) * c.x_stride + begin;
      const uint8_t* p = data + panel_bytes(F, begin);
      float* to = begin == 0 ? total : sums;
      few_rows_of<F>(m, std::make_integer_sequence<int, kRegisterRows>())(p, x, length, to);
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

// A segment of one panel as floats: tiles of [length][kColumns], their columns in order.
template <Format F>
void widen(const uint8_t* p, int64_t length, float* out) {
  for (int64_t k = 0; k < length; ++k, p += panel_bytes(F, 1)) {
    for (int tile = 0; tile < kTiles; ++tile) {
      vf w[kVectors];
      weights<F>(p, tile, w);
      for (int v = 0; v < kVectors; ++v) {
        int column = column_of(tile, v);
        store(out + (column / kColumns * length + k) * kColumns + column % kColumns, w[v]);
      }
    }
  }
}

// A segment of M rows against a tile of floats -> sums [M][kColumns]
template <int M>
void many_rows(const float* w, const float* const* x, int64_t length, float* sums) {
  vf acc[M][kVectors];
  for (int m = 0; m < M; ++m) {
    for (int v = 0; v < kVectors; ++v) acc[m][v] = zero();
  }
  for (int64_t k = 0; k < length; ++k, w += kColumns) {
    vf b[kVectors];
    for (int v = 0; v < kVectors; ++v) b[v] = load(w + v * W);
    for (int m = 0; m < M; ++m) {
      vf a = splat(x[m][k]);
      for (int v = 0; v < kVectors; ++v) acc[m][v] = fma(a, b[v], acc[m][v]);
    }
  }
  for (int m = 0; m < M; ++m) {
    for (int v = 0; v < kVectors; ++v) store(sums + m * kColumns + v * W, acc[m][v]);
  }
}

using ManyRows = void (*)(const float*, const float* const*, int64_t, float*);
template <int... M>
INLINE ManyRows many_rows_of(int64_t m, std::integer_sequence<int, M...>) {
  static constexpr ManyRows table[] = {many_rows<M + 1>...};
  return table[m - 1];
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
        for (int64_t i = 0; i < m; ++i) x[i] = c.x + row_of(c, row + i) * c.x_stride + begin;
        ManyRows multiply = many_rows_of(m, std::make_integer_sequence<int, kMostRows>());
        for (int64_t tile = 0; tile < kTiles * panels; ++tile) {
          int64_t column = panel * kPanel + tile * kColumns;
          if (column >= c.weight.n) break;
          alignas(64) float sums[kMostRows * kColumns];
          multiply(widened + tile / kTiles * kSegment * kPanel + tile % kTiles * length * kColumns,
                   x, length, sums);
          write_sums(c, row, m, column, sums, first, last);
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
    default: return quantised_linear(c, first_panel, last_panel);
  }
}

}  // namespace thalweg::THALWEG_LEVEL
