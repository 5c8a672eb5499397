#include "threads.h"

#include <pthread.h>

#include <atomic>
#include <chrono>
#include <mutex>
#include <thread>
#include <vector>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace thalweg {
namespace {

void pause() {
#if defined(__x86_64__)
  _mm_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

// Round to nearest, denormals kept, no traps: what every kernel is defined in.
class StandardArithmetic {
 public:
#if defined(__x86_64__)
  StandardArithmetic() : saved_(_mm_getcsr()) { _mm_setcsr(0x1f80); }
  ~StandardArithmetic() { _mm_setcsr(saved_); }

 private:
  unsigned saved_;
#elif defined(__aarch64__)
  StandardArithmetic() {
    asm volatile("mrs %0, fpcr" : "=r"(saved_));
    asm volatile("msr fpcr, %0" : : "r"(uint64_t{0}));
  }
  ~StandardArithmetic() { asm volatile("msr fpcr, %0" : : "r"(saved_)); }

 private:
  uint64_t saved_;
#else
  StandardArithmetic() {}
  ~StandardArithmetic() {}
#endif
};

constexpr auto kSpin = std::chrono::microseconds(60);
constexpr uint64_t kCountMask = 0xffffffff;

// The open job is named by `ticket_`: its epoch in the high half, the number of unclaimed pieces
// in the low half. Who lowers the ticket by one owns a piece of exactly that epoch, so the fields
// of the job it read before are that job's: they change only when no piece is left to claim.
class Pool {
 public:
  ~Pool() { stop(); }

  int size() const { return static_cast<int>(workers_.size()) + 1; }

  void resize(int count) {
    std::lock_guard lock(mutex_);
    if (count == size()) return;
    stop();
    stopping_.store(false);
    for (int i = 1; i < count; ++i) workers_.emplace_back([this] { work(); });
  }

  void run(int64_t num_pieces, PieceFunction function, void* context) {
    StandardArithmetic arithmetic;
    std::unique_lock lock(mutex_, std::defer_lock);
    if (num_pieces <= 1 || workers_.empty() || inside_piece_ || !lock.try_lock()) {
      for (int64_t i = 0; i < num_pieces; ++i) function(context, i);
      return;
    }
    function_.store(function, std::memory_order_relaxed);
    context_.store(context, std::memory_order_relaxed);
    num_pieces_.store(num_pieces, std::memory_order_relaxed);
    remaining_.store(num_pieces, std::memory_order_relaxed);
    uint64_t epoch = (ticket_.load(std::memory_order_relaxed) >> 32) + 1;
    ticket_.store(epoch << 32 | static_cast<uint64_t>(num_pieces), std::memory_order_seq_cst);
    if (sleepers_.load(std::memory_order_seq_cst) > 0) ticket_.notify_all();
    while (claim_and_do()) {
    }
    for (int spins = 0; remaining_.load(std::memory_order_acquire) != 0; ++spins) {
      if (spins < 20000) {
        pause();
      } else {
        std::this_thread::yield();  // a worker lost its core inside a piece
      }
    }
  }

  void forget_workers() {  // in a forked child they do not exist
    for (auto& worker : workers_) new (&worker) std::thread();
    workers_.clear();
    new (&mutex_) std::mutex();
    sleepers_.store(0);
  }

 private:
  bool claim_and_do() {
    uint64_t ticket = ticket_.load(std::memory_order_acquire);
    for (;;) {
      PieceFunction function = function_.load(std::memory_order_relaxed);
      void* context = context_.load(std::memory_order_relaxed);
      int64_t unclaimed = static_cast<int64_t>(ticket & kCountMask);
      if (unclaimed == 0) return false;
      int64_t piece = num_pieces_.load(std::memory_order_relaxed) - unclaimed;
      if (ticket_.compare_exchange_weak(ticket, ticket - 1, std::memory_order_acq_rel,
                                        std::memory_order_acquire)) {
        inside_piece_ = true;
        function(context, piece);
        inside_piece_ = false;
        remaining_.fetch_sub(1, std::memory_order_acq_rel);
        return true;
      }
    }
  }

  void work() {
    StandardArithmetic arithmetic;
    while (!stopping_.load(std::memory_order_acquire)) {
      while (claim_and_do()) {
      }
      uint64_t seen = ticket_.load(std::memory_order_acquire);
      if ((seen & kCountMask) != 0) continue;
      auto until = std::chrono::steady_clock::now() + kSpin;
      while (ticket_.load(std::memory_order_acquire) == seen &&
             !stopping_.load(std::memory_order_acquire)) {
        for (int i = 0; i < 32; ++i) pause();
        if (std::chrono::steady_clock::now() > until) {
          sleepers_.fetch_add(1, std::memory_order_seq_cst);
          ticket_.wait(seen, std::memory_order_seq_cst);
          sleepers_.fetch_sub(1, std::memory_order_seq_cst);
          break;
        }
      }
    }
  }

  void stop() {
    stopping_.store(true);
    // A new epoch without pieces wakes everybody.
    ticket_.store(((ticket_.load() >> 32) + 1) << 32);
    ticket_.notify_all();
    for (auto& worker : workers_) worker.join();
    workers_.clear();
  }

  alignas(64) std::atomic<uint64_t> ticket_{0};
  alignas(64) std::atomic<int64_t> remaining_{0};
  alignas(64) std::atomic<PieceFunction> function_{nullptr};
  std::atomic<void*> context_{nullptr};
  std::atomic<int64_t> num_pieces_{0};
  std::atomic<int> sleepers_{0};
  std::atomic<bool> stopping_{false};
  std::mutex mutex_;
  std::vector<std::thread> workers_;
  static thread_local bool inside_piece_;
};

thread_local bool Pool::inside_piece_ = false;

Pool& pool() {
  static Pool* instance = [] {
    Pool* made = new Pool();  // never destroyed: workers may outlive static destructors
    pthread_atfork(nullptr, nullptr, [] { pool().forget_workers(); });
    return made;
  }();
  return *instance;
}

}  // namespace

void run_pieces(int64_t num_pieces, PieceFunction function, void* context) {
  pool().run(num_pieces, function, context);
}

int num_threads() { return pool().size(); }

void set_num_threads(int count) { pool().resize(count); }

Split split(int64_t count, int64_t cost) {
  constexpr int64_t kWorthwhile = 4000;  // ns: below it a second thread does not pay
  int64_t least = cost > 0 ? ceil_div(kWorthwhile, cost) : count;
  int64_t even = ceil_div(count, int64_t{8} * num_threads());
  int64_t size = least > even ? least : even;
  return {count, size > 0 ? size : 1};
}

}  // namespace thalweg
