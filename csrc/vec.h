// Vectors of floats, as wide as this level of the instruction set has them. Included only by
// files that are compiled once a level; everything lives in the level's own namespace, so that
// the linker can never take one level's code for another's.
#pragma once

#include <cstdint>
#include <cstring>

#if defined(__AVX2__)
#include <immintrin.h>
#elif defined(__ARM_NEON)
#include <arm_neon.h>
#endif

#define INLINE static inline __attribute__((always_inline))

namespace thalweg::THALWEG_LEVEL {

#if defined(__AVX512F__)
constexpr int W = 16;
#elif defined(__AVX2__)
constexpr int W = 8;
#else
constexpr int W = 4;
#endif

typedef float vf __attribute__((vector_size(W * 4)));
typedef int32_t vi __attribute__((vector_size(W * 4)));
typedef uint32_t vu __attribute__((vector_size(W * 4)));
typedef uint16_t vh __attribute__((vector_size(W * 2)));
typedef int8_t vb __attribute__((vector_size(W)));
typedef float vf_any __attribute__((vector_size(W * 4), aligned(4), may_alias));
typedef uint32_t vu_any __attribute__((vector_size(W * 4), aligned(4), may_alias));
typedef uint16_t vh_any __attribute__((vector_size(W * 2), aligned(2), may_alias));

INLINE vf load(const float* p) { return *reinterpret_cast<const vf_any*>(p); }
INLINE void store(float* p, vf x) { *reinterpret_cast<vf_any*>(p) = x; }
INLINE vi splat_bits(const void* p) {
  int32_t x;
  std::memcpy(&x, p, 4);
  return x - vi{};
}
INLINE vu load_bits(const void* p) { return *reinterpret_cast<const vu_any*>(p); }
INLINE void store_bits(void* p, vu x) { *reinterpret_cast<vu_any*>(p) = x; }
INLINE vf splat(float x) { return x - vf{}; }  // x + 0 would lose the sign of -0
INLINE vf zero() { return vf{}; }

// a * b + c, rounded once, on every level.
#if defined(__AVX512F__)
INLINE vf fma(vf a, vf b, vf c) { return _mm512_fmadd_ps(a, b, c); }
INLINE float fma(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
INLINE double fma(double a, double b, double c) { return __builtin_fma(a, b, c); }
#elif defined(__FMA__)
INLINE vf fma(vf a, vf b, vf c) { return _mm256_fmadd_ps(a, b, c); }
INLINE float fma(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
INLINE double fma(double a, double b, double c) { return __builtin_fma(a, b, c); }
#elif defined(__ARM_NEON)
INLINE vf fma(vf a, vf b, vf c) { return vfmaq_f32(c, a, b); }
INLINE float fma(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
INLINE double fma(double a, double b, double c) { return __builtin_fma(a, b, c); }
#else
// Without the instruction: the product is exact in double, the sum is rounded to odd there, and
// one rounding to float is then the right one (Boldo, Melquiond 2008: 53 >= 24 + 2).
typedef double vd __attribute__((vector_size(W * 8)));
typedef int64_t vl __attribute__((vector_size(W * 8)));
INLINE vf fma(vf a, vf b, vf c) {
  vd p = __builtin_convertvector(a, vd) * __builtin_convertvector(b, vd);
  vd z = __builtin_convertvector(c, vd);
  vd s = p + z;
  vd t = s - p;
  vd e = (p - (s - t)) + (z - t);
  vl inexact = (e < 0.0) | (e > 0.0);
  vl even = ((vl)s & 1) == 0;
  vl outward = ((vl)s ^ (vl)e) >= 0;
  vl step = (outward & 1) | (~outward & -1);
  s = (vd)((vl)s + (step & inexact & even));
  return __builtin_convertvector(s, vf);
}
INLINE float fma(float a, float b, float c) { return fma(splat(a), splat(b), splat(c))[0]; }
INLINE double fma(double a, double b, double c) { return __builtin_fma(a, b, c); }
#endif

INLINE vf to_float(vi x) { return __builtin_convertvector(x, vf); }

// bf16 is the high half of a float.
INLINE vf widen_bf16(vh x) { return (vf)(__builtin_convertvector(x, vu) << 16); }
INLINE vf load_bf16(const uint16_t* p) { return widen_bf16(*reinterpret_cast<const vh_any*>(p)); }
INLINE uint16_t to_bf16(float x) {  // to nearest, ties to even; a NaN stays one
  uint32_t u;
  std::memcpy(&u, &x, 4);
  if ((u & 0x7fffffff) > 0x7f800000) return static_cast<uint16_t>((u >> 16) | 0x40);
  return static_cast<uint16_t>((u + 0x7fff + ((u >> 16) & 1)) >> 16);
}

INLINE vf load_f16(const uint16_t* p) {
#if defined(__AVX512F__)
  return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
#elif defined(__F16C__)
  return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
#else
  vu h = __builtin_convertvector(*reinterpret_cast<const vh_any*>(p), vu);
  vu sign = (h & 0x8000) << 16;
  vu body = (h & 0x7fff) << 13;
  vf magnitude = (vf)(body)*splat(0x1p112f);  // exact, subnormals too; inf and NaN apart
  vu special = (vu)((vi)(h & 0x7c00) == 0x7c00);
  vu bits = (special & (body | 0x7f800000)) | (~special & (vu)magnitude);
  return (vf)(bits | sign);
#endif
}

// A sum over a row is 16 partial sums, lane i taking elements i, i + 16, ..., folded in halves:
// lanes i and i + 8, then i and i + 4, i + 2, i + 1. All levels have the same 16 lanes.
constexpr int kLanes = 16;
constexpr int kParts = kLanes / W;
struct Lanes {
  vf part[kParts];
};

INLINE Lanes zero_lanes() {
  Lanes lanes;
  for (int i = 0; i < kParts; ++i) lanes.part[i] = zero();
  return lanes;
}

INLINE float fold(const Lanes& lanes) {
#if defined(__AVX512F__)
  __m512 a = lanes.part[0];
  __m256 h = _mm256_add_ps(_mm512_castps512_ps256(a),
                           _mm256_castpd_ps(_mm512_extractf64x4_pd(_mm512_castps_pd(a), 1)));
  __m128 q = _mm_add_ps(_mm256_castps256_ps128(h), _mm256_extractf128_ps(h, 1));
  q = _mm_add_ps(q, _mm_movehl_ps(q, q));
  return _mm_cvtss_f32(_mm_add_ss(q, _mm_movehdup_ps(q)));
#elif defined(__AVX2__)
  __m256 h = _mm256_add_ps(lanes.part[0], lanes.part[1]);
  __m128 q = _mm_add_ps(_mm256_castps256_ps128(h), _mm256_extractf128_ps(h, 1));
  q = _mm_add_ps(q, _mm_movehl_ps(q, q));
  return _mm_cvtss_f32(_mm_add_ss(q, _mm_movehdup_ps(q)));
#else
  vf q = (lanes.part[0] + lanes.part[2]) + (lanes.part[1] + lanes.part[3]);
  return (q[0] + q[2]) + (q[1] + q[3]);
#endif
}

INLINE int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }
INLINE int64_t most(int64_t a, int64_t b) { return a > b ? a : b; }
INLINE int64_t round_up(int64_t a, int64_t b) { return (a + b - 1) / b * b; }

// The first n < W floats of p, zeros behind them.
#if defined(__AVX512F__)
INLINE vf load_some(const float* p, int64_t n) {
  return _mm512_maskz_loadu_ps(static_cast<__mmask16>((1u << n) - 1), p);
}
INLINE void store_some(float* p, vf x, int64_t n) {
  _mm512_mask_storeu_ps(p, static_cast<__mmask16>((1u << n) - 1), x);
}
#else
INLINE vf load_some(const float* p, int64_t n) {
  vf x = zero();
  for (int64_t i = 0; i < n; ++i) x[i] = p[i];
  return x;
}
INLINE void store_some(float* p, vf x, int64_t n) {
  for (int64_t i = 0; i < n; ++i) p[i] = x[i];
}
#endif

// As many as there are, n <= W.
INLINE vf get(const float* p, int64_t n) { return n == W ? load(p) : load_some(p, n); }
INLINE void put(float* p, vf x, int64_t n) {
  if (n == W) {
    store(p, x);
  } else {
    store_some(p, x, n);
  }
}

}  // namespace thalweg::THALWEG_LEVEL
