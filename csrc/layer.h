// One layer as one call: the objects that Python has bound, run one after the other with the room
// between them kept here. No arithmetic of its own, so the bits are those of single calls.
#pragma once

#include "kernels.h"

namespace thalweg {

// A `ReplayIndex`: P logged tokens are read, D new ones are logged; recurrent layers run N = P + T.
struct Replay {
  int64_t num_pending, num_logged;
  Address pending, pending_at, new_at, logged, logged_at;
  Address cu_seqlens, store_slots;
};

// The tensors of a `ForwardBatch`, handed over once a pass.
struct Pass {
  int64_t tokens, num_seqs;
  Address cu_seqlens, seq_lens, positions, rope_positions;
  Address block_table;
  int64_t table_stride;
  Address slot_mapping, load_slots, store_slots;
  Replay replay;
};

// Pools of a layer: k and v, or conv, ssm and the log of what is replayed.
struct Pools {
  Address first, second;
  bool bf16;
  Address log;
};

class Mixer {
 public:
  virtual ~Mixer() = default;
  // x, out: [tokens, hidden_size]
  virtual void run(const Pass& pass, const Pools& pools, Address x, Address out) const = 0;
};

class GatedDeltaNetMixer : public Mixer {
 public:
  GatedDeltaNetMixer(std::shared_ptr<Linear> in_proj, std::shared_ptr<Gates> gates,
                     std::shared_ptr<Conv> conv, std::shared_ptr<Delta> delta,
                     std::shared_ptr<Norm> norm, std::shared_ptr<Linear> out_proj);
  void run(const Pass& pass, const Pools& pools, Address x, Address out) const override;

 private:
  std::shared_ptr<Linear> in_proj_, out_proj_;
  std::shared_ptr<Gates> gates_;
  std::shared_ptr<Conv> conv_;
  std::shared_ptr<Delta> delta_;
  std::shared_ptr<Norm> norm_;
};

class AttentionMixer : public Mixer {
 public:
  // Without q and k norms these are null. `gated`: each head of q is followed by its gate.
  AttentionMixer(std::shared_ptr<Linear> qkv_proj, std::shared_ptr<Norm> q_norm,
                 std::shared_ptr<Norm> k_norm, std::shared_ptr<Rotary> rotary,
                 std::shared_ptr<Attention> attention, std::shared_ptr<Linear> o_proj, bool gated);
  void run(const Pass& pass, const Pools& pools, Address x, Address out) const override;

 private:
  std::shared_ptr<Linear> qkv_proj_, o_proj_;
  std::shared_ptr<Norm> q_norm_, k_norm_;
  std::shared_ptr<Rotary> rotary_;
  std::shared_ptr<Attention> attention_;
  bool gated_;
};

// add-norm, mixer, add-norm, MLP
class Layer {
 public:
  Layer(std::shared_ptr<Norm> input_norm, std::shared_ptr<Mixer> mixer,
        std::shared_ptr<Norm> post_norm, std::shared_ptr<FeedForward> mlp);
  int64_t width() const { return input_norm_->width(); }
  // hidden, residual -> out, sum: [tokens, width] each
  void run(const Pass& pass, const Pools& pools, Address hidden, Address residual, Address out,
           Address sum) const;

 private:
  std::shared_ptr<Norm> input_norm_, post_norm_;
  std::shared_ptr<Mixer> mixer_;
  std::shared_ptr<FeedForward> mlp_;
};

// Several of them, one after the other.
class Layers {
 public:
  explicit Layers(std::vector<std::shared_ptr<Layer>> layers) : layers_(std::move(layers)) {}
  // Each layer's pools; for the rest see `Layer`.
  void run(const Pass& pass, const std::vector<Pools>& pools, Address hidden, Address residual,
           Address out, Address sum) const;

 private:
  std::vector<std::shared_ptr<Layer>> layers_;
};

}  // namespace thalweg
