// Replaces the comparison with the sentencepiece library if that library is not installed.
#include <gtest/gtest.h>

TEST(SentencepieceOracle, NeedsTheLibrary) {
  GTEST_SKIP() << "needs libsentencepiece-dev when the build is configured";
}
