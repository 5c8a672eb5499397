// Products of many rows with grouped weights on AMX: a tile instruction gives the integer sums of a
// group for 16 rows and 16 columns. What follows is as in `linear_quantised.cpp`, bit by bit.
#pragma once

#include <initializer_list>

#include "linear.h"
#include "scratch.h"

#if defined(__AMX_INT8__)

namespace thalweg::THALWEG_LEVEL {

constexpr int64_t kTileRows = 16;

class TileConfig {
 public:
  // Tiles 0, 1, 5, 6 hold sums, 2 activations, 3 and 4 weights; `size` inputs are multiplied.
  explicit TileConfig(int size) {
    alignas(64) struct {
      uint8_t palette = 1, start_row = 0, reserved[14] = {};
      uint16_t bytes[16] = {};
      uint8_t rows[16] = {};
    } c;
    for (int tile : {0, 1, 5, 6}) c.rows[tile] = 16, c.bytes[tile] = 64;
    c.rows[2] = 16, c.bytes[2] = static_cast<uint16_t>(size);
    for (int tile : {3, 4}) c.rows[tile] = static_cast<uint8_t>(size / 4), c.bytes[tile] = 64;
    _tile_loadconfig(&c);
  }
  ~TileConfig() { _tile_release(); }
};

// A panel: signed codes as [inputs / 4][32][4], and its groups' numbers as floats.
template <Format F>
struct Unpacked {
  static constexpr int64_t kSize = group_size(F);
  int8_t* codes;
  float* scale;    // [groups][32]
  float* minimum;  // [groups][32]

  static constexpr int64_t num_bytes(int64_t k) { return k * kPanel + k / kSize * kPanel * 8; }
  Unpacked(void* memory, int64_t k)
      : codes(static_cast<int8_t*>(memory)),
        scale(reinterpret_cast<float*>(codes + k * kPanel)),
        minimum(scale + k / kSize * kPanel) {}

  // From input `begin` on.
  Unpacked at(int64_t begin) const {
    Unpacked part = *this;
    part.codes += begin * kPanel;
    part.scale += begin / kSize * kPanel;
    part.minimum += begin / kSize * kPanel;
    return part;
  }

  void read(const uint8_t* p, int64_t length) const {
    constexpr int64_t bytes = kSize * kPanel / (is_half_byte(F) ? 2 : 1);
    constexpr uint8_t bias = code_bias(F);
    int8_t* out = codes;
    for (int64_t g = 0; g < length / kSize; ++g, p += panel_bytes(F, kSize)) {
      numbers(p, scale + g * kPanel);
      if constexpr (has_minimum(F)) numbers(p + scale_bytes(F), minimum + g * kPanel);
      const uint8_t* code = p + codes_offset(F);
      for (int64_t i = 0; i < bytes; ++i) {
        uint8_t low = is_half_byte(F) ? code[i] & 15 : code[i];
        out[i] = static_cast<int8_t>(low - bias);
        if (is_half_byte(F)) out[bytes + i] = static_cast<int8_t>((code[i] >> 4) - bias);
      }
      out += kSize * kPanel;
    }
  }

 private:
  static void numbers(const uint8_t* p, float* out) {
    for (int v = 0; v < kPanel; v += W) {
      store(out + v, has_float_scale(F) ? load(reinterpret_cast<const float*>(p) + v)
                                        : load_f16(reinterpret_cast<const uint16_t*>(p) + v));
    }
  }
};

// Integer sums [groups][16][32] of 16 rows, `stride` apart.
template <Format F>
INLINE void multiply_tiles(const Unpacked<F>& w, const int8_t* x, int64_t stride, int64_t groups,
                           int32_t* out) {
  constexpr int64_t kSize = Unpacked<F>::kSize, kOut = kTileRows * kPanel;
  for (int64_t g = 0; g < groups; ++g, out += kOut) {
    const int8_t* codes = w.codes + g * kSize * kPanel;
    _tile_loadd(2, x + g * kSize, stride);
    _tile_loadd(3, codes, kPanel * 4);
    _tile_loadd(4, codes + 64, kPanel * 4);
    if (g % 2) {  // other registers, so that the sums before need not be stored first
      _tile_zero(5);
      _tile_dpbssd(5, 2, 3);
      _tile_zero(6);
      _tile_dpbssd(6, 2, 4);
      _tile_stored(5, out, kPanel * 4);
      _tile_stored(6, out + 16, kPanel * 4);
    } else {
      _tile_zero(0);
      _tile_dpbssd(0, 2, 3);
      _tile_zero(1);
      _tile_dpbssd(1, 2, 4);
      _tile_stored(0, out, kPanel * 4);
      _tile_stored(1, out + 16, kPanel * 4);
    }
  }
}

// The sums of R rows from `first` on, scaled and added over the groups -> [R][32]
template <Format F, int R>
INLINE void add_groups(const Unpacked<F>& w, const int32_t* dots, const float* const* scale,
                       const int32_t* const* sum, int64_t groups, int64_t first, float* out) {
  constexpr int64_t kSize = Unpacked<F>::kSize, kParts = kSize / 16;
  vf acc[R][kVectors];
  for (int r = 0; r < R; ++r) {
    for (int v = 0; v < kVectors; ++v) acc[r][v] = zero();
  }
  for (int64_t g = 0; g < groups; ++g) {
    for (int r = 0; r < R; ++r) {
      const int32_t* dot = dots + (g * kTileRows + first + r) * kPanel;
      float a = scale[first + r][g * kSize / kGroup];
      const int32_t* s = sum[first + r] + g * kParts;
      vf total = splat(a * static_cast<float>(s[0] + (kParts == 2 ? s[1] : 0)));
      for (int v = 0; v < kVectors; ++v) {
        vf value = to_float((vi)load_bits(dot + v * W));
        acc[r][v] = fma(value, load(w.scale + g * kPanel + v * W) * a, acc[r][v]);
        if constexpr (has_minimum(F)) {
          acc[r][v] = fma(load(w.minimum + g * kPanel + v * W), total, acc[r][v]);
        }
      }
    }
  }
  for (int r = 0; r < R; ++r) {
    for (int v = 0; v < kVectors; ++v) store(out + r * kPanel + v * W, acc[r][v]);
  }
}

template <Format F>
void tile_panels(const LinearCall& c, int64_t first_panel, int64_t last_panel) {
  constexpr int64_t kSize = Unpacked<F>::kSize;
  TileConfig config(kSize);
  const QuantisedRows& q = c.quantised;
  int64_t k = c.weight.k, room = Unpacked<F>::num_bytes(k);
  void* memory = scratch(room + kTileRows * k);
  Unpacked<F> panel_codes(memory, k);
  int8_t* gathered = static_cast<int8_t*>(memory) + room;
  alignas(64) int32_t dots[kSegment / kSize * kTileRows * kPanel];
  alignas(64) float total[kTileRows * kPanel], sums[kTileRows * kPanel];
  for (int64_t panel = first_panel; panel < last_panel; ++panel) {
    panel_codes.read(c.weight.data + panel * c.weight.panel_bytes, k);
    for (int64_t row = 0; row < c.rows; row += kTileRows) {
      int64_t m = least(kTileRows, c.rows - row);
      const int8_t* codes = q.codes + row * k;
      if (m < kTileRows || c.x_rows) {
        for (int64_t i = 0; i < m; ++i) {
          std::memcpy(gathered + i * k, q.codes + row_of(c, row + i) * k, k);
        }
        codes = gathered;
      }
      for (int64_t begin = 0; begin < k; begin += kSegment) {
        int64_t groups = least(kSegment, k - begin) / kSize;
        const float* scale[kTileRows];
        const int32_t* sum[kTileRows];
        for (int64_t i = 0; i < m; ++i) {
          int64_t place = row_of(c, row + i) * k + begin;
          scale[i] = q.scale + place / kGroup, sum[i] = q.sum + place / 16;
        }
        Unpacked<F> w = panel_codes.at(begin);
        multiply_tiles(w, codes + begin, k, groups, dots);
        float* to = begin == 0 ? total : sums;
        int64_t i = 0;
        for (; i + 4 <= m; i += 4) add_groups<F, 4>(w, dots, scale, sum, groups, i, to + i * kPanel);
        for (; i < m; ++i) add_groups<F, 1>(w, dots, scale, sum, groups, i, to + i * kPanel);
        if (begin != 0) add_segment(total, sums, m * kPanel);
      }
      write_sums(c, row, m, panel * kPanel, total);
    }
  }
}

}  // namespace thalweg::THALWEG_LEVEL

#endif
