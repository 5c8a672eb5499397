// 16-bit floats, converted as the hardware does: to nearest, ties to even.
#pragma once

#include <cstdint>
#include <cstring>

namespace thalweg {

inline uint32_t bits_of(float x) {
  uint32_t u;
  std::memcpy(&u, &x, 4);
  return u;
}

inline float float_of(uint32_t u) {
  float x;
  std::memcpy(&x, &u, 4);
  return x;
}

inline uint16_t load_half(const uint8_t* p) {
  uint16_t h;
  std::memcpy(&h, p, 2);
  return h;
}

inline float f16_to_float(uint16_t h) {
  uint32_t sign = static_cast<uint32_t>(h & 0x8000) << 16;
  uint32_t body = static_cast<uint32_t>(h & 0x7fff) << 13;
  if ((h & 0x7c00) == 0x7c00) return float_of(sign | body | 0x7f800000);
  return float_of(sign | bits_of(float_of(body) * 0x1p112f));
}

inline uint16_t float_to_f16(float x) {
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

inline float bf16_to_float(uint16_t h) { return float_of(static_cast<uint32_t>(h) << 16); }

inline uint16_t float_to_bf16(float x) {
  uint32_t u = bits_of(x);
  if ((u & 0x7fffffff) > 0x7f800000) return static_cast<uint16_t>(u >> 16 | 0x40);
  return static_cast<uint16_t>((u + 0x7fff + (u >> 16 & 1)) >> 16);
}

}  // namespace thalweg
