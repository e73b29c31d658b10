#include "tools/common/option_words.h"

#include <algorithm>
#include <iterator>
#include <numeric>
#include <utility>

#include "base/text.h"

namespace leq {
namespace {

std::vector<std::string> with_long_name(const std::string& spellings, const std::string& name) {
  std::vector<std::string> words;
  for (const auto word : split(spellings, " ")) {
    if (!word.empty()) words.emplace_back(word);
  }
  const auto first_long =
      std::ranges::find_if(words, [](const std::string& word) { return word.starts_with("--"); });
  words.insert(first_long, "--" + name);
  return words;
}

// The edit distance with insertions, deletions, replacements and swaps of adjacent characters
// (Damerau 1964, restricted form).
std::size_t edit_distance(const std::string& a, const std::string& b) {
  std::vector<std::vector<std::size_t>> cost(a.size() + 1, std::vector<std::size_t>(b.size() + 1));
  std::iota(cost[0].begin(), cost[0].end(), std::size_t{0});
  for (std::size_t i = 1; i <= a.size(); ++i) {
    cost[i][0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t replaced = cost[i - 1][j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1);
      cost[i][j] = std::min({cost[i - 1][j] + 1, cost[i][j - 1] + 1, replaced});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) {
        cost[i][j] = std::min(cost[i][j], cost[i - 2][j - 2] + 1);
      }
    }
  }
  return cost[a.size()][b.size()];
}

}  // namespace

std::vector<std::string> option_words(const Option& option) {
  return with_long_name(option.spellings, option.name);
}

std::vector<std::string> negated_words(const Option& option) {
  if (option.kind != OptionKind::flag) return {};
  return with_long_name(option.negations, "no-" + option.name);
}

std::optional<std::string> nearest_word(const std::string& word,
                                        std::span<const std::string> known) {
  constexpr std::size_t kLongestWord = 64;  // because the distance is quadratic
  if (word.size() > kLongestWord) return std::nullopt;
  const auto bare = [](const std::string& text) {
    return text.substr(std::min(text.find_first_not_of('-'), text.size()));
  };
  const std::string wanted = bare(word);
  std::optional<std::string> best;
  // At equal distance the longer name is preferred, since typos more often omit letters than add.
  std::pair<std::size_t, std::ptrdiff_t> least;
  for (const auto& candidate : known) {
    const std::string name = bare(candidate);
    const bool begins = wanted.size() >= 3 && name.starts_with(wanted);
    const std::size_t cost = begins ? 1 : 2 * edit_distance(wanted, name);
    const std::size_t allowed = 2 * std::max<std::size_t>(1, wanted.size() / 3);
    // One-letter options are similar to every word, so only wrong dashes are corrected for them.
    if ((name.size() == 1 && cost != 0) || cost > allowed) continue;
    const std::pair reading(cost, begins ? 0 : -std::ssize(name));
    if (!best || reading < least) {
      best = candidate;
      least = reading;
    }
  }
  return best;
}

}  // namespace leq
