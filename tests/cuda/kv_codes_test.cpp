// Tests the layout of packed codes in a page: every code has a unique position, the inverse
// function finds it, and data that is written token by token shares no byte between tokens.
#include "cuda/layout/kv_codes.h"

#include <gtest/gtest.h>

#include <map>
#include <set>
#include <utility>

namespace leq::LEQ_GPU {
namespace {

TEST(KvCodes, EachHasAPlaceOfItsOwnAndIsFoundThere) {
  for (const KvPart part : {KvPart::keys, KvPart::values}) {
    for (const int dims : {16, 20, 64, 80, 128}) {
      std::set<std::pair<int, int>> places;
      for (int slot = 0; slot < 64; ++slot) {
        for (int c = 0; c < dims; ++c) {
          const gpu::KvCodePlace at = gpu::kv_code_place(part, dims, slot, c);
          ASSERT_TRUE(places.emplace(at.word, at.shift).second);
          ASSERT_EQ(at.shift % 4, 0);
          ASSERT_LT(at.shift, 32);
          ASSERT_LT(at.word * 4, gpu::kv_code_bytes(dims));
          const gpu::KvCodeOwner of = gpu::kv_code_owner(part, dims, at.word, at.shift);
          ASSERT_EQ(of.slot, slot);
          ASSERT_EQ(of.channel, c);
        }
      }
    }
  }
}

TEST(KvCodes, OfTwoPositionsShareNoByte) {
  for (const KvPart part : {KvPart::keys, KvPart::values}) {
    std::map<int, int> owners;  // byte -> code that uses it
    for (int slot = 0; slot < 64; ++slot) {
      for (int c = 0; c < 32; ++c) {
        const gpu::KvCodePlace at = gpu::kv_code_place(part, 32, slot, c);
        const int byte = at.word * 4 + at.shift / 8;
        ASSERT_EQ(owners.try_emplace(byte, slot).first->second, slot);
      }
    }
  }
}

// A block of 32 positions shares no word with other blocks, because one thread writes a block.
TEST(KvCodes, OfABlockShareNoWordWithOthers) {
  for (const KvPart part : {KvPart::keys, KvPart::values}) {
    for (const int dims : {48, 64, 128}) {
      std::map<int, int> owners;  // word -> block that uses it
      for (int slot = 0; slot < 64; ++slot) {
        for (int c = 0; c < dims; ++c) {
          const int word = gpu::kv_code_place(part, dims, slot, c).word;
          ASSERT_EQ(owners.try_emplace(word, slot / 32).first->second, slot / 32);
        }
      }
    }
  }
}

// In the operand order of an mma, the four numbers that a lane reads from 16 columns are adjacent;
// if a lane reads 16 bytes at once (by_two), its numbers from the next 16 columns follow directly.
TEST(KvCodes, ScalesAlongASumLieByLanes) {
  for (const bool by_two : {false, true}) {
    for (int unit = 0; unit < 8; ++unit) {
      for (int lane = 0; lane < 4; ++lane) {
        const int first = gpu::kv_operand_order(by_two, 16 * unit + 2 * lane);
        ASSERT_EQ(first % 4, 0);
        ASSERT_EQ(gpu::kv_operand_order(by_two, 16 * unit + 2 * lane + 1), first + 1);
        ASSERT_EQ(gpu::kv_operand_order(by_two, 16 * unit + 2 * lane + 8), first + 2);
        ASSERT_EQ(gpu::kv_operand_order(by_two, 16 * unit + 2 * lane + 9), first + 3);
        if (by_two && unit % 2 == 0) {
          ASSERT_EQ(gpu::kv_operand_order(true, 16 * (unit + 1) + 2 * lane), first + 4);
        }
      }
    }
  }
}

TEST(KvCodes, EachChannelAndPositionHasScalesOfItsOwn) {
  for (const int dims : {16, 20, 36, 64, 80, 128, 160}) {
    std::set<int> places;
    for (int c = 0; c < dims; ++c) places.insert(gpu::kv_key_end(dims, c));
    EXPECT_EQ(std::ssize(places), dims);
    EXPECT_EQ(*places.begin(), 0);
    EXPECT_EQ(*places.rbegin(), dims - 1);
  }
  std::set<int> places;
  for (int slot = 0; slot < 64; ++slot) places.insert(gpu::kv_value_end(slot));
  EXPECT_EQ(places.size(), 64U);
  EXPECT_EQ(*places.rbegin(), 63);
}

}  // namespace
}  // namespace leq::LEQ_GPU
