// What addresses from Python point to.
#pragma once

#include "kernels.h"

namespace thalweg {

inline const float* floats(Address a) { return reinterpret_cast<const float*>(a); }
inline float* mutable_floats(Address a) { return reinterpret_cast<float*>(a); }
inline const int32_t* ints(Address a) { return reinterpret_cast<const int32_t*>(a); }

inline const int64_t* longs(Address a) { return reinterpret_cast<const int64_t*>(a); }

inline std::vector<float> copy_of(Address a, int64_t n) {
  return a ? std::vector<float>(floats(a), floats(a) + n) : std::vector<float>();
}

}  // namespace thalweg
