// Experts that tokens chose, on the host and on the device, for the comparisons of gpu_agree.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "bench/gpu/agree.h"
#include "bench/gpu/random.h"
#include "cuda/kernels/experts/experts.h"

namespace leq::LEQ_GPU::bench {

struct ExpertSizes {
  int experts, active, width, hidden;
};

using Words = std::vector<std::uint32_t>;
using Numbers = std::vector<std::int32_t>;

template <class T>
Memory on_device(const std::vector<T>& values, rt::Stream& stream) {
  return Memory::repeated(std::as_bytes(std::span<const T>(values)), values.size() * sizeof(T),
                          stream);
}

inline Words words_of(const void* from, std::size_t count, rt::Stream& stream) {
  Words words(count);
  rt::copy_to_host(words.data(), from, count * 4, stream);
  rt::synchronize(stream);
  return words;
}

// Row order[i] of `all` as row i.
template <class T>
std::vector<T> rows_at(const std::vector<T>& all, const Numbers& order, std::int64_t stride) {
  std::vector<T> rows;
  rows.reserve(order.size() * static_cast<std::size_t>(stride));
  for (const std::int32_t row : order) {
    const auto first = all.begin() + row * stride;
    rows.insert(rows.end(), first, first + stride);
  }
  return rows;
}

// Experts that T tokens chose, and where group_rows has to put each of R rows. Every token chose
// expert 1, none every fourth; of the others, higher numbers have fewer rows.
struct Routes {
  std::int64_t tokens;
  int active;
  Numbers ids;           // [R], ascending within a token
  Numbers first, tiles;  // [E + 1]
  Numbers places;        // [R]: the index in groups
  Numbers rows;          // [R]: the row at an index in groups

  Routes(const ExpertSizes& sizes, std::int64_t count) : tokens(count), active(sizes.active) {
    std::uint32_t state = 99;
    for (std::int64_t t = 0; t < tokens; ++t) {
      Numbers chosen = {1};
      while (std::ssize(chosen) < active) {
        state = state * 1664525u + 1013904223u;
        const float u = between(state >> 8, 0, 1);
        const auto e = static_cast<std::int32_t>(u * u * static_cast<float>(sizes.experts));
        if (e % 4 != 3 && std::ranges::find(chosen, e) == chosen.end()) chosen.push_back(e);
      }
      std::ranges::sort(chosen);
      ids.insert(ids.end(), chosen.begin(), chosen.end());
    }
    group(sizes.experts);
  }
  std::int64_t count() const { return tokens * active; }  // R
  Numbers token_of_rows() const {
    Numbers of;
    for (const std::int32_t row : rows) of.push_back(row / active);
    return of;
  }

 private:
  void group(int experts) {
    const int tile_rows = expert_tile_rows(count(), experts);
    places.resize(ids.size());
    first = tiles = {0};
    for (std::int32_t e = 0; e < experts; ++e) {
      for (std::size_t row = 0; row < ids.size(); ++row) {
        if (ids[row] != e) continue;
        places[row] = static_cast<std::int32_t>(std::ssize(rows));
        rows.push_back(static_cast<std::int32_t>(row));
      }
      const auto last = static_cast<std::int32_t>(std::ssize(rows));
      tiles.push_back(tiles.back() + (last - first.back() + tile_rows - 1) / tile_rows);
      first.push_back(last);
    }
  }
};

// The router's rows of `routes` on the device. Places and lists are invalid before launch_grouping.
class DeviceRoutes {
 public:
  static constexpr std::int64_t kStride = 160;

  DeviceRoutes(const Routes& routes, rt::Stream& stream)
      : routes_(routes),
        stream_(stream),
        rows_(on_device(host_rows(), stream)),
        lists_(Memory::filled(2 * routes.first.size() * 4, ~0u, stream)) {}

  static float weight(std::size_t row) { return 0.03f + 0.001f * static_cast<float>(row * 7 % 97); }
  ExpertChoice choice() const { return {rows_.as<float>(), kStride, routes_.active}; }
  ExpertGroups groups() const {
    const int experts = static_cast<int>(std::ssize(routes_.first)) - 1;
    return {lists_.as<std::int32_t>(), lists_.as<std::int32_t>(routes_.first.size() * 4), experts,
            expert_tile_rows(routes_.count(), experts)};
  }
  void launch_grouping() const {
    launch_group_rows({choice(), routes_.count(), groups()}, stream_);
  }
  // Compares what launch_grouping wrote.
  void compare(const std::string& what, Tally& tally) const {
    const Words all = words_of(rows_.as<void>(), rows_words(), stream_);
    const Words lists = words_of(lists_.as<void>(), 2 * routes_.first.size(), stream_);
    Words found, wanted;
    for (std::size_t r = 0; r < routes_.places.size(); ++r) {
      found.push_back(all[at(r) + 2 * static_cast<std::size_t>(routes_.active)]);
    }
    found.insert(found.end(), lists.begin(), lists.end());
    for (const Numbers* numbers : {&routes_.places, &routes_.first, &routes_.tiles}) {
      wanted.insert(wanted.end(), numbers->begin(), numbers->end());
    }
    tally.compare(found, wanted, 1, what + "group_rows");
  }

 private:
  std::size_t rows_words() const { return static_cast<std::size_t>(routes_.tokens * kStride); }
  std::size_t at(std::size_t row) const {
    const auto active = static_cast<std::size_t>(routes_.active);
    return row / active * static_cast<std::size_t>(kStride) + row % active;
  }
  Words host_rows() const {
    Words words(rows_words(), ~0u);
    for (std::size_t r = 0; r < routes_.ids.size(); ++r) {
      words[at(r)] = static_cast<std::uint32_t>(routes_.ids[r]);
      words[at(r) + static_cast<std::size_t>(routes_.active)] =
          std::bit_cast<std::uint32_t>(weight(r));
    }
    return words;
  }

  const Routes& routes_;
  rt::Stream& stream_;
  Memory rows_, lists_;
};

}  // namespace leq::LEQ_GPU::bench
