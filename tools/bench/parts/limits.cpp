#include "tools/bench/parts/limits.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <functional>

#include "base/error.h"
#include "base/stopwatch.h"
#include "tools/bench/parts/limit_kernels.h"

namespace leq::cpu {
namespace {

constexpr double kSeconds = 0.25;                                // limit per measurement
constexpr int kPasses = 4;                                       // least number of passes
constexpr std::uint64_t kLargestBlock = std::uint64_t{2} << 30;  // four times a large CPU cache
constexpr std::uint64_t kReadStep = 512;  // read kernels read multiples of this
constexpr std::uint64_t kTaskBytes = std::uint64_t{1} << 20;

double seconds_of(const std::function<void()>& work) {
  const Stopwatch watch;
  work();
  return watch.seconds();
}

// The shortest time of all passes that fit into kSeconds.
double best_seconds(const std::function<void()>& pass) {
  double best = seconds_of(pass);  // this pass also wakes up the threads
  double total = 0;
  for (int i = 0; i < kPasses || total < kSeconds; ++i) {
    const double took = seconds_of(pass);
    best = std::min(best, took);
    total += took;
  }
  return best;
}

// Billions of operations per second of all threads.
template <class Number>
double peak_gops(ThreadPool& pool, const Products<Number>& products) {
  // A pass has to be short enough to complete between two preemptions by other processes.
  constexpr int kTasksEach = 2;
  constexpr double kTaskSeconds = 2e-4;
  std::atomic<std::int64_t> sink = 0;
  const auto run = [&](std::int64_t rounds) { sink += products.run(rounds) > 0 ? 1 : 0; };
  std::int64_t rounds = 64;
  while (seconds_of([&] { run(rounds); }) < kTaskSeconds) rounds *= 2;
  const std::int64_t tasks = std::int64_t{kTasksEach} * pool.threads();
  const double seconds =
      best_seconds([&] { pool.run(tasks, [&](std::int64_t, int) { run(rounds); }); });
  return products.operations * static_cast<double>(rounds) * static_cast<double>(tasks) / seconds /
         1e9;
}

// The loop for codes of `bits`.
const Products<std::int32_t>& int_products(Isa isa, int bits) {
  const LimitKernels& kernels = limit_kernels(isa);
  if (bits > 4 || kernels.codes[0].run == nullptr) return kernels.int8;
  return kernels.codes[static_cast<std::size_t>(std::max(bits, 2) - 2)];
}

}  // namespace

const LimitKernels& limit_kernels(Isa isa) {
  for (const LimitLevel& level : limit_levels()) {
    if (level.isa == isa) return level.kernels();
  }
  fail(ErrorKind::bad_setting, "instruction set ", isa_name(isa),
       ": not built for this processor family; try portable");
}

LimitMeter::LimitMeter(int threads, Isa isa) : pool_(threads), isa_(isa) {}

double LimitMeter::read_gbps(std::uint64_t working_set_bytes) {
  const std::uint64_t bytes =
      std::clamp(working_set_bytes, kTaskBytes, kLargestBlock) / kReadStep * kReadStep;
  const auto tasks = static_cast<std::int64_t>((bytes + kTaskBytes - 1) / kTaskBytes);
  const auto part = [&](std::int64_t task) {
    const std::uint64_t first = static_cast<std::uint64_t>(task) * kTaskBytes;
    return std::pair(first, std::min(kTaskBytes, bytes - first));
  };
  if (block_.size() < bytes) {
    block_ = HugeBuffer();
    block_ = HugeBuffer(bytes, "measuring the speed of memory");
    pool_.run(tasks, [&](std::int64_t task, int) {
      const auto [first, count] = part(task);
      std::memset(block_.data() + first, 1, count);
    });
  }
  std::atomic<std::uint64_t> sink = 0;
  std::size_t turn = 0;  // alternates between the two loops
  const double seconds = best_seconds([&] {
    const auto& loops = limit_kernels(isa_).read;
    const auto read = loops[turn++ % loops.size()];
    pool_.run(tasks, [&](std::int64_t task, int) {
      const auto [first, count] = part(task);
      sink += read(block_.data() + first, count);
    });
  });
  return static_cast<double>(bytes) / seconds / 1e9;
}

double LimitMeter::int_gops(int bits) { return peak_gops(pool_, int_products(isa_, bits)); }
double LimitMeter::f32_gflops() { return peak_gops(pool_, limit_kernels(isa_).f32); }
double LimitMeter::f64_gflops() { return peak_gops(pool_, limit_kernels(isa_).f64); }

std::string LimitMeter::int_name(int bits) const { return int_products(isa_, bits).name; }
std::string LimitMeter::f32_name() const { return limit_kernels(isa_).f32.name; }

}  // namespace leq::cpu
