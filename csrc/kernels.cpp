#include "kernels.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "addresses.h"
#include "sampling.h"
#include "threads.h"

namespace thalweg {

Norm::Norm(Address scale, int64_t width, float eps)
    : kernels_(&current_kernels()), scale_(copy_of(scale, width)), eps_(eps) {}

void Norm::run_all(NormCall& call, int64_t tokens) const {
  call.scale = scale_.data();
  call.eps = eps_;
  call.width = static_cast<int64_t>(scale_.size());
  Split pieces = split(tokens * call.heads, call.width / 4 + 10);
  parallel(pieces.num_pieces(),
           [&](int64_t piece) { kernels_->norm(call, pieces.begin(piece), pieces.end(piece)); });
}

void Norm::run(Address x, int64_t x_token, int64_t x_head, int64_t tokens, int64_t heads,
               Address out) const {
  NormCall call{};
  call.heads = heads;
  call.x = floats(x), call.x_token = x_token, call.x_head = x_head;
  call.out = mutable_floats(out);
  run_all(call, tokens);
}

void Norm::run_add(Address hidden, int64_t hidden_token, Address residual, int64_t residual_token,
                   int64_t tokens, Address sum, Address out) const {
  NormCall call{};
  call.heads = 1;
  call.x = floats(hidden), call.x_token = hidden_token;
  call.residual = floats(residual), call.residual_token = residual_token;
  call.sum = mutable_floats(sum);
  call.out = mutable_floats(out);
  run_all(call, tokens);
}

void Norm::run_gated(Address x, int64_t x_token, int64_t x_head, Address z, int64_t z_token,
                     int64_t z_head, int64_t tokens, int64_t heads, Address out) const {
  NormCall call{};
  call.heads = heads;
  call.x = floats(x), call.x_token = x_token, call.x_head = x_head;
  call.z = floats(z), call.z_token = z_token, call.z_head = z_head;
  call.out = mutable_floats(out);
  run_all(call, tokens);
}

Rotary::Rotary(Address frequencies, int64_t half, float factor)
    : kernels_(&current_kernels()), frequencies_(copy_of(frequencies, half)), factor_(factor) {}

void Rotary::run(Address x, int64_t x_token, int64_t x_head, int64_t tokens, int64_t heads,
                 int64_t head_dim, Address positions, Address out) const {
  RotaryCall call{frequencies_.data(),
                  static_cast<int64_t>(frequencies_.size()),
                  heads,
                  head_dim,
                  factor_,
                  ints(positions),
                  floats(x),
                  x_token,
                  x_head,
                  mutable_floats(out)};
  Split pieces = split(tokens, call.half * 20 + heads * head_dim / 4);
  parallel(pieces.num_pieces(), [&](int64_t piece) {
    for (int64_t t = pieces.begin(piece); t < pieces.end(piece); ++t) kernels_->rotary(call, t);
  });
}

Conv::Conv(Address weight, int64_t taps, int64_t channels)
    : kernels_(&current_kernels()),
      weight_(copy_of(weight, taps * channels)),
      taps_(taps),
      channels_(channels) {}

void Conv::run(Address x, int64_t x_stride, int64_t tokens, Address cu_seqlens, Address load_slots,
               Address store_slots, int64_t num_seqs, Address pool, Address out) const {
  if (tokens == 0) return;
  ConvCall call{weight_.data(),
                taps_,
                channels_,
                {ints(cu_seqlens), ints(load_slots), ints(store_slots), num_seqs},
                floats(x),
                x_stride,
                mutable_floats(pool),
                mutable_floats(out)};
  int64_t chunks = ceil_div(channels_, kConvChannels);
  Split pieces = split(num_seqs * chunks, tokens / num_seqs * kConvChannels / 2 + 200);
  parallel(pieces.num_pieces(), [&](int64_t piece) {
    for (int64_t i = pieces.begin(piece); i < pieces.end(piece); ++i) {
      int64_t first = i % chunks * kConvChannels;
      kernels_->conv(call, i / chunks, first, std::min(first + kConvChannels, channels_));
    }
  });
}

Gates::Gates(Address A_log, Address dt_bias, int64_t heads)
    : kernels_(&current_kernels()), rate_(heads), dt_bias_(copy_of(dt_bias, heads)) {
  kernels_->exp(floats(A_log), rate_.data(), heads);
  for (float& rate : rate_) rate = -rate;
}

void Gates::run(Address a, int64_t a_stride, Address b, int64_t b_stride, int64_t tokens, Address g,
                Address beta) const {
  GatesCall call{rate_.data(), dt_bias_.data(),   static_cast<int64_t>(rate_.size()),
                 floats(a),    floats(b),         a_stride,
                 b_stride,     mutable_floats(g), mutable_floats(beta)};
  Split pieces = split(tokens, call.heads * 8);
  parallel(pieces.num_pieces(), [&](int64_t piece) {
    for (int64_t t = pieces.begin(piece); t < pieces.end(piece); ++t) kernels_->gates(call, t);
  });
}

Delta::Delta(int64_t num_k_heads, int64_t num_v_heads, int64_t k_dim, int64_t v_dim, float scale)
    : kernels_(&current_kernels()), call_{} {
  call_.num_k_heads = num_k_heads, call_.num_v_heads = num_v_heads;
  call_.k_dim = k_dim, call_.v_dim = v_dim, call_.scale = scale;
}

void Delta::run(Address q, int64_t q_token, int64_t q_head, Address k, int64_t k_token,
                int64_t k_head, Address v, int64_t v_token, int64_t v_head, Address g, Address beta,
                Address cu_seqlens, Address load_slots, Address store_slots, int64_t num_seqs,
                Address pool, Address out) const {
  DeltaCall call = call_;
  call.seqs = {ints(cu_seqlens), ints(load_slots), ints(store_slots), num_seqs};
  call.q = floats(q), call.q_token = q_token, call.q_head = q_head;
  call.k = floats(k), call.k_token = k_token, call.k_head = k_head;
  call.v = floats(v), call.v_token = v_token, call.v_head = v_head;
  call.g = floats(g), call.beta = floats(beta);
  call.pool = mutable_floats(pool), call.out = mutable_floats(out);
  int64_t tasks = num_seqs * call.num_v_heads;
  // Long sequences first would balance better; heads of one sequence cost the same.
  Split pieces = tasks ? split(tasks, call.k_dim * call.v_dim / 3) : Split{0, 1};
  parallel(pieces.num_pieces(), [&](int64_t piece) {
    for (int64_t i = pieces.begin(piece); i < pieces.end(piece); ++i) {
      kernels_->delta(call, i / call.num_v_heads, i % call.num_v_heads);
    }
  });
}

Attention::Attention(int64_t num_heads, int64_t num_kv_heads, int64_t head_dim, int64_t block_size,
                     float scale)
    : kernels_(&current_kernels()), call_{} {
  call_.num_heads = num_heads, call_.num_kv_heads = num_kv_heads;
  call_.head_dim = head_dim, call_.block_size = block_size, call_.scale = scale;
}

void Attention::write(Address k, int64_t k_token, int64_t k_head, Address v, int64_t v_token,
                      int64_t v_head, Address slot_mapping, int64_t tokens, Address k_cache,
                      Address v_cache, bool bf16_cache) const {
  int64_t heads = call_.num_kv_heads, dim = call_.head_dim;
  const int64_t* rows = reinterpret_cast<const int64_t*>(slot_mapping);
  auto put = [&](Address from, int64_t offset, Address cache, int64_t row) {
    const float* x = floats(from) + offset;
    if (bf16_cache) {
      uint16_t* out = reinterpret_cast<uint16_t*>(cache) + row * dim;
      for (int64_t d = 0; d < dim; ++d) out[d] = float_to_bf16(x[d]);
    } else {
      std::memcpy(mutable_floats(cache) + row * dim, x, dim * sizeof(float));
    }
  };
  Split pieces = split(tokens, heads * dim / 4);
  parallel(pieces.num_pieces(), [&](int64_t piece) {
    for (int64_t t = pieces.begin(piece); t < pieces.end(piece); ++t) {
      if (rows[t] == kSkip) continue;
      for (int64_t h = 0; h < heads; ++h) {
        put(k, t * k_token + h * k_head, k_cache, rows[t] * heads + h);
        put(v, t * v_token + h * v_head, v_cache, rows[t] * heads + h);
      }
    }
  });
}

void Attention::run(Address q, int64_t q_token, int64_t q_head, Address gate, int64_t gate_token,
                    int64_t gate_head, Address k_cache, Address v_cache, bool bf16_cache,
                    Address cu_seqlens, Address seq_lens, Address positions, int64_t num_seqs,
                    Address block_table, int64_t table_stride, Address out) const {
  AttentionCall call = call_;
  call.bf16_cache = bf16_cache;
  call.q = floats(q), call.q_token = q_token, call.q_head = q_head;
  call.gate = gate ? floats(gate) : nullptr;
  call.gate_token = gate_token, call.gate_head = gate_head;
  call.k_cache = reinterpret_cast<const void*>(k_cache);
  call.v_cache = reinterpret_cast<const void*>(v_cache);
  call.block_table = ints(block_table), call.table_stride = table_stride;
  call.positions = ints(positions), call.out = mutable_floats(out);

  std::vector<AttentionItem> items;
  int32_t size = static_cast<int32_t>(
      std::max<int64_t>(1, kMaxQueries / (call.num_heads / call.num_kv_heads)));
  int64_t longest = 0;
  for (int32_t i = 0; i < num_seqs; ++i) {
    int32_t bos = ints(cu_seqlens)[i], eos = ints(cu_seqlens)[i + 1];
    if (ints(seq_lens)[i] == 0) {  // padding
      int64_t row = call.num_heads * call.head_dim;
      std::fill(call.out + bos * row, call.out + eos * row, 0.0f);
      continue;
    }
    longest = std::max<int64_t>(longest, ints(seq_lens)[i]);
    for (int32_t t = bos; t < eos; t += size) {
      for (int32_t h = 0; h < call.num_kv_heads; ++h) {
        items.push_back({i, t, std::min(size, eos - t), h});
      }
    }
  }
  int64_t count = static_cast<int64_t>(items.size());
  if (count < 4 * num_threads() && longest > 2 * kTile) return run_tiles(call, items);
  // From the end: later tokens of a prompt have more context, and go first.
  int64_t cost = longest * call.head_dim / 2 + 1000;
  Split pieces = count ? split(count, cost) : Split{0, 1};
  parallel(pieces.num_pieces(), [&](int64_t piece) {
    for (int64_t i = pieces.begin(piece); i < pieces.end(piece); ++i) {
      kernels_->attention_all(call, items[count - 1 - i]);
    }
  });
}

void Attention::run_tiles(const AttentionCall& call,
                          const std::vector<AttentionItem>& items) const {
  struct Place {
    int64_t item, tile;
  };
  std::vector<Place> places;
  std::vector<int64_t> first;
  for (size_t i = 0; i < items.size(); ++i) {
    first.push_back(static_cast<int64_t>(places.size()));
    int64_t last = call.positions[items[i].token + items[i].num_tokens - 1] / kTile;
    for (int64_t tile = 0; tile <= last; ++tile) {
      places.push_back({static_cast<int64_t>(i), tile});
    }
  }
  first.push_back(static_cast<int64_t>(places.size()));
  int64_t padded = (call.head_dim + 15) / 16 * 16, each = kMaxQueries * (padded + 2);
  std::unique_ptr<float[]> memory(new float[places.size() * each]);
  std::vector<Partial> partials;
  for (size_t i = 0; i < places.size(); ++i) {
    float* p = memory.get() + i * each;
    partials.push_back({p, p + kMaxQueries, p + 2 * kMaxQueries});
  }
  parallel(static_cast<int64_t>(places.size()), [&](int64_t i) {
    kernels_->attention_tile(call, items[places[i].item], places[i].tile, partials[i]);
  });
  Split pieces = split(static_cast<int64_t>(items.size()), 2000);
  parallel(pieces.num_pieces(), [&](int64_t piece) {
    for (int64_t i = pieces.begin(piece); i < pieces.end(piece); ++i) {
      kernels_->attention_merge(call, items[i], partials.data() + first[i],
                                first[i + 1] - first[i]);
    }
  });
}

std::vector<int64_t> Sampler::run(Address logits, int64_t stride,
                                  const std::vector<double>& temperature,
                                  const std::vector<int64_t>& top_k,
                                  const std::vector<float>& top_p, const std::vector<float>& min_p,
                                  const std::vector<uint64_t>& key) const {
  std::vector<int64_t> tokens(key.size());
  parallel(static_cast<int64_t>(key.size()), [&](int64_t i) {
    Draw draw{temperature[i], top_k[i], top_p[i], min_p[i], key[i]};
    tokens[i] = sample(*kernels_, floats(logits) + i * stride, vocab_size_, draw);
  });
  return tokens;
}

std::vector<float> Sampler::run_largest(Address logits, int64_t stride, int64_t rows) const {
  std::vector<float> values(rows);
  parallel(rows, [&](int64_t i) {
    Largest found = kernels_->largest(floats(logits) + i * stride, vocab_size_);
    values[i] = found.has_nan ? NAN : found.value;
  });
  return values;
}

void Sampler::run_logprobs(Address logits, int64_t stride, int64_t rows, Address out) const {
  parallel(rows, [&](int64_t i) {
    log_softmax(*kernels_, floats(logits) + i * stride, vocab_size_,
                mutable_floats(out) + i * vocab_size_);
  });
}

}  // namespace thalweg
