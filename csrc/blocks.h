// GGUF's quantised blocks as groups of 32 neighbouring inputs, with the numbers that the blocks
// mean: no value is rounded on the way.
#pragma once

#include "halves.h"
#include "level.h"

namespace thalweg {

// What rows of weights are stored as, in the numbering of `ops/extension.py`.
enum class Source : int32_t { F32, BF16, F16, Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, Q4_K, Q5_K, Q6_K };

// Values are (code[j] - bias) * scale[j / 16] + minimum; the bias is that of `native_format`.
struct Group {
  uint8_t code[kGroup];
  float scale[2];
  float minimum;
};

constexpr bool is_blocks(Source s) { return s >= Source::Q4_0; }

// The narrowest format that holds every value of the blocks.
Format native_format(Source source);
// Of k values.
int64_t row_bytes(Source source, int64_t k);
// Group i of a row.
void read_group(Source source, const uint8_t* row, int64_t i, Group* out);

}  // namespace thalweg
