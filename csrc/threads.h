// A small thread pool: pieces are claimed one by one, so a busy core delays only its own piece.
#pragma once

#include <cstdint>
#include <type_traits>

namespace thalweg {

using PieceFunction = void (*)(void* context, int64_t piece);

// Runs function(context, i) for i in [0, num_pieces), on the calling thread and the workers, and
// returns when all are done. Denormals are kept on every thread while it runs. A second caller
// at the same time, and a call from inside a piece, does its pieces alone.
void run_pieces(int64_t num_pieces, PieceFunction function, void* context);

// Threads of a call, the caller's own included.
int num_threads();
void set_num_threads(int count);

template <class F>
void parallel(int64_t num_pieces, F&& body) {
  using Body = std::remove_reference_t<F>;
  run_pieces(
      num_pieces, [](void* context, int64_t piece) { (*static_cast<Body*>(context))(piece); },
      const_cast<void*>(static_cast<const void*>(&body)));
}

inline int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

// Splits `count` equal units of `cost` (about nanoseconds each) into pieces: few enough that
// claiming costs nothing, one alone where a second thread would not pay.
struct Split {
  int64_t count;
  int64_t size;
  int64_t num_pieces() const { return ceil_div(count, size); }
  int64_t begin(int64_t piece) const { return piece * size; }
  int64_t end(int64_t piece) const {
    int64_t e = (piece + 1) * size;
    return e < count ? e : count;
  }
};

Split split(int64_t count, int64_t cost);

}  // namespace thalweg
