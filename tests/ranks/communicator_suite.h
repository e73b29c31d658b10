// The test suite for every kind of Communicator, run by each rank; the ranks are threads of the
// test or processes, and their number is arbitrary. A rank's bytes are a function of round, rank,
// block, row and column, so that every other rank can compute them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <vector>

#include "ranks/communicator.h"

namespace leq::test {

inline void expect(bool condition, const std::string& what) {
  if (!condition) throw std::logic_error(what);
}

inline std::byte number_of(int round, int rank, std::size_t block, std::int64_t row,
                           std::size_t column) {
  return static_cast<std::byte>((round * 31 + rank * 101 + static_cast<int>(block) * 57 +
                                 static_cast<int>(row) * 13 + static_cast<int>(column) * 7) %
                                251);
}

// Parts differ in size, some are empty: (r * 5 + block) % 4 columns of `unit` bytes on rank r.
inline std::vector<ByteRange> uneven_parts(int ranks, std::size_t block, std::size_t unit) {
  std::vector<ByteRange> parts;
  std::size_t at = 0;
  for (int rank = 0; rank < ranks; ++rank) {
    const std::size_t bytes = (static_cast<std::size_t>(rank) * 5 + block) % 4 * unit;
    parts.push_back({at, at + bytes});
    at += bytes;
  }
  return parts;
}

// Gathers three blocks of `rows` rows; a rank's own parts are in the whole rows or another buffer.
inline void check_gather_round(Communicator& ranks, int round, std::int64_t rows, Receivers to) {
  constexpr std::size_t kBlocks = 3;
  const bool receives = to == Receivers::all || ranks.leads();
  std::vector<std::vector<ByteRange>> parts;
  std::vector<std::vector<std::byte>> whole, own;
  std::vector<SharedRows> blocks;
  for (std::size_t b = 0; b < kBlocks; ++b) parts.push_back(uneven_parts(ranks.size(), b, b + 1));
  for (std::size_t b = 0; b < kBlocks; ++b) {
    const std::size_t stride = parts[b].back().last + 3;  // includes bytes that belong to no rank
    const ByteRange part = parts[b][static_cast<std::size_t>(ranks.rank())];
    whole.emplace_back(static_cast<std::size_t>(rows) * stride, std::byte{255});
    own.emplace_back(static_cast<std::size_t>(rows) * (part.count() + 1), std::byte{254});
    const bool in_place = receives && (round + static_cast<int>(b)) % 2 == 0;
    std::byte* const from = in_place ? whole[b].data() + part.first : own[b].data();
    const std::size_t own_stride = in_place ? stride : part.count() + 1;
    for (std::int64_t row = 0; row < rows; ++row) {
      for (std::size_t i = 0; i < part.count(); ++i) {
        from[static_cast<std::size_t>(row) * own_stride + i] =
            number_of(round, ranks.rank(), b, row, i);
      }
    }
    blocks.push_back(
        {rows, parts[b], from, own_stride, receives ? whole[b].data() : nullptr, stride});
  }
  ranks.gather(blocks, to, "a test's gather");
  // The rank's own bytes are overwritten, so that a late read by another rank is detected.
  for (auto& bytes : own) bytes.assign(bytes.size(), std::byte{253});
  for (std::size_t b = 0; receives && b < kBlocks; ++b) {
    for (std::int64_t row = 0; row < rows; ++row) {
      const std::byte* const at =
          whole[b].data() + static_cast<std::size_t>(row) * blocks[b].stride;
      for (int rank = 0; rank < ranks.size(); ++rank) {
        const ByteRange part = parts[b][static_cast<std::size_t>(rank)];
        if (rank == ranks.rank() && blocks[b].own != whole[b].data() + part.first) continue;
        for (std::size_t i = 0; i < part.count(); ++i) {
          expect(at[part.first + i] == number_of(round, rank, b, row, i),
                 "rank " + std::to_string(ranks.rank()) + ": block " + std::to_string(b) +
                     ", row " + std::to_string(row) + " of rank " + std::to_string(rank));
        }
      }
      for (std::size_t i = 0; i < 3; ++i) {
        expect(at[parts[b].back().last + i] == std::byte{255}, "bytes after a row were written");
      }
    }
  }
}

inline void check_broadcast_round(Communicator& ranks, int round) {
  const std::size_t size = static_cast<std::size_t>(round) * 37 % 200;
  std::vector<std::byte> bytes(ranks.leads() ? size : 5, std::byte{9});
  for (std::size_t i = 0; ranks.leads() && i < size; ++i) bytes[i] = number_of(round, 0, 0, 0, i);
  ranks.broadcast(bytes, "a test's broadcast");
  expect(bytes.size() == size,
         "a broadcast of " + std::to_string(size) + " bytes gave " + std::to_string(bytes.size()));
  for (std::size_t i = 0; i < size; ++i) {
    expect(bytes[i] == number_of(round, 0, 0, 0, i), "bytes of a broadcast");
  }
}

// Each rank sends any number of bytes; some ranks send none.
inline void check_bytes_round(Communicator& ranks, int round, Receivers to) {
  const auto bytes_of = [&](int rank) {
    std::vector<std::byte> bytes(static_cast<std::size_t>((round + 1) * rank * 7 % 50));
    for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = number_of(round, rank, 1, 2, i);
    return bytes;
  };
  const auto each = gather_bytes(ranks, bytes_of(ranks.rank()), to, "a test's bytes");
  const bool receives = to == Receivers::all || ranks.leads();
  expect(each.size() == static_cast<std::size_t>(ranks.size()), "bytes of each rank");
  for (int rank = 0; receives && rank < ranks.size(); ++rank) {
    expect(each[static_cast<std::size_t>(rank)] == bytes_of(rank), "gathered bytes of a rank");
  }
}

// Runs the whole suite on one rank; throws if anything is wrong.
inline void check_communicator(Communicator& ranks, int rounds) {
  expect(ranks.leads() == (ranks.rank() == 0), "rank 0 leads");
  for (int round = 0; round < rounds; ++round) {
    check_gather_round(ranks, round, round % 5, Receivers::all);
    check_gather_round(ranks, round, 1 + round % 3, Receivers::leader);
    check_broadcast_round(ranks, round);
    check_bytes_round(ranks, round, round % 2 == 0 ? Receivers::all : Receivers::leader);
    if (round % 3 == 0) ranks.barrier("a test's barrier");
  }
}

}  // namespace leq::test
