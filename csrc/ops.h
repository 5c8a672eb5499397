// The functions of one level, by the names `level.cpp` puts into its table.
#pragma once

#include "level.h"

namespace thalweg::THALWEG_LEVEL {

void quantise(const QuantiseCall& c, int64_t row);
void quantised_linear(const LinearCall& c, int64_t first_panel, int64_t last_panel);
void linear(const LinearCall& c, int64_t first_panel, int64_t last_panel);
void norm(const NormCall& c, int64_t first_row, int64_t last_row);
void silu_and_mul(const SiluCall& c, int64_t row, int64_t begin, int64_t end);
void rotary(const RotaryCall& c, int64_t token);
void conv(const ConvCall& c, int64_t sequence, int64_t first, int64_t last);
void gates(const GatesCall& c, int64_t token);
void delta(const DeltaCall& c, int64_t sequence, int64_t head);
void attention_all(const AttentionCall& c, const AttentionItem& item);
void attention_tile(const AttentionCall& c, const AttentionItem& item, int64_t tile, Partial out);
void attention_merge(const AttentionCall& c, const AttentionItem& item, const Partial* partials,
                     int64_t num_tiles);
void route(const RouterCall& c, int64_t row);
void combine(const CombineCall& c, int64_t row);
uint32_t read_all(const uint8_t* data, int64_t bytes);
Largest largest(const float* x, int64_t n);
void exp_all(const float* x, float* y, int64_t n);

}  // namespace thalweg::THALWEG_LEVEL
