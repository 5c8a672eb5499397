// Which levels of the instruction set this machine has, and which one is used.
#if defined(__x86_64__)
#include <cpuid.h>
#endif
#if defined(__linux__)
#include <sys/syscall.h>
#include <unistd.h>
#endif

#include <atomic>
#include <stdexcept>

#include "kernels.h"
#include "threads.h"

namespace thalweg {
namespace {

#if defined(__x86_64__)
// Whether there is AMX with integers, and the system lets this process use its registers.
bool tiles_allowed() {
#if defined(__linux__)
  constexpr unsigned kTile = 1u << 24, kInt8 = 1u << 25;
  constexpr long kRequestPermission = 0x1023, kTileData = 18;
  unsigned a, b, c, d;
  if (!__get_cpuid_count(7, 0, &a, &b, &c, &d)) return false;
  return (d & kTile) && (d & kInt8) && syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
#else
  return false;
#endif
}
#endif

std::vector<const Kernels*> available() {
  std::vector<const Kernels*> found;
#if defined(__x86_64__)
  __builtin_cpu_init();
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
      __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
      __builtin_cpu_supports("avx512vnni")) {
    if (tiles_allowed()) found.push_back(&amx::kKernels);
    found.push_back(&avx512::kKernels);
  }
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
      __builtin_cpu_supports("f16c")) {
    found.push_back(&avx2::kKernels);
  }
#endif
  found.push_back(&portable::kKernels);
  return found;
}

const Kernels*& chosen() {
  static const Kernels* level = available().front();
  return level;
}

}  // namespace

std::vector<std::string> levels() {
  std::vector<std::string> names;
  for (const Kernels* k : available()) names.emplace_back(k->name);
  return names;
}

std::string level() { return chosen()->name; }

void set_level(const std::string& name) {
  for (const Kernels* k : available()) {
    if (k->name == name) {
      chosen() = k;
      return;
    }
  }
  throw std::invalid_argument(name);
}

const Kernels& current_kernels() { return *chosen(); }

uint32_t read_memory(Address data, int64_t bytes) {
  constexpr int64_t kPiece = int64_t{64} << 10;
  std::atomic<uint32_t> total{0};
  Split pieces = split(bytes / kPiece, kPiece / 16);
  parallel(pieces.num_pieces(), [&](int64_t piece) {
    const uint8_t* p = reinterpret_cast<const uint8_t*>(data) + pieces.begin(piece) * kPiece;
    total += current_kernels().read(p, (pieces.end(piece) - pieces.begin(piece)) * kPiece);
  });
  return total;
}

}  // namespace thalweg
