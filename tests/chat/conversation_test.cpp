// Saved conversations: a written file can be read, and no other file is accepted as one.
#include "chat/conversation.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <limits>
#include <string>

#include "base/error.h"
#include "base/file.h"
#include "base/text.h"
#include "errors.h"

namespace leq {
namespace {

namespace fs = std::filesystem;

constexpr float kInfinity = std::numeric_limits<float>::infinity();

class ChatFileTest : public testing::Test {
 protected:
  void SetUp() override {
    const auto* test = testing::UnitTest::GetInstance()->current_test_info();
    folder_ = fs::path(testing::TempDir()) / (std::string("leq_chat_file_") + test->name());
    fs::remove_all(folder_);
    fs::create_directories(folder_);
    path_ = folder_ / "chat.json";
  }
  void TearDown() override { fs::remove_all(folder_); }

  static ChatFile example() {
    ChatFile file;
    file.model = "small.leq";
    file.format = "chatml";
    file.chat.messages = {
        {"system", "Be brief."}, {"user", "Hello \"you\"\n\tsnow\u2603"}, {"assistant", " Hi."}};
    file.chat.replies = 4;
    file.settings.sampling.temperature = 0.7f;
    file.settings.sampling.top_k = -1;
    file.settings.sampling.frequency_penalty = 0.1f;
    file.settings.sampling.penalties_when_greedy = true;
    file.settings.sampling.seed = 18446744073709551615ull;
    file.settings.sampling.mirostat = 2;
    file.settings.sampling.typical_p = 0.9f;
    file.settings.sampling.logit_bias = {{5, -kInfinity}, {7, 0.1f}};
    file.settings.sampling.dry_breakers = {"\n", "snow\u2603"};
    file.settings.max_tokens = 50;
    file.settings.stop = {"END", "\n\n"};
    file.settings.thinking = false;
    file.settings.json = true;
    file.settings.context = 4096;
    return file;
  }
  void write(const std::string& text) const { std::ofstream(path_) << text; }
  std::string text() const { return read_file(path_, 1 << 20); }
  // Writes the saved example with one part of its text replaced.
  void write_changed(const std::string& from, const std::string& to) const {
    save_chat(path_, example());
    const std::string saved = text();
    const std::string changed = replace_all(saved, from, to);
    ASSERT_NE(saved, changed) << "the file has no " << from;
    write(changed);
  }
  std::string load_error() const {
    return test::error_of([&] { load_chat(path_); });
  }

  fs::path folder_, path_;
};

TEST_F(ChatFileTest, ReadsBackWhatItWrote) {
  const ChatFile file = example();
  save_chat(path_, file);
  const ChatFile back = load_chat(path_);
  EXPECT_EQ(back.model, file.model);
  EXPECT_EQ(back.format, file.format);
  ASSERT_EQ(back.chat.messages.size(), 3u);
  for (std::size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(back.chat.messages[i].role, file.chat.messages[i].role);
    EXPECT_EQ(back.chat.messages[i].content, file.chat.messages[i].content);
  }
  EXPECT_EQ(back.chat.replies, 4u);
  EXPECT_EQ(back.settings.sampling.temperature, 0.7f);
  EXPECT_EQ(back.settings.sampling.top_k, -1);
  EXPECT_EQ(back.settings.sampling.top_p, 0.95f);
  EXPECT_EQ(back.settings.sampling.frequency_penalty, 0.1f);
  EXPECT_TRUE(back.settings.sampling.penalties_when_greedy);
  EXPECT_EQ(back.settings.sampling.seed, 18446744073709551615ull);
  EXPECT_EQ(back.settings.sampling.mirostat, 2);
  EXPECT_EQ(back.settings.sampling.typical_p, 0.9f);
  EXPECT_EQ(back.settings.sampling.logit_bias, file.settings.sampling.logit_bias);
  EXPECT_EQ(back.settings.sampling.dry_breakers, file.settings.sampling.dry_breakers);
  EXPECT_EQ(back.settings.max_tokens, 50);
  EXPECT_EQ(back.settings.stop, (std::vector<std::string>{"END", "\n\n"}));
  EXPECT_FALSE(back.settings.thinking);
  EXPECT_TRUE(back.settings.json);
  EXPECT_EQ(back.settings.context, 4096);
}

// A file as the first version wrote it, without later additions.
TEST_F(ChatFileTest, ReadsAChatOfTheFirstVersion) {
  write(R"({"leq_chat": 1, "model": "small.leq", "chat_template": "chatml", "replies": 1,
      "messages": [{"role": "user", "content": "Hi."}],
      "settings": {"frequency_penalty": 0.0, "min_p": 0.05, "penalties_when_greedy": false,
        "presence_penalty": 0.0, "repeat_last_n": 64, "repeat_penalty": 1.0, "seed": 7,
        "temp": 0.7, "top_k": 40, "top_p": 0.95}})");
  const ChatFile back = load_chat(path_);
  EXPECT_EQ(back.settings.sampling.temperature, 0.7f);
  EXPECT_EQ(back.settings.sampling.mirostat, 0);
  EXPECT_EQ(back.settings.sampling.typical_p, 1);
  EXPECT_TRUE(back.settings.sampling.logit_bias.empty());
  EXPECT_EQ(back.settings.sampling.dry_breakers, SamplingSettings().dry_breakers);
  EXPECT_EQ(back.settings.max_tokens, -1);
  EXPECT_TRUE(back.settings.stop.empty() && back.settings.thinking && !back.settings.json);
  EXPECT_EQ(back.settings.context, 0);
}

TEST_F(ChatFileTest, TheModelsNameMayBeNoUtf8) {
  ChatFile file = example();
  file.model = "small\xff.leq";
  save_chat(path_, file);
  EXPECT_EQ(load_chat(path_).model, "small\ufffd.leq");
}

TEST_F(ChatFileTest, NumbersArePlainToRead) {
  save_chat(path_, example());
  EXPECT_NE(text().find("\"temp\": 0.7,"), std::string::npos) << text();
}

TEST_F(ChatFileTest, RefusesEveryTruncatedPrefix) {
  save_chat(path_, example());
  const std::string whole = text();
  for (std::size_t length = 0; length + 2 < whole.size(); ++length) {
    write(whole.substr(0, length));
    EXPECT_NE(load_error().find("chat.json"), std::string::npos) << length;
  }
}

TEST_F(ChatFileTest, NamesWhatIsWrong) {
  struct Case {
    std::string from, to, expected;
  };
  const std::vector<Case> cases = {
      {"\"leq_chat\": 1", "\"leq_chat\": 2", "version 2"},
      {"leq_chat", "other", "not a saved chat"},
      {"\"replies\": 4", "\"replies\": -1", "replies"},
      {"\"replies\": 4", "\"replies\": 4294967296", "replies"},
      {"\"replies\": 4", "\"replies\": \"4\"", "replies"},
      {"\"seed\": 18446744073709551615", "\"seed\": -1", "seed"},
      {"\"temp\": 0.7", "\"temp\": -0.7", "temperature is -0.7"},
      {"\"temp\": 0.7", "\"heat\": 0.7", "temp"},
      {"\"5-inf\"", "\"5\"", "logit_bias is '5'"},
      {"\"5-inf\"", "5", "logit_bias"},
      {"\"max_tokens\": 50", "\"max_tokens\": -50", "max_tokens"},
      {"\"context\": 4096", "\"context\": \"4096\"", "context"},
      {"\"thinking\": false", "\"thinking\": 0", "thinking"},
      {"\"format\": \"json\"", "\"format\": \"xml\"", "format: expected json, found 'xml'"},
      {"\"END\"", "7", "stop"},
      {"\"END\"", "\"\"", "stop"},
      {"\"\\n\"", "\"\"", "dry_sequence_breaker has 0 bytes"},
      {"\"mirostat\": 2", "\"mirostat\": 3", "mirostat"},
      {"\"mirostat\": 2", "\"mirostat\": 1", "mirostat is 1, expected 0 (off) or 2"},
      {"\"top_k\": -1", "\"top_k\": 99999999999", "top_k"},
      {"\"role\": \"user\"", "\"role\": \"tool\"", "message 1"},
      {"\"role\": \"user\"", "\"role\": \"system\"", "message 1"},
      {"\"content\": \" Hi.\"", "\"content\": 7", "message 2"},
      {"\"messages\": [", "\"messages\": 1, \"more\": [", "messages"},
      {"\"settings\"", "\"sets\"", "settings"},
  };
  for (const Case& c : cases) {
    write_changed(c.from, c.to);
    EXPECT_NE(load_error().find(c.expected), std::string::npos) << c.to << " -> " << load_error();
  }
}

TEST_F(ChatFileTest, RefusesTextThatIsNoUtf8) {
  write_changed("Be brief.", "Be \xff");
  EXPECT_NE(load_error(), "");
}

TEST_F(ChatFileTest, AFailedSaveLeavesTheOldFile) {
  save_chat(path_, example());
  const std::string before = text();
  EXPECT_THROW(save_chat(folder_ / "none" / "chat.json", example()), Error);
  EXPECT_THROW(load_chat(folder_ / "none.json"), Error);
  EXPECT_EQ(text(), before);
}

}  // namespace
}  // namespace leq
