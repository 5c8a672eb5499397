// What Python binds: a problem with its weights and constants, called with the addresses that
// change from pass to pass. All strides count elements; tensors are float32 unless said.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "level.h"
#include "packing.h"

namespace thalweg {

using Address = uintptr_t;

// The levels this machine can run, best first, and the one that new objects use.
std::vector<std::string> levels();
std::string level();
void set_level(const std::string& name);
const Kernels& current_kernels();

// Reads memory on all threads and does nothing with it: what products are measured against.
uint32_t read_memory(Address data, int64_t bytes);

class Linear {
 public:
  Linear(std::shared_ptr<Packed> weight, Address bias);
  int64_t num_in() const { return weight_->k(); }
  int64_t num_out() const { return weight_->n(); }
  void run(Address x, int64_t x_stride, int64_t rows, Address out, int64_t out_stride) const;

 private:
  const Kernels* kernels_;
  std::shared_ptr<Packed> weight_;
  std::vector<float> bias_;
};

class Embedding {
 public:
  explicit Embedding(std::shared_ptr<Packed> weight) : weight_(std::move(weight)) {}
  void run(Address ids, int64_t rows, Address out) const;

 private:
  std::shared_ptr<Packed> weight_;
};

class Norm {
 public:
  Norm(Address scale, int64_t width, float eps);
  int64_t width() const { return static_cast<int64_t>(scale_.size()); }
  void run(Address x, int64_t x_token, int64_t x_head, int64_t tokens, int64_t heads,
           Address out) const;
  void run_add(Address hidden, int64_t hidden_token, Address residual, int64_t residual_token,
               int64_t tokens, Address sum, Address out) const;
  void run_gated(Address x, int64_t x_token, int64_t x_head, Address z, int64_t z_token,
                 int64_t z_head, int64_t tokens, int64_t heads, Address out) const;

 private:
  void run_all(NormCall& call, int64_t tokens) const;

  const Kernels* kernels_;
  std::vector<float> scale_;
  float eps_;
};

class SiluAndMul {
 public:
  explicit SiluAndMul(int64_t width) : kernels_(&current_kernels()), width_(width) {}
  void run(Address gate_up, int64_t stride, int64_t rows, Address out) const;

 private:
  const Kernels* kernels_;
  int64_t width_;
};

// What follows the mixer in a layer.
class FeedForward {
 public:
  virtual ~FeedForward() = default;
  virtual void run(Address x, int64_t x_stride, int64_t rows, Address out) const = 0;
};

// down(silu(gate(x)) * up(x)); gate_up holds both, gate first.
class MLP : public FeedForward {
 public:
  MLP(std::shared_ptr<Packed> gate_up, std::shared_ptr<Packed> down);
  void run(Address x, int64_t x_stride, int64_t rows, Address out) const override;

 private:
  const Kernels* kernels_;
  std::shared_ptr<Packed> gate_up_, down_;
};

class Rotary {
 public:
  Rotary(Address frequencies, int64_t half, float factor);
  void run(Address x, int64_t x_token, int64_t x_head, int64_t tokens, int64_t heads,
           int64_t head_dim, Address positions, Address out) const;

 private:
  const Kernels* kernels_;
  std::vector<float> frequencies_;
  float factor_;
};

class Conv {
 public:
  Conv(Address weight, int64_t taps, int64_t channels);
  void run(Address x, int64_t x_stride, int64_t tokens, Address cu_seqlens, Address load_slots,
           Address store_slots, int64_t num_seqs, Address pool, Address out) const;

 private:
  const Kernels* kernels_;
  std::vector<float> weight_;
  int64_t taps_, channels_;
};

class Gates {
 public:
  Gates(Address A_log, Address dt_bias, int64_t heads);
  void run(Address a, int64_t a_stride, Address b, int64_t b_stride, int64_t tokens, Address g,
           Address beta) const;

 private:
  const Kernels* kernels_;
  std::vector<float> rate_, dt_bias_;
};

class Delta {
 public:
  Delta(int64_t num_k_heads, int64_t num_v_heads, int64_t k_dim, int64_t v_dim, float scale);
  const DeltaCall& shape() const { return call_; }
  void run(Address q, int64_t q_token, int64_t q_head, Address k, int64_t k_token, int64_t k_head,
           Address v, int64_t v_token, int64_t v_head, Address g, Address beta, Address cu_seqlens,
           Address load_slots, Address store_slots, int64_t num_seqs, Address pool,
           Address out) const;

 private:
  const Kernels* kernels_;
  DeltaCall call_;
};

class Attention {
 public:
  Attention(int64_t num_heads, int64_t num_kv_heads, int64_t head_dim, int64_t block_size,
            float scale);
  const AttentionCall& shape() const { return call_; }
  // Writes k and v [tokens, num_kv_heads, head_dim] where slot_mapping says.
  void write(Address k, int64_t k_token, int64_t k_head, Address v, int64_t v_token, int64_t v_head,
             Address slot_mapping, int64_t tokens, Address k_cache, Address v_cache,
             bool bf16_cache) const;
  void run(Address q, int64_t q_token, int64_t q_head, Address gate, int64_t gate_token,
           int64_t gate_head, Address k_cache, Address v_cache, bool bf16_cache, Address cu_seqlens,
           Address seq_lens, Address positions, int64_t num_seqs, Address block_table,
           int64_t table_stride, Address out) const;

 private:
  void run_tiles(const AttentionCall& call, const std::vector<AttentionItem>& items) const;

  const Kernels* kernels_;
  AttentionCall call_;
};

class MoE : public FeedForward {
 public:
  MoE(std::shared_ptr<Packed> router, std::vector<std::shared_ptr<Packed>> gate_up,
      std::vector<std::shared_ptr<Packed>> down, int64_t top_k, bool normalise);
  void add_shared(std::shared_ptr<Packed> gate_up, std::shared_ptr<Packed> down,
                  std::shared_ptr<Packed> gate);
  void run(Address x, int64_t x_stride, int64_t rows, Address out) const override;

 private:
  const Kernels* kernels_;
  std::shared_ptr<Packed> router_;
  std::vector<std::shared_ptr<Packed>> gate_up_, down_;
  std::shared_ptr<Packed> shared_gate_up_, shared_down_, shared_gate_;
  int64_t top_k_;
  bool normalise_;
};

class Sampler {
 public:
  explicit Sampler(int64_t vocab_size) : kernels_(&current_kernels()), vocab_size_(vocab_size) {}
  // One token for each row of logits, `stride` apart.
  std::vector<int64_t> run(Address logits, int64_t stride, const std::vector<double>& temperature,
                           const std::vector<int64_t>& top_k, const std::vector<float>& top_p,
                           const std::vector<float>& min_p, const std::vector<uint64_t>& key) const;
  // Of each row; NaN if there is one.
  std::vector<float> run_largest(Address logits, int64_t stride, int64_t rows) const;
  void run_logprobs(Address logits, int64_t stride, int64_t rows, Address out) const;

 private:
  const Kernels* kernels_;
  int64_t vocab_size_;
};

}  // namespace thalweg
