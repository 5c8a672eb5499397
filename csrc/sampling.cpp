#include "sampling.h"

#include <algorithm>
#include <cmath>
#include <cstring>

namespace thalweg {
namespace {

constexpr double kColdest = 1e-30;
constexpr int64_t kChunk = 1024;

uint64_t mix(uint64_t x) {  // the finaliser of SplitMix64
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

double uniform(uint64_t key, int64_t id) {
  uint64_t bits = mix(static_cast<uint64_t>(id) * 0x9e3779b97f4a7c15u + key);
  return (static_cast<double>(bits >> 12) + 0.5) * 0x1p-52;
}

// exp of x - offset into `out`, and its sum: 16 lanes in chunks of 1024, folded, the chunks added
// in double, ascending.
double exp_and_sum(const Kernels& kernels, const float* x, float offset, int64_t n, float* out) {
  double total = 0.0;
  for (int64_t begin = 0; begin < n; begin += kChunk) {
    int64_t count = std::min(kChunk, n - begin);
    float* e = out + begin;
    for (int64_t i = 0; i < count; ++i) e[i] = x[begin + i] - offset;
    kernels.exp(e, e, count);
    float lanes[16] = {};
    int64_t i = 0;
    for (; i + 16 <= count; i += 16) {
      for (int j = 0; j < 16; ++j) lanes[j] += e[i + j];
    }
    for (int j = 0; i < count; ++i, ++j) lanes[j] += e[i];
    for (int half = 8; half > 0; half /= 2) {
      for (int j = 0; j < half; ++j) lanes[j] += lanes[j + half];
    }
    total += lanes[0];
  }
  return total;
}

struct Candidate {
  float value;
  int32_t id;
};

// Larger values first, then lower ids.
bool before(const Candidate& a, const Candidate& b) {
  return a.value > b.value || (a.value == b.value && a.id < b.id);
}

// The most likely candidates, until their mass reaches top_p; the one that crosses it included.
void keep_top_p(std::vector<Candidate>& candidates, const std::vector<float>& probs, float top_p) {
  std::vector<Candidate> heap(candidates.size());
  for (size_t i = 0; i < heap.size(); ++i) heap[i] = {probs[i], static_cast<int32_t>(i)};
  auto later = [](const Candidate& a, const Candidate& b) { return before(b, a); };
  std::make_heap(heap.begin(), heap.end(), later);
  auto end = heap.end();
  double mass = 0.0;
  while (end != heap.begin() && mass < top_p) {
    std::pop_heap(heap.begin(), end, later);
    mass += (--end)->value;
  }
  std::vector<int32_t> places;
  for (auto it = end; it != heap.end(); ++it) places.push_back(it->id);
  std::sort(places.begin(), places.end());
  std::vector<Candidate> kept;
  for (int32_t place : places) kept.push_back(candidates[place]);
  candidates.swap(kept);
}

// The finite (logits - max) / temperature; of these the `top_k` first, all if it is 0. Ids ascend.
std::vector<Candidate> candidates_of(const Kernels& kernels, const float* logits,
                                     int64_t vocab_size, const Draw& draw) {
  constexpr int64_t kBlock = 64;
  float max = kernels.largest(logits, vocab_size).value;
  float temperature = static_cast<float>(std::max(draw.temperature, kColdest));
  int64_t top_k = draw.top_k > 0 ? std::min(draw.top_k, vocab_size) : vocab_size;
  float floor = -HUGE_VALF;  // of `top_k` candidates; what comes later must be larger
  std::vector<Candidate> kept;
  kept.reserve(std::min(vocab_size, 2 * top_k + kBlock));
  auto drop = [&] {
    std::nth_element(kept.begin(), kept.begin() + top_k - 1, kept.end(), before);
    kept.resize(top_k);
    floor = kept.back().value;
  };
  for (int64_t begin = 0; begin < vocab_size; begin += kBlock) {
    int64_t n = std::min(kBlock, vocab_size - begin);
    float values[kBlock];
    int any = 0;
    for (int64_t i = 0; i < n; ++i) {
      values[i] = (logits[begin + i] - max) / temperature;
      any |= values[i] > floor;
    }
    if (!any) continue;
    for (int64_t i = 0; i < n; ++i) {
      if (values[i] > floor) kept.push_back({values[i], static_cast<int32_t>(begin + i)});
    }
    if (static_cast<int64_t>(kept.size()) >= 2 * top_k) drop();
  }
  if (static_cast<int64_t>(kept.size()) > top_k) drop();
  auto by_id = [](const Candidate& a, const Candidate& b) { return a.id < b.id; };
  if (floor > -HUGE_VALF) std::sort(kept.begin(), kept.end(), by_id);
  return kept;
}

void filter(const Kernels& kernels, std::vector<Candidate>& candidates, const Draw& draw) {
  if (draw.top_p >= 1.0f && draw.min_p <= 0.0f) return;
  int64_t n = static_cast<int64_t>(candidates.size());
  std::vector<float> values(n), probs(n);
  for (int64_t i = 0; i < n; ++i) values[i] = candidates[i].value;
  float max = kernels.largest(values.data(), n).value;
  float total = static_cast<float>(exp_and_sum(kernels, values.data(), max, n, probs.data()));
  for (float& p : probs) p = p / total;
  if (draw.min_p > 0.0f) {  // the most likely stays under top_p, so the two may change places
    float least = draw.min_p * *std::max_element(probs.begin(), probs.end());
    std::vector<Candidate> all;
    all.swap(candidates);
    if (draw.top_p < 1.0f) {
      std::vector<Candidate> top = all;
      keep_top_p(top, probs, draw.top_p);
      size_t place = 0;
      for (const Candidate& c : top) {
        while (all[place].id != c.id) ++place;
        if (probs[place] >= least) candidates.push_back(c);
      }
      return;
    }
    for (size_t i = 0; i < all.size(); ++i) {
      if (probs[i] >= least) candidates.push_back(all[i]);
    }
    return;
  }
  keep_top_p(candidates, probs, draw.top_p);
}

// argmax of value + Gumbel noise. A candidate that cannot win whatever the slow logarithms give
// is passed over: u below 1 - 2^-m has noise below m ln 2.
int64_t draw_token(const Candidate* candidates, int64_t n, uint64_t key) {
  int64_t token = candidates[0].id;
  double best = -HUGE_VAL;
  for (int64_t i = 0; i < n; ++i) {
    double u = uniform(key, candidates[i].id);
    double value = candidates[i].value;
    double bound = u < 0.9375 ? 2.78 : u < 0.99609375 ? 5.55 : 37.5;
    if (value + bound < best) continue;
    double noisy = value - log_of(-log_of(u));
    if (noisy > best) best = noisy, token = candidates[i].id;
  }
  return token;
}

}  // namespace

double log_of(double x) {
  uint64_t bits;
  std::memcpy(&bits, &x, 8);
  int64_t exponent = static_cast<int64_t>(bits >> 52) - 1023;
  bits = (bits & 0x000fffffffffffffu) | 0x3ff0000000000000u;
  double m;
  std::memcpy(&m, &bits, 8);
  if (m > 1.4142135623730951) m *= 0.5, ++exponent;
  // log m = 2 atanh(s), s = (m - 1) / (m + 1), |s| < 0.1716: the series to s^21.
  double s = (m - 1.0) / (m + 1.0), z = s * s, p = 1.0 / 21;
  for (double d = 19.0; d >= 3.0; d -= 2.0) p = p * z + 1.0 / d;
  double log_m = s * 2.0 + s * 2.0 * z * p;
  double e = static_cast<double>(exponent);
  return e * 6.93147180369123816490e-01 + (e * 1.90821492927058770002e-10 + log_m);
}

int64_t sample(const Kernels& kernels, const float* logits, int64_t vocab_size, const Draw& draw) {
  if (draw.temperature == 0.0) return kernels.largest(logits, vocab_size).place;
  std::vector<Candidate> candidates = candidates_of(kernels, logits, vocab_size, draw);
  if (candidates.empty()) return 0;  // no finite logit
  filter(kernels, candidates, draw);
  return draw_token(candidates.data(), static_cast<int64_t>(candidates.size()), draw.key);
}

void log_softmax(const Kernels& kernels, const float* logits, int64_t vocab_size, float* out) {
  float max = kernels.largest(logits, vocab_size).value;
  double total = exp_and_sum(kernels, logits, max, vocab_size, out);
  float log_total = static_cast<float>(log_of(total));
  for (int64_t i = 0; i < vocab_size; ++i) out[i] = (logits[i] - max) - log_total;
}

}  // namespace thalweg
