// Tests the kernels for tiles of scores and of values separately: every instruction set gives the
// bits of the portable kernels for every number of queries, head size and part of a page.
#include <gtest/gtest.h>

#include <bit>
#include <string>
#include <vector>

#include "backend/cpu/attention/kv_pages.h"
#include "backend/cpu/kernels/kernels.h"
#include "backend/operations.h"
#include "base/cpu_features.h"
#include "base/half.h"
#include "base/random.h"

namespace leq::cpu {
namespace {

constexpr int kDims[] = {2, 16, 20, 64, 80, 96, 128, 256, 264};
constexpr int kParts[][2] = {{0, 4}, {0, 1}, {1, 4}, {2, 4}, {3, 4}};  // blocks of 16 keys

std::vector<float> normals(Random& random, std::size_t count) {
  std::vector<float> all(count);
  for (float& x : all) x = random.normal();
  return all;
}
std::vector<std::uint8_t> bytes(Random& random, std::size_t count) {
  std::vector<std::uint8_t> all(count);
  for (std::uint8_t& x : all) x = static_cast<std::uint8_t>(random.below(256));
  return all;
}
std::vector<std::uint16_t> halves(Random& random, std::size_t count) {
  std::vector<std::uint16_t> all(count);
  for (std::uint16_t& x : all) x = f32_to_f16(random.normal());
  return all;
}

void expect_same(const std::vector<float>& want, const std::vector<float>& have,
                 const std::string& what) {
  for (std::size_t i = 0; i < want.size(); ++i) {
    ASSERT_EQ(std::bit_cast<std::uint32_t>(want[i]), std::bit_cast<std::uint32_t>(have[i]))
        << what << " number " << i;
  }
}

std::string name_of(Isa isa, int dims, int queries, int kind) {
  return std::string(isa_name(isa)) + ", " + std::to_string(dims) + " dimensions, " +
         std::to_string(queries) + " queries, kind " + std::to_string(kind);
}

// Calls make(kernels) for all instruction sets and checks that each result equals the first one.
template <class Make>
void expect_one_result(int dims, int queries, int kind, Make make) {
  const std::vector<float> want = make(Isa::portable);
  for (const Isa isa : supported_isas()) {
    expect_same(want, make(isa), name_of(isa, dims, queries, kind));
  }
}

// The scores of a whole page, including those that a kernel must not write.
constexpr std::size_t kPage = kPageTokens;

TEST(TileKernels, ScoresOfPackedCodes) {
  Random random(1);
  for (const int dims : kDims) {
    const auto d = static_cast<std::size_t>(dims);
    const auto query = normals(random, kQueryTile * 2 * d), start = normals(random, kQueryTile * 2);
    const auto keys = bytes(random, kPage * d);
    for (int kind = 0; kind < 3; ++kind) {
      for (const auto& part : kParts) {
        for (int queries = 1; queries <= kQueryTile; ++queries) {
          expect_one_result(dims, queries, kind, [&](Isa isa) {
            std::vector<float> scores(kQueryTile * kPage, -7.0f);
            PackedScoreTile tile;
            tile.queries = queries;
            tile.dims = dims;
            tile.keys = keys.data();
            tile.first_block = part[0];
            tile.last_block = part[1];
            for (int r = 0; r < queries; ++r) {
              const auto row = static_cast<std::size_t>(r);
              tile.scores[r] = scores.data() + row * kPage;
              for (std::size_t half = 0; half < 2; ++half) {
                tile.query[r][half] = query.data() + (2 * row + half) * d;
                tile.start[r][half] = start[2 * row + half];
              }
            }
            packed_kernels(isa).scores[kind](tile);
            return scores;
          });
        }
      }
    }
  }
}

TEST(TileKernels, ValuesOfPackedCodes) {
  Random random(2);
  for (const int dims : kDims) {
    const auto d = static_cast<std::size_t>(dims);
    for (int kind = 0; kind < 3; ++kind) {
      const int group = kind == 0 ? dims : kind == 1 ? 64 : 32;
      const auto groups = static_cast<std::size_t>((dims + group - 1) / group);
      const std::int64_t row_bytes = value_row_bytes(8 >> kind, dims);
      const auto values = bytes(random, kPage * static_cast<std::size_t>(row_bytes));
      const auto weights = normals(random, kQueryTile * groups * kPage);
      const auto out = normals(random, kQueryTile * d);
      for (int queries = 1; queries <= kQueryTile; ++queries) {
        expect_one_result(dims, queries, kind, [&](Isa isa) {
          std::vector<float> sums(out);
          PackedValueTile tile;
          tile.queries = queries;
          tile.dims = dims;
          tile.group = group;
          tile.values = values.data();
          tile.row_bytes = row_bytes;
          tile.first = 3 * queries;
          tile.last = 64 - queries;
          for (int r = 0; r < queries; ++r) {
            const auto row = static_cast<std::size_t>(r);
            tile.weights[r] = weights.data() + row * groups * kPage;
            tile.out[r] = sums.data() + row * d;
          }
          packed_kernels(isa).values[kind](tile);
          return sums;
        });
      }
    }
  }
}

TEST(TileKernels, WeightsOfValues) {
  Random random(9);
  const auto p = normals(random, kQueryTile * kPage);
  const auto scales = halves(random, kPage), minima = halves(random, kPage);
  for (int queries = 1; queries <= kQueryTile; ++queries) {
    for (const auto& [first, last] : {std::pair(0, 64), {0, 1}, {3, 40}, {16, 64}, {47, 49}}) {
      expect_one_result(first, queries, last, [&](Isa isa) {
        std::vector<float> weights(kQueryTile * kPage, -7.0f), lanes(kQueryTile * kLaneCount, 0.5f);
        WeighTile tile = {queries, first, last, scales.data(), minima.data()};
        for (int r = 0; r < queries; ++r) {
          tile.p[r] = p.data() + static_cast<std::size_t>(r) * kPage;
          tile.weights[r] = weights.data() + r * 64;
          tile.lanes[r] = lanes.data() + r * kLaneCount;
        }
        attention_kernels(isa).weigh(tile);
        weights.insert(weights.end(), lanes.begin(), lanes.end());
        return weights;
      });
    }
  }
}

TEST(TileKernels, ChainsOfMinima) {
  Random random(6);
  for (const int dims : kDims) {
    const auto d = static_cast<std::size_t>(dims);
    const auto query = normals(random, kQueryTile * d);
    const auto rows = halves(random, kMaxChains * d);
    for (const int count : {1, 5, kMaxChains}) {
      for (int queries = 1; queries <= kQueryTile; ++queries) {
        expect_one_result(dims, queries, count, [&](Isa isa) {
          std::vector<float> z(kQueryTile * kMaxChains, -7.0f);
          ChainTile tile;
          tile.queries = queries;
          tile.dims = dims;
          tile.count = count;
          for (int i = 0; i < count; ++i)
            tile.rows[i] = rows.data() + static_cast<std::size_t>(i) * d;
          for (int r = 0; r < queries; ++r) {
            tile.query[r] = query.data() + static_cast<std::size_t>(r) * d;
            tile.z[r] = z.data() + r * kMaxChains;
          }
          packed_kernels(isa).chains(tile);
          return z;
        });
      }
    }
  }
}

TEST(TileKernels, ScoresOfFloatsAndInt8) {
  Random random(4);
  for (const int dims : kDims) {
    const auto d = static_cast<std::size_t>(dims), padded = (d + 3) / 4 * 4;
    const auto query = normals(random, kQueryTile * d);
    const auto scales = halves(random, kPage), minima = halves(random, kPage);
    std::vector<std::int8_t> codes(kQueryTile * padded);
    for (std::int8_t& code : codes) code = static_cast<std::int8_t>(random.below(255) - 127);
    const auto wide = normals(random, kPage * padded);
    const auto narrow = halves(random, kPage * padded);
    const auto coded = bytes(random, kPage * padded);
    const void* const keys[] = {wide.data(), narrow.data(), coded.data()};
    for (int kind = 0; kind < 3; ++kind) {
      for (const auto& part : kParts) {
        for (int queries = 1; queries <= kQueryTile; ++queries) {
          expect_one_result(dims, queries, kind, [&](Isa isa) {
            std::vector<float> scores(kQueryTile * kPage, -7.0f);
            ScoreTile tile;
            tile.queries = queries;
            tile.dims = dims;
            tile.keys = keys[kind];
            tile.scales = scales.data();
            tile.minima = minima.data();
            tile.first_block = part[0];
            tile.last_block = part[1];
            for (int r = 0; r < queries; ++r) {
              const auto row = static_cast<std::size_t>(r);
              tile.query[r] = query.data() + row * d;
              tile.codes[r] = codes.data() + row * padded;
              tile.code_scale[r] = 0.25f + static_cast<float>(r);
              int sum = 0;
              for (std::size_t c = 0; c < padded; ++c) sum += tile.codes[r][c];
              tile.code_sum[r] = static_cast<float>(sum);
              tile.scores[r] = scores.data() + row * kPage;
            }
            attention_kernels(isa).kv[kind].scores(tile);
            return scores;
          });
        }
      }
    }
  }
}

TEST(TileKernels, ValuesOfFloatsAndInt8) {
  Random random(5);
  for (const int dims : kDims) {
    const auto d = static_cast<std::size_t>(dims);
    const auto weights = normals(random, kQueryTile * kPage), out = normals(random, kQueryTile * d);
    const auto wide = normals(random, kPage * d);
    const auto narrow = halves(random, kPage * d);
    const auto coded = bytes(random, kPage * d);
    const void* const values[] = {wide.data(), narrow.data(), coded.data()};
    for (int kind = 0; kind < 3; ++kind) {
      for (int queries = 1; queries <= kQueryTile; ++queries) {
        expect_one_result(dims, queries, kind, [&](Isa isa) {
          std::vector<float> sums(out);
          ValueTile tile;
          tile.queries = queries;
          tile.dims = dims;
          tile.values = values[kind];
          tile.first = queries;
          tile.last = 64 - 3 * queries;
          for (int r = 0; r < queries; ++r) {
            tile.weights[r] = weights.data() + static_cast<std::size_t>(r) * kPage;
            tile.out[r] = sums.data() + static_cast<std::size_t>(r) * d;
          }
          attention_kernels(isa).kv[kind].values(tile);
          return sums;
        });
      }
    }
  }
}

}  // namespace
}  // namespace leq::cpu
