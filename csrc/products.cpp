// Products with packed matrices, and what is made of several of them.
#include <algorithm>
#include <numeric>

#include "addresses.h"
#include "room.h"
#include "threads.h"

namespace thalweg {
namespace {

// One piece's cost in ns, roughly: few rows read memory, many rows multiply.
int64_t panel_cost(const PackedView& w, int64_t rows) {
  return std::max(w.panel_bytes / 12, rows * w.k * kPanel / 32);
}

bool is_grouped(const Packed& weight) {
  return std::any_of(weight.sections().begin(), weight.sections().end(),
                     [](const PackedView& section) { return !is_plain(section.format); });
}

// Rows of k activations as grouped weights meet them.
class Quantised {
 public:
  Quantised() = default;
  Quantised(const Kernels& kernels, const float* x, int64_t x_stride, int64_t rows, int64_t k) {
    memory_.reset(new int32_t[rows * k / 4 + rows * k / kGroup + rows * k / 16]);
    rows_.sum = memory_.get();
    rows_.scale = reinterpret_cast<float*>(rows_.sum + rows * k / 16);
    rows_.codes = reinterpret_cast<int8_t*>(rows_.scale + rows * k / kGroup);
    QuantiseCall call{x, x_stride, k, rows_};
    Split pieces = split(rows, k / 4);
    parallel(pieces.num_pieces(), [&](int64_t piece) {
      for (int64_t i = pieces.begin(piece); i < pieces.end(piece); ++i) kernels.quantise(call, i);
    });
  }
  const QuantisedRows& rows() const { return rows_; }

 private:
  std::unique_ptr<int32_t[]> memory_;
  QuantisedRows rows_{};
};

void run_linear(const Kernels& kernels, const LinearCall& call) {
  if (call.rows == 0) return;
  Split pieces = split(ceil_div(call.weight.n, kPanel), panel_cost(call.weight, call.rows));
  parallel(pieces.num_pieces(),
           [&](int64_t piece) { kernels.linear(call, pieces.begin(piece), pieces.end(piece)); });
}

// The call's weight is set here, section by section.
void run_linear(const Kernels& kernels, const Packed& weight, LinearCall call) {
  Quantised quantised;
  if (is_grouped(weight)) {
    quantised = Quantised(kernels, call.x, call.x_stride, call.rows, weight.k());
    call.quantised = quantised.rows();
  }
  for (const PackedView& section : weight.sections()) {
    call.weight = section;
    run_linear(kernels, call);
    call.out += section.n;
    if (call.bias) call.bias += section.n;
  }
}

void run_silu(const Kernels& kernels, const SiluCall& call, int64_t rows) {
  constexpr int64_t kChunk = 1024;
  int64_t chunks = ceil_div(call.width, kChunk);
  Split pieces = split(rows * chunks, std::min(call.width, kChunk) / 2);
  parallel(pieces.num_pieces(), [&](int64_t piece) {
    for (int64_t i = pieces.begin(piece); i < pieces.end(piece); ++i) {
      int64_t begin = i % chunks * kChunk;
      kernels.silu(call, i / chunks, begin, std::min(begin + kChunk, call.width));
    }
  });
}

// down(silu(gate(x)) * up(x)) into call.out; the call's weight is set here.
void run_mlp(const Kernels& kernels, const Packed& gate_up, const Packed& down, LinearCall call) {
  int64_t width = down.k();
  Room wide(call.rows * 2 * width), active(call.rows * width);
  LinearCall first = call;
  first.out = wide.get(), first.out_stride = 2 * width;
  run_linear(kernels, gate_up, first);
  run_silu(kernels, {width, wide.get(), 2 * width, active.get()}, call.rows);
  call.x = active.get(), call.x_stride = width;
  run_linear(kernels, down, call);
}

}  // namespace

Linear::Linear(std::shared_ptr<Packed> weight, Address bias)
    : kernels_(&current_kernels()),
      weight_(std::move(weight)),
      bias_(copy_of(bias, weight_->n())) {}

void Linear::run(Address x, int64_t x_stride, int64_t rows, Address out, int64_t out_stride) const {
  run_linear(*kernels_, *weight_,
             {{}, bias_.empty() ? nullptr : bias_.data(), floats(x), x_stride, nullptr, rows,
              mutable_floats(out), out_stride});
}

void Embedding::run(Address ids, int64_t rows, Address out) const {
  int64_t width = weight_->k();
  Split pieces = split(rows, width * 8);
  parallel(pieces.num_pieces(), [&](int64_t piece) {
    for (int64_t i = pieces.begin(piece); i < pieces.end(piece); ++i) {
      weight_->row(ints(ids)[i], mutable_floats(out) + i * width);
    }
  });
}

void SiluAndMul::run(Address gate_up, int64_t stride, int64_t rows, Address out) const {
  run_silu(*kernels_, {width_, floats(gate_up), stride, mutable_floats(out)}, rows);
}

MLP::MLP(std::shared_ptr<Packed> gate_up, std::shared_ptr<Packed> down)
    : kernels_(&current_kernels()), gate_up_(std::move(gate_up)), down_(std::move(down)) {}

void MLP::run(Address x, int64_t x_stride, int64_t rows, Address out) const {
  run_mlp(*kernels_, *gate_up_, *down_,
          {{}, nullptr, floats(x), x_stride, nullptr, rows, mutable_floats(out), down_->n()});
}

MoE::MoE(std::shared_ptr<Packed> router, std::vector<std::shared_ptr<Packed>> gate_up,
         std::vector<std::shared_ptr<Packed>> down, int64_t top_k, bool normalise)
    : kernels_(&current_kernels()),
      router_(std::move(router)),
      gate_up_(std::move(gate_up)),
      down_(std::move(down)),
      top_k_(top_k),
      normalise_(normalise) {}

void MoE::add_shared(std::shared_ptr<Packed> gate_up, std::shared_ptr<Packed> down,
                     std::shared_ptr<Packed> gate) {
  shared_gate_up_ = std::move(gate_up);
  shared_down_ = std::move(down);
  shared_gate_ = std::move(gate);
}

void MoE::run(Address x, int64_t x_stride, int64_t rows, Address out) const {
  if (rows == 0) return;
  int64_t num_experts = static_cast<int64_t>(down_.size()), chosen = rows * top_k_;
  int64_t hidden = down_[0]->n(), width = down_[0]->k();

  Room logits(std::max(chosen, rows * num_experts));
  run_linear(*kernels_, *router_,
             {{}, nullptr, floats(x), x_stride, nullptr, rows, logits.get(), num_experts});
  std::vector<int32_t> experts(chosen), places(chosen), tokens(chosen);
  std::vector<float> weights(chosen);
  RouterCall router{num_experts, top_k_, normalise_, logits.get(), experts.data(), weights.data()};
  Split by_row = split(rows, num_experts * top_k_ * 2);
  parallel(by_row.num_pieces(), [&](int64_t piece) {
    for (int64_t i = by_row.begin(piece); i < by_row.end(piece); ++i) kernels_->route(router, i);
  });

  // Rows sorted by expert: expert e has places [starts[e], starts[e + 1]).
  std::vector<int64_t> starts(num_experts + 1, 0);
  for (int32_t e : experts) ++starts[e + 1];
  for (int64_t e = 0; e < num_experts; ++e) starts[e + 1] += starts[e];
  std::vector<int64_t> next(starts.begin(), starts.end() - 1);
  for (int64_t i = 0; i < chosen; ++i) {
    int64_t place = next[experts[i]]++;
    places[i] = static_cast<int32_t>(place);
    tokens[place] = static_cast<int32_t>(i / top_k_);
  }

  struct Piece {
    LinearCall call;
    int64_t first, last;
  };
  auto run_experts = [&](const std::vector<std::shared_ptr<Packed>>& matrices, const float* from,
                         int64_t from_stride, int64_t num_from, const int32_t* from_rows, float* to) {
    std::vector<Piece> work;
    Quantised quantised;
    if (std::any_of(matrices.begin(), matrices.end(),
                    [](const auto& matrix) { return is_grouped(*matrix); })) {
      quantised = Quantised(*kernels_, from, from_stride, num_from, matrices[0]->k());
    }
    for (int64_t e = 0; e < num_experts; ++e) {
      int64_t n = starts[e + 1] - starts[e];
      if (n == 0) continue;
      LinearCall call{{},
                      nullptr,
                      from,
                      from_stride,
                      from_rows + starts[e],
                      n,
                      to + starts[e] * matrices[e]->n(),
                      matrices[e]->n(),
                      quantised.rows()};
      for (const PackedView& section : matrices[e]->sections()) {
        call.weight = section;
        Split pieces = split(ceil_div(section.n, kPanel), panel_cost(section, n));
        for (int64_t i = 0; i < pieces.num_pieces(); ++i) {
          work.push_back({call, pieces.begin(i), pieces.end(i)});
        }
        call.out += section.n;
      }
    }
    parallel(static_cast<int64_t>(work.size()),
             [&](int64_t i) { kernels_->linear(work[i].call, work[i].first, work[i].last); });
  };
  Room gate_up(chosen * 2 * width), act(chosen * width), y(chosen * hidden);
  run_experts(gate_up_, floats(x), x_stride, rows, tokens.data(), gate_up.get());
  run_silu(*kernels_, {width, gate_up.get(), 2 * width, act.get()}, chosen);
  std::vector<int32_t> in_order(chosen);
  std::iota(in_order.begin(), in_order.end(), 0);
  run_experts(down_, act.get(), width, chosen, in_order.data(), y.get());

  CombineCall combine{hidden,         top_k_,  y.get(), places.data(),
                      weights.data(), nullptr, nullptr, mutable_floats(out)};
  Room shared(shared_down_ ? rows * hidden : 0), shared_gate(shared_down_ ? rows : 0);
  if (shared_down_) {
    run_mlp(*kernels_, *shared_gate_up_, *shared_down_,
            {{}, nullptr, floats(x), x_stride, nullptr, rows, shared.get(), hidden});
    run_linear(*kernels_, *shared_gate_,
               {{}, nullptr, floats(x), x_stride, nullptr, rows, shared_gate.get(), 1});
    combine.shared = shared.get();
    combine.gate = shared_gate.get();
  }
  Split sums = split(rows, hidden * top_k_ / 4);
  parallel(sums.num_pieces(), [&](int64_t piece) {
    for (int64_t i = sums.begin(piece); i < sums.end(piece); ++i) kernels_->combine(combine, i);
  });
}

}  // namespace thalweg
