// Where packed codes lie in a page: every code has a place of its own, the way back finds it, and
// what is written token by token shares no byte with its neighbours.
#include "cuda/layout/kv_codes.h"

#include <gtest/gtest.h>

#include <map>
#include <set>
#include <utility>

namespace leq::LEQ_GPU {
namespace {

TEST(KvCodes, EachHasAPlaceOfItsOwnAndIsFoundThere) {
  for (const KvPart part : {KvPart::keys, KvPart::values}) {
    for (const int bits : {2, 4, 8}) {
      for (const int dims : {16, 20, 80, 128}) {
        std::set<std::pair<int, int>> places;
        for (int slot = 0; slot < 64; ++slot) {
          for (int c = 0; c < dims; ++c) {
            const gpu::KvCodePlace at = gpu::kv_code_place(part, bits, dims, slot, c);
            ASSERT_TRUE(places.emplace(at.word, at.shift).second) << bits << " bits";
            ASSERT_EQ(at.shift % bits, 0);
            ASSERT_LT(at.shift, 32);
            ASSERT_LT(at.word * 4, gpu::kv_code_bytes(bits, dims));
            const gpu::KvCodeOwner of = gpu::kv_code_owner(part, bits, dims, at.word, at.shift);
            ASSERT_EQ(of.slot, slot) << bits << " bits";
            ASSERT_EQ(of.channel, c) << bits << " bits";
          }
        }
      }
    }
  }
}

TEST(KvCodes, OfTwoPositionsShareNoByteFrom4BitsOn) {
  for (const KvPart part : {KvPart::keys, KvPart::values}) {
    for (const int bits : {4, 8}) {
      std::map<int, int> owners;  // of bytes
      for (int slot = 0; slot < 64; ++slot) {
        for (int c = 0; c < 32; ++c) {
          const gpu::KvCodePlace at = gpu::kv_code_place(part, bits, 32, slot, c);
          const int byte = at.word * 4 + at.shift / 8;
          ASSERT_EQ(owners.try_emplace(byte, slot).first->second, slot);
        }
      }
    }
  }
}

// A block of 32 positions owns its words, at 2 bits too: each is one thread's.
TEST(KvCodes, OfABlockShareNoWordWithOthers) {
  for (const KvPart part : {KvPart::keys, KvPart::values}) {
    for (const int bits : {2, 4, 8}) {
      for (int slot = 0; slot < 64; ++slot) {
        for (int c = 0; c < 48; ++c) {
          const int half = static_cast<int>(gpu::kv_code_bytes(bits, 48)) / 8;  // in words
          ASSERT_EQ(gpu::kv_code_place(part, bits, 48, slot, c).word / half, slot / 32);
        }
      }
    }
  }
}

}  // namespace
}  // namespace leq::LEQ_GPU
