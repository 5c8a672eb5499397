#include "blocks.h"

namespace thalweg {
namespace {

struct Layout {
  int64_t values, bytes;
  Format format;
};

Layout layout(Source source) {
  switch (source) {
    case Source::F32: return {1, 4, Format::F32};
    case Source::BF16: return {1, 2, Format::BF16};
    case Source::F16: return {1, 2, Format::F16};
    case Source::Q4_0: return {32, 18, Format::Q4};
    case Source::Q4_1: return {32, 20, Format::Q4M};
    case Source::Q5_0: return {32, 22, Format::Q8};
    case Source::Q5_1: return {32, 24, Format::Q5K};
    case Source::Q8_0: return {32, 34, Format::Q8};
    case Source::Q4_K: return {256, 144, Format::Q4K};
    case Source::Q5_K: return {256, 176, Format::Q5K};
    case Source::Q6_K: return {256, 210, Format::Q6K};
  }
  return {};
}

float half_at(const uint8_t* p) { return f16_to_float(load_half(p)); }

// 16 bytes: the low halves are values 0 .. 15, the high halves 16 .. 31. Bit j of `fifth` belongs to
// value j.
void read_halves(const uint8_t* p, uint32_t fifth, int bias, Group* out) {
  for (int j = 0; j < 16; ++j) {
    uint32_t low = (p[j] & 15u) | (fifth >> j & 1u) << 4;
    uint32_t high = p[j] >> 4 | (fifth >> (j + 16) & 1u) << 4;
    out->code[j] = static_cast<uint8_t>(low + bias);
    out->code[j + 16] = static_cast<uint8_t>(high + bias);
  }
}

uint32_t load_word(const uint8_t* p) {
  uint32_t u;
  std::memcpy(&u, p, 4);
  return u;
}

// Of Q4_K and Q5_K: eight groups, whose 6-bit scales and minimums are in 12 bytes.
void read_scales(const uint8_t* block, int64_t group, Group* out) {
  const uint8_t* s = block + 4;
  int scale, minimum;
  if (group < 4) {
    scale = s[group] & 63;
    minimum = s[group + 4] & 63;
  } else {
    scale = (s[group + 4] & 15) | (s[group - 4] >> 6) << 4;
    minimum = s[group + 4] >> 4 | (s[group] >> 6) << 4;
  }
  out->scale[0] = out->scale[1] = half_at(block) * static_cast<float>(scale);
  out->minimum = -(half_at(block + 2) * static_cast<float>(minimum));
}

void read_q6(const uint8_t* block, int64_t group, Group* out) {
  int64_t half = group / 4, part = group % 4;  // of 128 values, of 32
  const uint8_t* low = block + half * 64 + part % 2 * 32;
  const uint8_t* high = block + 128 + half * 32;
  int shift = part < 2 ? 0 : 4, pair = static_cast<int>(2 * part);
  for (int j = 0; j < kGroup; ++j) {
    out->code[j] = static_cast<uint8_t>((low[j] >> shift & 15) | (high[j] >> pair & 3) << 4);
  }
  const int8_t* scales = reinterpret_cast<const int8_t*>(block + 192) + group * 2;
  for (int i = 0; i < 2; ++i) {
    out->scale[i] = half_at(block + 208) * static_cast<float>(scales[i]);
  }
  out->minimum = 0.0f;
}

}  // namespace

Format native_format(Source source) { return layout(source).format; }

int64_t row_bytes(Source source, int64_t k) {
  Layout l = layout(source);
  return k / l.values * l.bytes;
}

void read_group(Source source, const uint8_t* row, int64_t i, Group* out) {
  Layout l = layout(source);
  int64_t groups = l.values / kGroup, group = i % groups;
  const uint8_t* p = row + i / groups * l.bytes;
  out->scale[0] = out->scale[1] = half_at(p);
  out->minimum = 0.0f;
  switch (source) {
    case Source::Q4_0: return read_halves(p + 2, 0, 0, out);
    case Source::Q4_1:
      out->minimum = half_at(p + 2);
      return read_halves(p + 4, 0, 0, out);
    case Source::Q5_0: return read_halves(p + 6, load_word(p + 2), 128 - 16, out);
    case Source::Q5_1:
      out->minimum = half_at(p + 2);
      return read_halves(p + 8, load_word(p + 4), 0, out);
    case Source::Q8_0:
      for (int j = 0; j < kGroup; ++j) out->code[j] = static_cast<uint8_t>(p[2 + j] ^ 128);
      return;
    case Source::Q4_K:
    case Source::Q5_K: {
      read_scales(p, group, out);
      bool five = source == Source::Q5_K;
      const uint8_t* codes = p + (five ? 48 : 16) + group / 2 * 32;
      int shift = group % 2 * 4;
      for (int j = 0; j < kGroup; ++j) {
        int fifth = five ? (p[16 + j] >> group & 1) << 4 : 0;
        out->code[j] = static_cast<uint8_t>((codes[j] >> shift & 15) | fifth);
      }
      return;
    }
    case Source::Q6_K: return read_q6(p, group, out);
    default: return;
  }
}

}  // namespace thalweg
