// Per-thread room, so that stacks stay small whatever the sizes of a model are.
#pragma once

#include <cstdlib>

#include "vec.h"

namespace thalweg::THALWEG_LEVEL {

class Scratch {
 public:
  ~Scratch() { std::free(memory_); }
  // Of so many bytes, aligned; what was there before is lost.
  void* get(int64_t bytes) {
    if (bytes > size_) {
      std::free(memory_);
      size_ = round_up(bytes, 64);
      memory_ = std::aligned_alloc(64, size_);
    }
    return memory_;
  }

 private:
  void* memory_ = nullptr;
  int64_t size_ = 0;
};

INLINE void* scratch(int64_t bytes) {
  static thread_local Scratch instance;
  return instance.get(bytes);
}

INLINE float* scratch_floats(int64_t count) { return static_cast<float*>(scratch(count * 4)); }

}  // namespace thalweg::THALWEG_LEVEL
