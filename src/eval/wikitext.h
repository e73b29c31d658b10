// The data set of a perplexity run: the file, how its rows are joined, and hashes that identify the
// measured text.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>

namespace leq {

// SHA-256 of wiki.test.raw, the test split of wikitext-2-raw-v1 as one file.
inline constexpr std::string_view kWikitext2TestSha256 =
    "173c87a53759e0201f33e0ccf978e510c2042d7f2cb78229d9a50d79b9e7dd08";
// Number of tokens of the joined rows with GPT-2's vocabulary, to verify that a text was joined.
inline constexpr std::int64_t kWikitext2TestGpt2Tokens = 287'644;
inline constexpr std::int64_t kGpt2Vocabulary = 50'257;

enum class Join : std::uint8_t {
  none,  // the file unchanged
  hf,    // rows joined as "\n\n".join(rows) on Hugging Face's data set
};
std::string_view join_name(Join join);  // "none", "hf"

// A row is a line with its "\n". Rows of only white space become empty; then rows are joined with
// "\n\n". White space is Unicode's, as in Python's str.strip.
std::string join_rows(std::string_view raw);

struct EvaluationText {
  std::string text;          // joined
  std::string dataset_hash;  // SHA-256 of the file
  std::string text_sha256;   // SHA-256 of `text`
  Join join = Join::none;
};

// Throws Error naming the file if it cannot be read, is empty, or is not valid UTF-8 (with offset).
EvaluationText read_evaluation_text(const std::filesystem::path& path, Join join);

}  // namespace leq
