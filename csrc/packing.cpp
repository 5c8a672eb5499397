#include "packing.h"

#include <sys/mman.h>

#include <atomic>
#include <cmath>
#include <cstring>
#include <new>
#include <vector>

#include "threads.h"

namespace thalweg {
namespace {

uint32_t bits_of(float x) {
  uint32_t u;
  std::memcpy(&u, &x, 4);
  return u;
}

float float_of(uint32_t u) {
  float x;
  std::memcpy(&x, &u, 4);
  return x;
}

struct Codes {
  uint8_t code[kGroup];  // signed for Q8
  uint16_t scale, minimum;
};

constexpr float kToInteger = 12582912.0f;  // 1.5 * 2^23: adding it rounds to an integer

// The group's codes if the format holds all 32 values exactly. The scales tried are the ones that
// quantisers choose: the value of largest magnitude has the code of largest magnitude.
bool encode(Format format, const float* w, Codes* out) {
  float low = w[0], high = w[0], extreme = w[0];
  for (int i = 0; i < kGroup; ++i) {
    if (!(std::fabs(w[i]) < 65504.0f)) return false;
    low = w[i] < low ? w[i] : low;
    high = w[i] > high ? w[i] : high;
    extreme = std::fabs(w[i]) > std::fabs(extreme) ? w[i] : extreme;
  }
  float range = format == Format::Q8   ? std::fabs(extreme) / 127.0f
                : format == Format::Q4 ? extreme / -8.0f
                                       : (high - low) / 15.0f;
  out->scale = float_to_f16(range);
  out->minimum = format == Format::Q4M ? float_to_f16(low) : 0;
  float d = f16_to_float(out->scale);
  float m = format == Format::Q4M ? f16_to_float(out->minimum) : 0.0f;
  float least = format == Format::Q8 ? -127 : format == Format::Q4 ? -8 : 0;
  float most = format == Format::Q8 ? 127 : format == Format::Q4 ? 7 : 15;
  for (int i = 0; i < kGroup; ++i) {
    float q = d == 0.0f ? 0.0f : ((w[i] - m) / d + kToInteger) - kToInteger;
    if (!(q >= least && q <= most)) return false;
    if ((format == Format::Q4M ? std::fma(q, d, m) : q * d) != w[i]) return false;
    int bias = format == Format::Q8 ? 128 : format == Format::Q4 ? 8 : 0;
    out->code[i] = static_cast<uint8_t>(static_cast<int>(q) + bias);
  }
  return true;
}

bool row_fits(Format format, const float* w, int64_t k) {
  switch (format) {
    case Format::F32: return true;
    case Format::BF16:
      for (int64_t i = 0; i < k; ++i) {
        if (bits_of(w[i]) & 0xffff) return false;
      }
      return true;
    case Format::F16:
      for (int64_t i = 0; i < k; ++i) {
        if (bits_of(f16_to_float(float_to_f16(w[i]))) != bits_of(w[i])) return false;
      }
      return true;
    default: {
      Codes codes;
      for (int64_t i = 0; i < k; i += kGroup) {
        if (!encode(format, w + i, &codes)) return false;
      }
      return true;
    }
  }
}

Format narrowest(const float* w, int64_t n, int64_t k) {
  for (Format format : {Format::Q4, Format::Q4M, Format::Q8, Format::BF16, Format::F16}) {
    bool grouped = format == Format::Q4 || format == Format::Q4M || format == Format::Q8;
    if (grouped && k % kGroup != 0) continue;
    std::atomic<bool> fits{true};
    Split pieces = split(n, k);
    parallel(pieces.num_pieces(), [&](int64_t piece) {
      for (int64_t i = pieces.begin(piece); i < pieces.end(piece) && fits; ++i) {
        if (!row_fits(format, w + i * k, k)) fits = false;
      }
    });
    if (fits) return format;
  }
  return Format::F32;
}

int64_t bytes_of_panel(Format format, int64_t k) {
  switch (format) {
    case Format::F32: return k * kPanel * 4;
    case Format::BF16:
    case Format::F16: return k * kPanel * 2;
    case Format::Q8: return k / kGroup * (64 + 32 * kPanel);
    case Format::Q4: return k / kGroup * (64 + 16 * kPanel);
    case Format::Q4M: return k / kGroup * (128 + 16 * kPanel);
  }
  return 0;
}

int64_t group_bytes(Format format) { return bytes_of_panel(format, kGroup); }
int64_t codes_offset(Format format) { return format == Format::Q4M ? 128 : 64; }

// Of column c, as `linear.cpp` reads them.
int64_t half_place(Format format, int64_t c) {
  if (format == Format::F16) return c;
  return c / 16 * 16 + c % 8 * 2 + c % 16 / 8;
}
int64_t byte_place(int64_t c) { return c % 8 / 4 * 16 + c / 8 * 4 + c % 4; }

void put_column(Format format, uint8_t* panel, int64_t c, const float* w, int64_t k) {
  switch (format) {
    case Format::F32:
      for (int64_t i = 0; i < k; ++i) std::memcpy(panel + (i * kPanel + c) * 4, w + i, 4);
      return;
    case Format::BF16:
    case Format::F16:
      for (int64_t i = 0; i < k; ++i) {
        uint16_t h =
            format == Format::F16 ? float_to_f16(w[i]) : static_cast<uint16_t>(bits_of(w[i]) >> 16);
        std::memcpy(panel + (i * kPanel + half_place(format, c)) * 2, &h, 2);
      }
      return;
    default: {
      Codes codes;
      for (int64_t i = 0; i < k; i += kGroup, panel += group_bytes(format)) {
        encode(format, w + i, &codes);
        std::memcpy(panel + c * 2, &codes.scale, 2);
        if (format == Format::Q4M) std::memcpy(panel + 64 + c * 2, &codes.minimum, 2);
        uint8_t* out = panel + codes_offset(format);
        for (int j = 0; j < kGroup; ++j) {
          if (format == Format::Q8) {
            out[j * 32 + byte_place(c)] = codes.code[j];
          } else {  // two inputs in a byte
            uint8_t* byte = out + j / 2 * 32 + byte_place(c);
            *byte = static_cast<uint8_t>(*byte | codes.code[j] << (j % 2 * 4));
          }
        }
      }
    }
  }
}

uint8_t* allocate(int64_t bytes) {
  constexpr int64_t kHuge = int64_t{2} << 20;
  int64_t alignment = bytes >= 2 * kHuge ? kHuge : 64;
  int64_t size = ceil_div(bytes > 0 ? bytes : 1, alignment) * alignment;
  void* p = std::aligned_alloc(alignment, size);
  if (!p) throw std::bad_alloc();
#ifdef MADV_HUGEPAGE
  if (alignment == kHuge) madvise(p, size, MADV_HUGEPAGE);
#endif
  return static_cast<uint8_t*>(p);
}

}  // namespace

float f16_to_float(uint16_t h) {
  uint32_t sign = static_cast<uint32_t>(h & 0x8000) << 16;
  uint32_t body = static_cast<uint32_t>(h & 0x7fff) << 13;
  if ((h & 0x7c00) == 0x7c00) return float_of(sign | body | 0x7f800000);
  return float_of(sign | bits_of(float_of(body) * 0x1p112f));
}

uint16_t float_to_f16(float x) {
  uint32_t u = bits_of(x), sign = u & 0x80000000;
  u ^= sign;
  uint32_t h;
  if (u > 0x7f800000) {
    h = 0x7e00;
  } else if (u >= 0x477ff000) {
    h = 0x7c00;
  } else if (u < 0x38800000) {  // subnormal: let the addition round
    h = bits_of(float_of(u) + 0.5f) - bits_of(0.5f);
  } else {
    h = (u + 0xc8000fffu + ((u >> 13) & 1)) >> 13;
  }
  return static_cast<uint16_t>(h | sign >> 16);
}

float bf16_to_float(uint16_t h) { return float_of(static_cast<uint32_t>(h) << 16); }

uint16_t float_to_bf16(float x) {
  uint32_t u = bits_of(x);
  if ((u & 0x7fffffff) > 0x7f800000) return static_cast<uint16_t>(u >> 16 | 0x40);
  return static_cast<uint16_t>((u + 0x7fff + (u >> 16 & 1)) >> 16);
}

Packed::Packed(const void* values, Source source, int64_t n, int64_t k)
    : format_(source == Source::BF16  ? Format::BF16
              : source == Source::F16 ? Format::F16
                                      : narrowest(static_cast<const float*>(values), n, k)),
      n_(n),
      k_(k),
      panel_bytes_(bytes_of_panel(format_, k)),
      data_(allocate(num_panels() * panel_bytes_)) {
  parallel(num_panels(), [&](int64_t panel) {
    uint8_t* p = data_.get() + panel * panel_bytes_;
    std::memset(p, 0, panel_bytes_);
    std::vector<float> widened(source == Source::F32 ? 0 : k);
    for (int64_t c = 0; c < kPanel && panel * kPanel + c < n_; ++c) {
      int64_t offset = (panel * kPanel + c) * k;
      const float* row = static_cast<const float*>(values) + offset;
      if (source != Source::F32) {
        const uint16_t* halves = static_cast<const uint16_t*>(values) + offset;
        for (int64_t i = 0; i < k; ++i) {
          widened[i] = source == Source::F16 ? f16_to_float(halves[i]) : bf16_to_float(halves[i]);
        }
        row = widened.data();
      }
      put_column(format_, p, c, row, k);
    }
  });
}

const char* Packed::format_name() const {
  switch (format_) {
    case Format::F32: return "f32";
    case Format::BF16: return "bf16";
    case Format::F16: return "f16";
    case Format::Q8: return "q8";
    case Format::Q4: return "q4";
    case Format::Q4M: return "q4m";
  }
  return "";
}

void Packed::row(int64_t i, float* out) const {
  const uint8_t* panel = data_.get() + i / kPanel * panel_bytes_;
  int64_t c = i % kPanel;
  auto half = [](const uint8_t* p) {
    uint16_t h;
    std::memcpy(&h, p, 2);
    return h;
  };
  switch (format_) {
    case Format::F32:
      for (int64_t j = 0; j < k_; ++j) std::memcpy(out + j, panel + (j * kPanel + c) * 4, 4);
      return;
    case Format::BF16:
    case Format::F16: {
      const uint8_t* p = panel + half_place(format_, c) * 2;
      for (int64_t j = 0; j < k_; ++j) {
        uint16_t h = half(p + j * kPanel * 2);
        out[j] = format_ == Format::F16 ? f16_to_float(h) : bf16_to_float(h);
      }
      return;
    }
    default:
      for (int64_t g = 0; g < k_; g += kGroup, panel += group_bytes(format_)) {
        float d = f16_to_float(half(panel + c * 2));
        float m = format_ == Format::Q4M ? f16_to_float(half(panel + 64 + c * 2)) : 0.0f;
        const uint8_t* codes = panel + codes_offset(format_);
        for (int j = 0; j < kGroup; ++j) {
          int q = format_ == Format::Q8 ? codes[j * 32 + byte_place(c)] - 128
                                        : (codes[j / 2 * 32 + byte_place(c)] >> (j % 2 * 4) & 15) -
                                              (format_ == Format::Q4 ? 8 : 0);
          out[g + j] = std::fma(static_cast<float>(q), d, m);
        }
      }
  }
}

}  // namespace thalweg
