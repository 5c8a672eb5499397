// From logits to a token, one row at a time. See ops/sampling/README.md.
#pragma once

#include <cstdint>
#include <vector>

#include "level.h"

namespace thalweg {

struct Draw {
  double temperature;
  int64_t top_k;
  float top_p, min_p;
  uint64_t key;
};

// The token of one row of `vocab_size` logits.
int64_t sample(const Kernels& kernels, const float* logits, int64_t vocab_size, const Draw& draw);

// log softmax of one row.
void log_softmax(const Kernels& kernels, const float* logits, int64_t vocab_size, float* out);

// The natural logarithm of a positive normal number, by one sequence of operations everywhere.
double log_of(double x);

}  // namespace thalweg
