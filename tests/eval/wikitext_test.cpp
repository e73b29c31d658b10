// Converts a text file to the text that is measured.
#include "eval/perplexity.h"

#include <gtest/gtest.h>

#include <fstream>

#include "base/error.h"
#include "base/text.h"
#include "shared_data.h"
#include "temporary_folder.h"

namespace leq {
namespace {

std::string error_for(const std::string& bytes) {
  const test::TemporaryFolder folder;
  const auto path = folder.path() / "text.raw";
  std::ofstream(path, std::ios::binary) << bytes;
  try {
    read_evaluation_text(path, Join::none);
  } catch (const Error& error) {
    std::string message = error.what();
    return message.substr(message.find("text.raw"));
  }
  return "no error";
}

TEST(JoinRows, KeepsLineEndsAndEmptiesBlankRows) {
  EXPECT_EQ(join_rows(" \n = Title = \n \nText.\n"), "\n\n = Title = \n\n\n\n\nText.\n");
  EXPECT_EQ(join_rows("a\nb"), "a\n\n\nb");
  EXPECT_EQ(join_rows("\n"), "");
  EXPECT_EQ(join_rows(""), "");
}

TEST(JoinRows, BlankIsWhatUnicodeCallsWhiteSpace) {
  EXPECT_EQ(join_rows("a\n\u3000\u00a0\t\r\n"), "a\n\n\n");
  EXPECT_EQ(join_rows("a\n\u200b\n"), "a\n\n\n\u200b\n");  // a zero-width space is not white space
}

TEST(JoinRows, WikiTextHasTheHashOfHuggingFacesText) {
  LEQ_SHARED_OR_SKIP(file, "data/wikitext-2/wiki.test.raw");
  const EvaluationText text = read_evaluation_text(file, Join::hf);
  EXPECT_EQ(text.dataset_hash, kWikitext2TestSha256);
  EXPECT_EQ(text.text_sha256, "696cca6b65a171b0a358a4be6732cdfdf2dd6164a32e20fd70e3c13fc4dfae83");
  EXPECT_EQ(read_evaluation_text(file, Join::none).text_sha256, kWikitext2TestSha256);
}

TEST(EvaluationText, BadFilesAreNamed) {
  EXPECT_EQ(error_for(""), "text.raw: the file is empty; a text to measure is needed");
  EXPECT_EQ(error_for("abc\xff\x20"),
            "text.raw: invalid UTF-8 at offset 3 (byte \\xff); convert the file to UTF-8");
  EXPECT_THROW(read_evaluation_text("/nowhere/text.raw", Join::none), Error);
}

}  // namespace
}  // namespace leq
