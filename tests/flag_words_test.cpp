// Flags belong to the tools: no text or comment in the library may name a flag. The library names
// settings by their fields, Setting{"context"} of base/error.h.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <regex>
#include <string>
#include <string_view>
#include <vector>

#include "source_files.h"

namespace leq {
namespace {

// Words after a minus sign that are not flags of a tool.
constexpr std::array<std::string_view, 11> kOtherWords = {
    "-log",    "-scale", "-zero", "-infinity", "-inf",  // arithmetic
    "-tensor", "-g",                                    // part of a scheme's name: int8-g128
    "-real",   "-fmad",                                 // nvcc's flags and architectures
    "-l",                                               // ulimit -l
    "-th"};                                             // `n`-th

// The text of a string literal or a comment.
struct Passage {
  std::size_t line = 0;
  std::string text;
};

// Extracts string literals and comments from C++ code.
class Reader {
 public:
  explicit Reader(std::string_view code) : code_(code) {}

  std::vector<Passage> passages() {
    while (at_ < code_.size()) {
      if (take("//")) {
        keep(code_.find('\n', at_));
      } else if (take("/*")) {
        keep(code_.find("*/", at_));
      } else if (take("R\"")) {
        const std::size_t open = code_.find('(', at_);
        const std::string end = ")" + std::string(code_.substr(at_, open - at_)) + "\"";
        at_ = open + 1;
        keep(code_.find(end, at_));
        at_ += end.size();
      } else if (take("\"")) {
        keep(closing('"'));
        ++at_;
      } else if (code_[at_] == '\'' && !after_digit()) {
        ++at_;
        at_ = closing('\'') + 1;
      } else {
        ++at_;
      }
    }
    return std::move(passages_);
  }

 private:
  bool take(std::string_view word) {
    const bool here = code_.substr(at_).starts_with(word);
    if (here) at_ += word.size();
    return here;
  }
  bool after_digit() const {  // 10'000
    return at_ > 0 && std::isalnum(static_cast<unsigned char>(code_[at_ - 1])) != 0;
  }
  std::size_t closing(char quote) const {
    std::size_t end = at_;
    while (end < code_.size() && code_[end] != quote) end += code_[end] == '\\' ? 2 : 1;
    return end;
  }
  void keep(std::size_t end) {
    end = std::min(end, code_.size());
    const auto before = code_.substr(0, at_);
    passages_.push_back({1 + static_cast<std::size_t>(std::ranges::count(before, '\n')),
                         std::string(code_.substr(at_, end - at_))});
    at_ = end;
  }

  std::string_view code_;
  std::size_t at_ = 0;
  std::vector<Passage> passages_;
};

// Returns lines and flag words: "12: --type". A minus in a call, as in exp(-x), is arithmetic.
std::vector<std::string> flag_words(std::string_view code) {
  static const std::regex kWord(R"((^|[\s"'`]|(^|[^A-Za-z0-9_])\()(--?[a-z][a-z0-9-]*))");
  std::vector<std::string> found;
  for (const Passage& passage : Reader(code).passages()) {
    const auto end = std::sregex_iterator();
    for (auto it = std::sregex_iterator(passage.text.begin(), passage.text.end(), kWord); it != end;
         ++it) {
      const std::string word = (*it)[3];
      if (std::ranges::find(kOtherWords, word) != kOtherWords.end()) continue;
      found.push_back(std::to_string(passage.line) + ": " + word);
    }
  }
  return found;
}

using Words = std::vector<std::string>;

TEST(FlagWords, AreNotNamedBelowTheTools) {
  std::size_t files = 0;
  for (const auto& file : test::source_files({"src", "models", "cuda"})) {
    ++files;
    EXPECT_EQ(flag_words(test::source_text(file)), Words()) << file;
  }
  EXPECT_GT(files, 300u) << "the test reads no sources";
}

TEST(FlagWords, AreFoundInTextsAndComments) {
  EXPECT_EQ(flag_words("int a;\nfail(\"use -np 1\");"), Words{"2: -np"});
  EXPECT_EQ(flag_words("f(\"--type \", x, \"; leave out --act\");"),
            (Words{"1: --type", "1: --act"}));
  EXPECT_EQ(flag_words("f(\"a smaller context (-c)\");"), Words{"1: -c"});
  EXPECT_EQ(flag_words("f(R\"x(see\n\")\" -ctk)x\");"), Words{"1: -ctk"});
  EXPECT_EQ(flag_words("int n = 1;  // -np\nint b;  // in `--mlock`, too"),
            (Words{"1: -np", "2: --mlock"}));
  EXPECT_EQ(flag_words("/* two\n lines of --vram */ int c;"), Words{"1: --vram"});
  EXPECT_EQ(flag_words("char q = '\"'; f(\"-dev\");  // '"), Words{"1: -dev"});
  EXPECT_EQ(flag_words("int x = 1'000 + '\\''; f(\"\\\"-dev\");"), Words{"1: -dev"});
}

TEST(FlagWords, AreNotFoundInArithmeticAndNames) {
  EXPECT_EQ(flag_words("int b = -c;  // exp(-x), fma(-n, a, b), 1 -1 -2 a - b\n"
                       "f(\"int8-g128, hf-stride, half-way - and a-b, -5 to -0.5\", a -b);"),
            Words());
}

}  // namespace
}  // namespace leq
