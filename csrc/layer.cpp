#include "layer.h"

#include <cstring>
#include <stdexcept>

#include "addresses.h"
#include "room.h"

namespace thalweg {
namespace {

// Vectors of heads inside rows of floats.
struct Heads {
  Address data;
  int64_t token, head;  // strides

  Heads from(int64_t offset) const { return {data + offset * sizeof(float), token, head}; }
};

// Rows of floats, all of one width.
struct Rows {
  Address data;
  int64_t stride;

  float* at(int64_t row) const { return mutable_floats(data) + row * stride; }
};

void copy_rows(const Rows& from, const int64_t* from_at, const Rows& to, const int64_t* to_at,
               int64_t count, int64_t width) {
  for (int64_t i = 0; i < count; ++i) {
    int64_t source = from_at ? from_at[i] : i, target = to_at ? to_at[i] : i;
    std::memmove(to.at(target), from.at(source), width * sizeof(float));
  }
}

}  // namespace

GatedDeltaNetMixer::GatedDeltaNetMixer(std::shared_ptr<Linear> in_proj,
                                       std::shared_ptr<Gates> gates, std::shared_ptr<Conv> conv,
                                       std::shared_ptr<Delta> delta, std::shared_ptr<Norm> norm,
                                       std::shared_ptr<Linear> out_proj)
    : in_proj_(std::move(in_proj)),
      out_proj_(std::move(out_proj)),
      gates_(std::move(gates)),
      conv_(std::move(conv)),
      delta_(std::move(delta)),
      norm_(std::move(norm)) {}

void GatedDeltaNetMixer::run(const Pass& pass, const Pools& pools, Address x, Address out) const {
  const DeltaCall& d = delta_->shape();
  const Replay& replay = pass.replay;
  int64_t heads = d.num_v_heads, keys = d.num_k_heads * d.k_dim, values = heads * d.v_dim;
  int64_t mixed = 2 * keys + values, inputs = mixed + 2 * heads;  // q, k, v; and b, a
  int64_t width = in_proj_->num_out();                            // z, then the state's inputs
  int64_t num_new = pass.tokens, num_pending = replay.num_pending, n = num_pending + num_new;

  Room projected(num_new * width), joined(num_pending ? n * inputs : 0);
  in_proj_->run(x, in_proj_->num_in(), num_new, projected.at(), width);
  Rows fresh{projected.at(values), width}, log{pools.log, inputs}, rows = fresh;
  if (num_pending) {
    rows = {joined.at(), inputs};
    copy_rows(log, longs(replay.pending), rows, longs(replay.pending_at), num_pending, inputs);
    copy_rows(fresh, nullptr, rows, longs(replay.new_at), num_new, inputs);
  }
  copy_rows(fresh, longs(replay.logged), log, longs(replay.logged_at), replay.num_logged, inputs);

  Room convolved(n * mixed), rates(2 * n * heads), o(n * values), normed(num_new * values);
  Heads b = Heads{rows.data, rows.stride, 1}.from(mixed), a = b.from(heads);
  Address g = rates.at(), beta = rates.at(n * heads);
  gates_->run(a.data, a.token, b.data, b.token, n, g, beta);
  conv_->run(rows.data, rows.stride, n, replay.cu_seqlens, pass.load_slots, replay.store_slots,
             pass.num_seqs, pools.first, convolved.at());
  delta_->run(convolved.at(), mixed, d.k_dim, convolved.at(keys), mixed, d.k_dim,
              convolved.at(2 * keys), mixed, d.v_dim, g, beta, replay.cu_seqlens, pass.load_slots,
              replay.store_slots, pass.num_seqs, pools.second, o.at());
  Rows read{o.at(), values};
  if (num_pending) copy_rows(read, longs(replay.new_at), read, nullptr, num_new, values);
  norm_->run_gated(o.at(), values, d.v_dim, projected.at(), width, d.v_dim, num_new, heads,
                   normed.at());
  out_proj_->run(normed.at(), values, num_new, out, out_proj_->num_out());
}

AttentionMixer::AttentionMixer(std::shared_ptr<Linear> qkv_proj, std::shared_ptr<Norm> q_norm,
                               std::shared_ptr<Norm> k_norm, std::shared_ptr<Rotary> rotary,
                               std::shared_ptr<Attention> attention, std::shared_ptr<Linear> o_proj,
                               bool gated)
    : qkv_proj_(std::move(qkv_proj)),
      o_proj_(std::move(o_proj)),
      q_norm_(std::move(q_norm)),
      k_norm_(std::move(k_norm)),
      rotary_(std::move(rotary)),
      attention_(std::move(attention)),
      gated_(gated) {}

void AttentionMixer::run(const Pass& pass, const Pools& pools, Address x, Address out) const {
  const AttentionCall& shape = attention_->shape();
  int64_t n = pass.tokens, dim = shape.head_dim;
  int64_t q_width = shape.num_heads * dim, kv_width = shape.num_kv_heads * dim;
  int64_t q_head = gated_ ? 2 * dim : dim, width = qkv_proj_->num_out();

  Room rows(n * width), o(n * q_width);
  qkv_proj_->run(x, qkv_proj_->num_in(), n, rows.at(), width);
  Heads q{rows.at(), width, q_head}, gate = q.from(dim);
  Heads k{rows.at(width - 2 * kv_width), width, dim}, v = k.from(kv_width);
  Room normed(q_norm_ ? n * (q_width + kv_width) : 0), turned(n * (q_width + kv_width));
  if (q_norm_) {
    q_norm_->run(q.data, q.token, q.head, n, shape.num_heads, normed.at());
    k_norm_->run(k.data, k.token, k.head, n, shape.num_kv_heads, normed.at(n * q_width));
    q = {normed.at(), q_width, dim}, k = {normed.at(n * q_width), kv_width, dim};
  }
  Address positions = pass.rope_positions;
  rotary_->run(q.data, q.token, q.head, n, shape.num_heads, dim, positions, turned.at());
  rotary_->run(k.data, k.token, k.head, n, shape.num_kv_heads, dim, positions,
               turned.at(n * q_width));
  attention_->write(turned.at(n * q_width), kv_width, dim, v.data, v.token, v.head,
                    pass.slot_mapping, n, pools.first, pools.second, pools.bf16);
  attention_->run(turned.at(), q_width, dim, gated_ ? gate.data : 0, gate.token, gate.head,
                  pools.first, pools.second, pools.bf16, pass.cu_seqlens, pass.seq_lens,
                  pass.positions, pass.num_seqs, pass.block_table, pass.table_stride, o.at());
  o_proj_->run(o.at(), q_width, n, out, o_proj_->num_out());
}

Layer::Layer(std::shared_ptr<Norm> input_norm, std::shared_ptr<Mixer> mixer,
             std::shared_ptr<Norm> post_norm, std::shared_ptr<FeedForward> mlp)
    : input_norm_(std::move(input_norm)),
      post_norm_(std::move(post_norm)),
      mixer_(std::move(mixer)),
      mlp_(std::move(mlp)) {}

void Layer::run(const Pass& pass, const Pools& pools, Address hidden, Address residual,
                Address out, Address sum) const {
  int64_t n = pass.tokens;
  Room between(n * width()), normed(n * width()), mixed(n * width());
  input_norm_->run_add(hidden, width(), residual, width(), n, between.at(), normed.at());
  mixer_->run(pass, pools, normed.at(), mixed.at());
  post_norm_->run_add(mixed.at(), width(), between.at(), width(), n, sum, normed.at());
  mlp_->run(normed.at(), width(), n, out);
}

void Layers::run(const Pass& pass, const std::vector<Pools>& pools, Address hidden,
                 Address residual, Address out, Address sum) const {
  if (pools.size() != layers_.size()) throw std::invalid_argument("pools of other layers");
  int64_t size = pass.tokens * layers_[0]->width();
  Room between[2] = {Room(2 * size), Room(2 * size)};
  for (size_t i = 0; i < layers_.size(); ++i) {
    bool last = i + 1 == layers_.size();
    Address next = last ? out : between[i % 2].at();
    Address next_sum = last ? sum : between[i % 2].at(size);
    layers_[i]->run(pass, pools[i], hidden, residual, next, next_sum);
    hidden = next, residual = next_sum;
  }
}

}  // namespace thalweg
