// Matrices in the narrowest format that holds every value exactly, so that packing never changes
// a result: only how many bytes a product reads.
#pragma once

#include <cstddef>
#include <cstdlib>
#include <memory>

#include "level.h"

namespace thalweg {

enum class Source : int32_t { F32, BF16, F16 };

class Packed {
 public:
  // Rows of k values, contiguous. Reads them on all threads.
  Packed(const void* values, Source source, int64_t n, int64_t k);

  PackedView view() const { return {format_, n_, k_, panel_bytes_, data_.get()}; }
  int64_t num_panels() const { return (n_ + kPanel - 1) / kPanel; }
  int64_t nbytes() const { return num_panels() * panel_bytes_; }
  const char* format_name() const;

  // One row, widened.
  void row(int64_t i, float* out) const;

 private:
  struct Free {
    void operator()(uint8_t* p) const { std::free(p); }
  };

  Format format_;
  int64_t n_, k_, panel_bytes_;
  std::unique_ptr<uint8_t[], Free> data_;
};

float f16_to_float(uint16_t h);
uint16_t float_to_f16(float x);
float bf16_to_float(uint16_t h);
uint16_t float_to_bf16(float x);

}  // namespace thalweg
