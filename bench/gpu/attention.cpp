// Measures attention over pages: one token for each of several sequences, in bytes of the cache per
// second, and prompts, in operations per second.
#include <algorithm>
#include <cstdio>
#include <cstring>
#include <numeric>

#include "base/error.h"
#include "bench/gpu/data.h"
#include "bench/gpu/timing.h"
#include "cuda/layout/attention_scratch.h"
#include "cuda/layout/layout.h"

namespace leq::LEQ_GPU::bench {
namespace {

struct Heads {
  const char* model;
  int heads, kv_heads;
};
// These models have one, four and five queries per kv head; heads have 128 dimensions.
constexpr Heads kHeads[] = {{"llama-7b", 32, 32}, {"mistral-7b", 32, 8}, {"qwen3-14b", 40, 8}};
constexpr int kHeadDim = 128;
constexpr std::int64_t kRunBytes = sizeof(AttentionRun);

constexpr KvType kTypes[] = {KvType::f16, KvType::int8, KvType::simq4};

std::int64_t page_bytes(KvPart part, KvType type, int kv_heads) {
  const KvScheme& scheme = kv_scheme(type);
  const std::int64_t numbers = scheme.packed
                                   ? kv_code_bytes(kHeadDim)
                                   : kKvPageTokens * kv_row_bytes(kHeadDim, scheme.bits / 8);
  return kv_heads * (numbers + 4 * kv_ends(part, type, kHeadDim));
}

// The number of page copies in f16 per run: the newest 64 pages; older pages share copy 0.
constexpr std::int64_t kCopiesOfRun = 64;

// One layer with `sequences` runs of `rows` rows, which end at position `context` - 1. Launches
// alternate between caches: at most `most_caches`, or enough to exceed any L2 cache.
class Problem {
 public:
  Problem(const Heads& heads, KvType type, int sequences, int rows, int context, int most_caches,
          rt::Stream& stream)
      : width_(std::int64_t{heads.heads + 2 * heads.kv_heads} * kHeadDim),
        key_bytes_(page_bytes(KvPart::keys, type, heads.kv_heads)),
        value_bytes_(page_bytes(KvPart::values, type, heads.kv_heads)),
        copy_bytes_(page_bytes(KvPart::keys, KvType::f16, heads.kv_heads)),
        pages_of_run_((context + kKvPageTokens - 1) / kKvPageTokens),
        copies_of_cache_(kv_scheme(type).blocked() ? kCopiesOfRun * sequences * copy_bytes_ : 0),
        caches_(std::min(most_caches,
                         copies_filling(kRotatedBytes, bytes(sequences * pages_of_run_ *
                                                             (key_bytes_ + value_bytes_))))),
        qkv_(Memory::filled(bytes(sequences * rows * width_ * 4), 0x3d000000u, stream)),
        out_(bytes(std::int64_t{sequences} * rows * heads.heads * kHeadDim * 4), 0, stream),
        // Bytes up to 0x3b are valid codes; pairs of them are f16 numbers below 1.
        keys_(bytes(caches_ * sequences * pages_of_run_ * key_bytes_), 0x3b, stream),
        values_(bytes(caches_ * sequences * pages_of_run_ * value_bytes_), 0x3b, stream),
        copies_(bytes(caches_ * copies_of_cache_ + 4), 0x3b, stream),
        lists_(bytes(sequences * (2 * pages_of_run_ + rows) * 4 + sequences * kRunBytes), 0,
               stream),
        scratch_(attention_scratch_bytes(sequences * rows, heads.heads, heads.kv_heads, kHeadDim,
                                         context) +
                     4,
                 0, stream),
        tickets_(Memory::filled(kTickets * sizeof(unsigned), 0, stream)) {
    std::vector<std::int32_t> lists(static_cast<std::size_t>(sequences * pages_of_run_));
    std::iota(lists.begin(), lists.end(), 0);
    for (std::int32_t run = 0; run < sequences; ++run) {
      for (std::int64_t page = 0; page < pages_of_run_; ++page) {
        const std::int64_t copy = std::max<std::int64_t>(page - pages_of_run_ + kCopiesOfRun, 0);
        lists.push_back(static_cast<std::int32_t>(run * kCopiesOfRun + copy));
      }
    }
    for (std::int32_t run = 0; run < sequences; ++run) lists.insert(lists.end(), rows, run);
    const std::size_t runs_at = lists.size();
    lists.resize(runs_at + static_cast<std::size_t>(sequences * kRunBytes / 4));
    for (std::int32_t i = 0; i < sequences; ++i) {
      const auto pages = static_cast<std::int32_t>(pages_of_run_);
      const AttentionRun run = {.first_row = i * rows,
                                .rows = rows,
                                .first_position = context - rows,
                                .pages_at = i * pages,
                                .copies_at = (sequences + i) * pages};
      std::memcpy(&lists[runs_at + static_cast<std::size_t>(i * kRunBytes / 4)], &run, sizeof run);
    }
    rt::copy_to_device(lists_.as<void>(), lists.data(), lists.size() * 4, stream);
    rt::synchronize(stream);
    a_.qkv = {qkv_.as<float>(), width_};
    a_.out = {out_.as<float>(), std::int64_t{heads.heads} * kHeadDim};
    a_.batch.tokens = std::int64_t{sequences} * rows;
    a_.batch.pages = lists_.as<std::int32_t>();
    a_.batch.row_runs = a_.batch.pages + 2 * sequences * pages_of_run_;
    a_.batch.runs = reinterpret_cast<const AttentionRun*>(a_.batch.row_runs + a_.batch.tokens);
    a_.batch.run_count = sequences;
    a_.batch.longest_run = rows;
    a_.batch.end = context;
    a_.heads = {heads.heads, heads.kv_heads, kHeadDim, 0, heads.heads / heads.kv_heads};
    a_.keys = {keys_.as<std::byte>(), key_bytes_, type, codes_of(KvPart::keys, type, kHeadDim)};
    a_.values = {values_.as<std::byte>(), value_bytes_, type,
                 codes_of(KvPart::values, type, kHeadDim)};
    const KvPages copies = {copies_.as<std::byte>(), copy_bytes_, KvType::f16};
    a_.copied = {copies, copies, kv_residual(type, type)};
    a_.scratch = scratch_.as<float>();
    a_.codes.tickets = tickets_.as<unsigned>();
  }

  double us(rt::Stream& stream) const {
    return microseconds(stream, caches_, [&](int cache) {
      const std::int64_t pages = a_.batch.run_count * pages_of_run_;
      AttentionArguments a = a_;
      a.keys.base += cache * pages * key_bytes_;
      a.values.base += cache * pages * value_bytes_;
      a.copied.keys.base += cache * copies_of_cache_;
      a.copied.values.base = a.copied.keys.base;
      launch_attention(a, stream);
    });
  }
  double cache_bytes() const {
    return static_cast<double>(a_.batch.run_count * a_.batch.end) *
           static_cast<double>(key_bytes_ + value_bytes_) / kKvPageTokens;
  }
  // Returns operations for scores and values: 4 d for each query and each position visible to it.
  double operations() const {
    const auto rows = static_cast<double>(a_.batch.longest_run);
    const double seen = rows * (static_cast<double>(a_.batch.end) - (rows - 1) / 2);
    return 4.0 * kHeadDim * a_.heads.heads * seen * a_.batch.run_count;
  }

 private:
  static std::size_t bytes(std::int64_t n) { return static_cast<std::size_t>(n); }

  std::int64_t width_, key_bytes_, value_bytes_, copy_bytes_, pages_of_run_, copies_of_cache_;
  int caches_;
  Memory qkv_, out_, keys_, values_, copies_, lists_, scratch_, tickets_;
  AttentionArguments a_;
};

void decode(const Options& options, rt::Stream& stream) {
  std::printf("One token of each sequence:\n\n");
  print_head({"heads of", "cache", "sequences", "context", "us", "GB/s", "of read"});
  for (const Heads& heads : kHeads) {
    for (const KvType type : kTypes) {
      for (const int sequences : {1, 8, 64}) {
        for (const int context : {2048, 8192, 32768}) {
          if (options.tiny && (context > 2048 || sequences > 8)) continue;
          std::vector<std::string> row = {heads.model, std::string(kv_scheme(type).name),
                                          number(sequences, 0), number(context, 0)};
          try {
            const Problem problem(heads, type, sequences, 1, options.tiny ? 130 : context,
                                  options.tiny ? 2 : 64, stream);
            const double us = problem.us(stream), gbps = problem.cache_bytes() / us * 1e-3;
            row.insert(row.end(),
                       {number(us, 1), number(gbps, 0), share(options, "read_gbps", gbps)});
          } catch (const Error&) {  // not enough memory
            row.insert(row.end(), {"n/a", "n/a", "n/a"});
          }
          print_row(row);
        }
      }
    }
  }
}

void prefill(const Options& options, rt::Stream& stream) {
  std::printf("\nThe last 2,048 rows of a prompt:\n\n");
  print_head({"heads of", "cache", "context", "us", "TFLOPS", "of the f16 mma loop"});
  for (const Heads& heads : kHeads) {
    for (const KvType type : kTypes) {
      for (const int context : {2048, 8192, 32768}) {
        if (options.tiny && context > 2048) continue;
        const int rows = options.tiny ? 20 : 2048;
        const Problem problem(heads, type, 1, rows, options.tiny ? 70 : context, 1, stream);
        const double us = problem.us(stream), tflops = problem.operations() / us * 1e-6;
        print_row({heads.model, std::string(kv_scheme(type).name), number(context, 0),
                   number(us, 1), number(tflops, 1), share(options, "mma_f16_tflops", tflops)});
      }
    }
  }
}

void body(const Options& options, rt::Stream& stream) {
  decode(options, stream);
  prefill(options, stream);
}

}  // namespace
}  // namespace leq::LEQ_GPU::bench

int main(int argc, char** argv) {
  return leq::LEQ_GPU::bench::run_bench(argc, argv, leq::LEQ_GPU::bench::body);
}
