// Any bytes as a saved sequence of the KV cache: they are refused, or loaded and saved again
// unchanged. The first byte of an input selects the types of the cache and its window.
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "backend/cpu/cpu_backend.h"
#include "base/error.h"
#include "cache/kv_cache.h"
#include "fuzz/seeded.h"

namespace {

constexpr std::array kTypes = {leq::KvType::f16,   leq::KvType::int8,  leq::KvType::int4,
                               leq::KvType::simq4, leq::KvType::simq2, leq::KvType::simq8};

struct Cache {
  std::unique_ptr<leq::Backend> backend = leq::make_cpu_backend({1, leq::Isa::portable});
  leq::KvCache cache;

  explicit Cache(std::size_t choice)
      : cache(backend->memory(), backend->layout(), shape_of(choice)) {}

  static leq::KvShape shape_of(std::size_t choice) {
    const leq::KvType type = kTypes[choice % kTypes.size()];
    leq::KvShape shape = {2, 1, 4, type, type, 256, 1};
    shape.window = choice < kTypes.size() ? 0 : 60;
    if (shape.window > 0) shape.layer_windowed = {true, false};
    return shape;
  }
};
constexpr std::size_t kCaches = 2 * kTypes.size();

Cache& cache_of(std::size_t choice) {
  static std::array<std::unique_ptr<Cache>, kCaches> all;
  std::unique_ptr<Cache>& one = all[choice % kCaches];
  if (!one) one = std::make_unique<Cache>(choice % kCaches);
  return *one;
}

std::vector<std::string> examples() {
  std::vector<std::string> texts;
  for (std::size_t i = 0; i < kCaches; ++i) {
    leq::KvCache& cache = cache_of(i).cache;
    for (const std::int64_t length : {3, 100, 250}) {
      cache.clear(0);
      cache.append(0, length);
      cache.commit();
      const std::vector<std::byte> saved = cache.save(0);
      texts.push_back(std::string(1, static_cast<char>(i)) +
                      std::string(reinterpret_cast<const char*>(saved.data()), saved.size()));
    }
  }
  return texts;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  leq::KvCache& cache = cache_of(data[0]).cache;
  try {
    cache.load(0, std::as_bytes(std::span(data + 1, size - 1)), "fuzz");
    if (cache.length(0) > 0 && cache.save(0).empty()) std::abort();
  } catch (const leq::Error&) {
  }
  return 0;
}
