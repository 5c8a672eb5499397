// What products with plain and with quantised matrices share: how a panel's columns are divided
// among vectors, and how a segment's sums become outputs.
#pragma once

#include "ops.h"
#include "vec.h"

namespace thalweg::THALWEG_LEVEL {

constexpr int kColumns = W == 16 ? 32 : 16;  // that fit the registers together with some rows
constexpr int kVectors = kColumns / W;
constexpr int kTiles = kPanel / kColumns;
constexpr int64_t kAhead = 4096;  // bytes to ask the memory for before they are needed

// Rows in blocks of at most `limit`, as even as possible.
INLINE int64_t block_size(int64_t rows, int64_t limit) {
  int64_t blocks = (rows + limit - 1) / limit;
  return (rows + blocks - 1) / blocks;
}

INLINE int64_t row_of(const LinearCall& c, int64_t row) { return c.x_rows ? c.x_rows[row] : row; }

INLINE void add_segment(float* total, const float* sums, int64_t n) {
  for (int64_t i = 0; i < n; i += W) store(total + i, load(total + i) + load(sums + i));
}

// Sums of m rows of kColumns, of whole rows or of one segment, into the outputs from `column` on.
// The first segment is taken as it is, and the bias follows the last.
INLINE void write_sums(const LinearCall& c, int64_t row, int64_t m, int64_t column,
                       const float* sums, bool first = true, bool last = true) {
  int64_t columns = least(kColumns, c.weight.n - column);
  const float* bias = last && c.bias ? c.bias + column : nullptr;
  for (int64_t i = 0; i < m; ++i, sums += kColumns) {
    float* out = c.out + (row + i) * c.out_stride + column;
    for (int v = 0; v < kColumns && v < columns; v += W) {
      int64_t n = least(W, columns - v);
      vf y = load(sums + v);
      if (!first) y = get(out + v, n) + y;
      if (bias) y = y + get(bias + v, n);
      put(out + v, y, n);
    }
  }
}

}  // namespace thalweg::THALWEG_LEVEL
