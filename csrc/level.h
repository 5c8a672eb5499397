// What a level of the instruction set offers: the same functions, compiled several times. A call
// names the whole problem, and a function does one piece of it on one thread.
#pragma once

#include <cstdint>

namespace thalweg {

constexpr int64_t kPanel = 32;     // neighbouring outputs that lie together
constexpr int64_t kSegment = 256;  // inputs in one chain of fused multiply-adds
constexpr int64_t kGroup = 32;     // inputs of a quantised group
constexpr int64_t kTile = 128;     // positions of context in one partial softmax
constexpr int64_t kMaxQueries = 16;
constexpr int64_t kConvChannels = 256;  // of one piece of a convolution
constexpr int32_t kSkip = -1;

// Grouped formats are (code - bias) * scale + minimum. Q8, Q4 and Q4M have a float16 scale (Q4M: and
// minimum) for 32 inputs. Q4K and Q5K have a float32 scale and minimum for 32, Q6K a float32 scale
// for 16: what the K types of GGUF come to. Codes of Q4, Q4M, Q4K are half a byte, others a byte.
enum class Format : int32_t { F32, BF16, F16, Q8, Q4, Q4M, Q4K, Q5K, Q6K };

constexpr bool is_plain(Format f) { return f <= Format::F16; }
constexpr bool is_half_byte(Format f) {
  return f == Format::Q4 || f == Format::Q4M || f == Format::Q4K;
}
constexpr bool has_float_scale(Format f) { return f >= Format::Q4K; }
constexpr bool has_minimum(Format f) {
  return f == Format::Q4M || f == Format::Q4K || f == Format::Q5K;
}
constexpr int code_bias(Format f) {
  return f == Format::Q8 ? 128 : f == Format::Q4 ? 8 : f == Format::Q6K ? 32 : 0;
}
// Inputs that share a scale.
constexpr int64_t group_size(Format f) { return f == Format::Q6K ? 16 : kGroup; }
// Before the codes of a group of a panel: its scales, then its minimums.
constexpr int64_t scale_bytes(Format f) { return kPanel * (has_float_scale(f) ? 4 : 2); }
constexpr int64_t codes_offset(Format f) { return scale_bytes(f) * (has_minimum(f) ? 2 : 1); }
// Of k inputs of a panel: whole groups, in grouped formats.
constexpr int64_t panel_bytes(Format f, int64_t k) {
  if (is_plain(f)) return k * kPanel * (f == Format::F32 ? 4 : 2);
  int64_t codes = group_size(f) * kPanel / (is_half_byte(f) ? 2 : 1);
  return k / group_size(f) * (codes_offset(f) + codes);
}

// A matrix [n, k] in panels: ceil(n / 32) of them, each all k inputs of 32 outputs.
struct PackedView {
  Format format;
  int64_t n, k;
  int64_t panel_bytes;
  const uint8_t* data;
};

// Rows of activations as grouped weights meet them: codes -127 .. 127, times a scale each group.
struct QuantisedRows {
  int8_t* codes;  // [rows, k]
  float* scale;   // [rows, k / 32]
  int32_t* sum;   // [rows, k / 16] of the codes
};

struct QuantiseCall {
  const float* x;  // rows of k, `x_stride` apart
  int64_t x_stride, k;
  QuantisedRows out;
};

struct LinearCall {
  PackedView weight;
  const float* bias;  // [n] or null
  const float* x;     // rows of k, `x_stride` apart
  int64_t x_stride;
  const int32_t* x_rows;  // which rows, or null for 0 .. rows - 1
  int64_t rows;
  float* out;  // rows of n, `out_stride` apart
  int64_t out_stride;
  QuantisedRows quantised = {};  // x, if the weight is grouped
};

struct NormCall {
  const float* scale;  // [width]
  float eps;
  int64_t width;
  int64_t heads;   // rows are [tokens, heads]
  const float* x;  // strides of tokens and heads
  int64_t x_token, x_head;
  const float* z;  // gate, or null
  int64_t z_token, z_head;
  const float* residual;  // [tokens, width], or null
  int64_t residual_token;
  float* sum;  // [tokens, width]: x + residual
  float* out;  // [tokens, heads, width]
};

struct SiluCall {
  int64_t width;
  const float* gate_up;
  int64_t stride;
  float* out;
};

struct RotaryCall {
  const float* frequencies;  // [half]
  int64_t half, heads, head_dim;
  float factor;
  const int32_t* positions;
  const float* x;
  int64_t x_token, x_head;
  float* out;  // [tokens, heads, head_dim]
};

struct Sequences {
  const int32_t* cu_seqlens;   // [num_seqs + 1]
  const int32_t* load_slots;   // [num_seqs]
  const int32_t* store_slots;  // [tokens]
  int64_t num_seqs;
};

struct ConvCall {
  const float* weight;  // [taps, channels]
  int64_t taps, channels;
  Sequences seqs;
  const float* x;
  int64_t x_stride;
  float* pool;  // [slots, taps - 1, channels]
  float* out;   // [tokens, channels]
};

struct GatesCall {
  const float* rate;     // [heads]: -exp(A_log)
  const float* dt_bias;  // [heads]
  int64_t heads;
  const float* a;
  const float* b;
  int64_t a_stride, b_stride;
  float* g;
  float* beta;
};

struct DeltaCall {
  int64_t num_k_heads, num_v_heads, k_dim, v_dim;
  float scale;
  Sequences seqs;
  const float* q;
  const float* k;
  const float* v;
  int64_t q_token, q_head, k_token, k_head, v_token, v_head;
  const float* g;  // [tokens, num_v_heads]
  const float* beta;
  float* pool;  // [slots, num_v_heads, k_dim, v_dim]
  float* out;   // [tokens, num_v_heads, v_dim]
};

struct AttentionCall {
  int64_t num_heads, num_kv_heads, head_dim, block_size;
  float scale;
  bool bf16_cache;
  const float* q;
  int64_t q_token, q_head;
  const float* gate;  // or null
  int64_t gate_token, gate_head;
  const void* k_cache;  // [rows, num_kv_heads, head_dim]
  const void* v_cache;
  const int32_t* block_table;
  int64_t table_stride;
  const int32_t* positions;
  float* out;  // [tokens, num_heads, head_dim]
};

// Neighbouring tokens of one sequence with one key head: their queries, token by token.
struct AttentionItem {
  int32_t sequence, token, num_tokens, kv_head;
};

// A partial softmax over one tile, for each query of an item.
struct Partial {
  float* max;  // [queries]
  float* sum;  // [queries]
  float* acc;  // [queries, padded head_dim]
};

struct RouterCall {
  int64_t num_experts, top_k;
  bool normalise;
  const float* logits;  // [rows, num_experts]
  int32_t* experts;     // [rows, top_k], ascending
  float* weights;       // [rows, top_k]
};

struct CombineCall {
  int64_t width, top_k;
  const float* y;         // rows of width
  const int32_t* places;  // [rows, top_k]: which row of y
  const float* weights;   // [rows, top_k]
  const float* shared;    // [rows, width] or null
  const float* gate;      // [rows]: before the sigmoid
  float* out;
};

// Of a row: the largest value that is a number, where it is first, and whether all are numbers.
struct Largest {
  float value;
  int64_t place;
  bool has_nan;
};

struct Kernels {
  const char* name;
  void (*quantise)(const QuantiseCall&, int64_t row);
  void (*linear)(const LinearCall&, int64_t first_panel, int64_t last_panel);
  void (*norm)(const NormCall&, int64_t first_row, int64_t last_row);
  void (*silu)(const SiluCall&, int64_t row, int64_t begin, int64_t end);
  void (*rotary)(const RotaryCall&, int64_t token);
  void (*conv)(const ConvCall&, int64_t sequence, int64_t first, int64_t last);
  void (*gates)(const GatesCall&, int64_t token);
  void (*delta)(const DeltaCall&, int64_t sequence, int64_t head);
  void (*attention_all)(const AttentionCall&, const AttentionItem&);
  void (*attention_tile)(const AttentionCall&, const AttentionItem&, int64_t tile, Partial);
  void (*attention_merge)(const AttentionCall&, const AttentionItem&, const Partial*,
                          int64_t num_tiles);
  void (*route)(const RouterCall&, int64_t row);
  void (*combine)(const CombineCall&, int64_t row);
  void (*exp)(const float* x, float* y, int64_t n);
  Largest (*largest)(const float* x, int64_t n);
  uint32_t (*read)(const uint8_t* data, int64_t bytes);
};

namespace portable {
extern const Kernels kKernels;
}
#if defined(__x86_64__)
namespace avx2 {
extern const Kernels kKernels;
}
namespace avx512 {
extern const Kernels kKernels;
}
namespace amx {
extern const Kernels kKernels;
}
#endif

}  // namespace thalweg
