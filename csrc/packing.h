// Matrices in the narrowest format that holds every value exactly, so that packing never changes
// a result: only how many bytes a product reads.
#pragma once

#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "blocks.h"

namespace thalweg {

// Rows of one stored type, one after the other in memory.
struct Part {
  const uint8_t* data;
  Source source;
  int64_t rows;
  const int32_t* groups;  // stored place of each group of 32 inputs; null: as they are
};

// Neighbouring parts of one format share panels; the others follow in sections of their own.
class Packed {
 public:
  // Parts with rows of k values, one below the other. Reads them on all threads.
  Packed(const std::vector<Part>& parts, int64_t k);
  Packed(const Packed&) = delete;

  int64_t n() const { return n_; }
  int64_t k() const { return k_; }
  int64_t nbytes() const { return nbytes_; }
  std::string format_name() const;
  const std::vector<PackedView>& sections() const { return sections_; }

  // One row, widened.
  void row(int64_t i, float* out) const;

 private:
  struct Free {
    void operator()(uint8_t* p) const { std::free(p); }
  };

  void add_section(const Part* first, const Part* last, Format format);

  int64_t n_ = 0, k_, nbytes_ = 0;
  std::vector<PackedView> sections_;
  std::vector<std::unique_ptr<uint8_t[], Free>> memory_;
};

}  // namespace thalweg
