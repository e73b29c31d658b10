// Replies on a terminal: wrapped words, styles of Markdown, and the same text for any pieces.
#include "tools/run/screen_text.h"

#include <gtest/gtest.h>

#include <random>
#include <string>
#include <vector>

#include "base/text.h"

namespace leq::run {
namespace {

constexpr ScreenOptions kWrapped = {.styles = false, .markdown = true, .wrap = true};
constexpr ScreenOptions kStyled = {.styles = true, .markdown = true, .wrap = true};

std::string shown(std::string_view text, std::size_t columns, const ScreenOptions& options) {
  use_utf8_characters();
  ScreenText screen(options);
  screen.set_columns(columns);
  std::string out = screen.feed(text);
  return out + screen.finish();
}

std::string on(const char* codes, const std::string& text) {
  return "\033[" + std::string(codes) + "m" + text + "\033[0m";
}

TEST(ScreenText, WordsAreWrapped) {
  EXPECT_EQ(shown("one two three four", 10, kWrapped), "one two\nthree four");
  EXPECT_EQ(shown("one two  \nthree", 10, kWrapped), "one two\nthree");
  EXPECT_EQ(shown("a line\n\nand another one", 12, kWrapped), "a line\n\nand another\none");
  EXPECT_EQ(shown("extraordinarily long ago", 10, kWrapped), "extraordinarily long\nago");
  EXPECT_EQ(shown("1234567890 12", 10, kWrapped), "1234567890\n12");
  EXPECT_EQ(shown("one two three four", 10, {}), "one two three four");
}

TEST(ScreenText, LinesOfAListContinueUnderTheirText) {
  EXPECT_EQ(shown("- one two three", 9, kWrapped), "- one two\n  three");
  EXPECT_EQ(shown("12. one two three four", 12, kWrapped), "12. one two\n    three\n    four");
  EXPECT_EQ(shown("  one two three", 9, kWrapped), "  one two\n  three");
}

// A note stands between the halves of a reply; the blank before the next word is no indentation.
TEST(ScreenText, TextAfterABreakInALineBeginsWithItsWord) {
  ScreenText screen(kWrapped);
  screen.set_columns(10);
  const auto shown_in = [&](const std::vector<std::string>& pieces) {
    std::string text;
    for (const std::string& piece : pieces) text += screen.feed(piece);
    return text + screen.finish();
  };
  EXPECT_EQ(shown_in({"He was"}), "He was");
  EXPECT_EQ(shown_in({" ", " loved by his dog.\n"}), "loved by\nhis dog.\n");
  EXPECT_EQ(shown_in({"  one two three"}), "  one two\n  three");
}

TEST(ScreenText, WideCharactersTakeTwoColumnsAndNeedNoSpaces) {
  EXPECT_EQ(shown("日本語日本語", 8, kWrapped), "日本語日\n本語");
  EXPECT_EQ(shown("日本語日。本", 8, kWrapped), "日本語\n日。本");
  EXPECT_EQ(shown("e\xCC\x81t\xC3\xA9 ete", 7, kWrapped), "e\xCC\x81t\xC3\xA9 ete");
}

TEST(ScreenText, BoldAndCodeBecomeStyles) {
  EXPECT_EQ(shown("a **bold word** here", 80, kStyled), "a " + on("1", "bold word ") + "here");
  EXPECT_EQ(shown("run `ls **x**`.", 80, kStyled), "run " + on("36", "ls **x**") + ".");
  EXPECT_EQ(shown("# Head\ntext", 80, kStyled), on("1", "# Head") + "\ntext");
  EXPECT_EQ(shown("``a ` b``", 80, kStyled), on("36", "a ` b"));
  EXPECT_EQ(shown("a **bold word** here", 80, kWrapped), "a **bold word** here");
}

TEST(ScreenText, MarksThatAreNoMarkdownStay) {
  for (const char* text :
       {"2 ** 3", "2**3", "a * b", "*one*", "- ** -", "#", "a ` b", "#tag", "a < b <thin"}) {
    EXPECT_EQ(shown(text, 80, kStyled), trim(text)) << text;
  }
}

TEST(ScreenText, CodeIsNotWrapped) {
  const std::string code = "```c\nint a = 1;  int b = 2;\n  **x\n```\n";
  EXPECT_EQ(shown(code, 10, kWrapped), code);
  EXPECT_EQ(shown(code, 10, kStyled), on("2", "```c") + "\n" + on("36", "int a = 1;  int b = 2;") +
                                          "\n  " + on("36", "**x") + "\n" + on("2", "```") + "\n");
  EXPECT_EQ(shown("```\na\n```\n**b**", 10, kStyled).find("**"), std::string::npos);
}

TEST(ScreenText, ReasoningIsDimmed) {
  EXPECT_EQ(shown("<think>so\n**x**</think>it is", 80, kStyled),
            "\033[2m<think>so\n\033[0m\033[2m\033[1mx\033[0m\033[2m</think>\033[0mit is");
}

TEST(ScreenText, ControlCharactersDoNotReachTheTerminal) {
  for (const ScreenOptions& options : {kWrapped, kStyled, ScreenOptions{}}) {
    EXPECT_EQ(shown("a\x1b[31mb\x07\r\n\xC2\x9b c", 80, options), "a\\x1b[31mb\\x07\n\\xc2\\x9b c");
  }
}

// Pieces of any size give the same screen; without styles no line is too long and every word stays.
TEST(ScreenText, PiecesMakeNoDifference) {
  const std::vector<std::string> parts = {"one",  " ",       "  ",       "\n",   "**", "`",
                                          "*",    "```",     "# ",       "- ",   "日", "é",
                                          "🙂", "<think>", "</think>", "word", "."};
  std::mt19937 random(7);
  for (int round = 0; round < 400; ++round) {
    std::string text;
    for (int i = 0; i < 40; ++i) text += parts[random() % parts.size()];
    for (const ScreenOptions& options : {kWrapped, kStyled}) {
      const std::size_t columns = 12 + random() % 20;
      const std::string whole = shown(text, columns, options);
      ScreenText screen(options);
      screen.set_columns(columns);
      std::string pieces;
      for (std::size_t at = 0; at < text.size();) {
        const std::size_t size = 1 + random() % 5;
        pieces += screen.feed(std::string_view(text).substr(at, size));
        at += size;
      }
      pieces += screen.finish();
      ASSERT_EQ(pieces, whole) << text;
    }
    const auto letters = [](std::string_view from) {
      std::string kept;
      for (const char c : from) {
        if (c != ' ' && c != '\n') kept += c;
      }
      return kept;
    };
    ASSERT_EQ(letters(shown(text, 20, kWrapped)), letters(text));
  }
}

}  // namespace
}  // namespace leq::run
