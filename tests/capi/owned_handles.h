// The C API's handles as RAII objects for tests, with an error that a failed expectation
// prints.
#pragma once

#include <gtest/gtest.h>
#include <leq.h>

#include <cstring>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "models_fixture.h"

namespace leq::test {

struct FreeHandles {
  void operator()(leq_model* handle) const { leq_close(handle); }
  void operator()(leq_session* handle) const { leq_session_close(handle); }
  void operator()(leq_replies* handle) const { leq_replies_free(handle); }
  void operator()(leq_logits* handle) const { leq_logits_free(handle); }
  void operator()(leq_grammar* handle) const { leq_grammar_free(handle); }
  void operator()(leq_cancel* handle) const { leq_cancel_free(handle); }
  void operator()(char* block) const { leq_free(block); }
  void operator()(leq_token* block) const { leq_free(block); }
};
template <class T>
using Owned = std::unique_ptr<T, FreeHandles>;

inline leq_error no_error() {
  leq_error error;
  std::memset(&error, 0, sizeof error);
  error.size = sizeof error;
  return error;
}

// A struct of options or results with its size set and all other members 0.
template <class T>
T sized() {
  T value;
  std::memset(&value, 0, sizeof value);
  value.size = sizeof value;
  return value;
}

inline std::filesystem::path story_path() {
  return quantized(std::string(LEQ_SOURCE_DIR) + "/examples/storyteller", "int8");
}

inline Owned<leq_model> open_model(const std::filesystem::path& path = story_path()) {
  leq_error error = no_error();
  leq_model* model = nullptr;
  EXPECT_EQ(leq_open(path.c_str(), nullptr, &model, &error), LEQ_OK) << error.text;
  return Owned<leq_model>(model);
}

inline Owned<leq_session> new_session(leq_model* model, int sequences = 1,
                                      std::int64_t context = 1024) {
  leq_error error = no_error();
  auto options = sized<leq_session_options>();
  options.threads = 2;
  options.context = context;
  options.sequences = sequences;
  leq_session* session = nullptr;
  EXPECT_EQ(leq_session_new(model, &options, &session, &error), LEQ_OK) << error.text;
  return Owned<leq_session>(session);
}

inline std::vector<leq_token> tokenize(const leq_model* model, std::string_view text,
                                       std::uint32_t flags = 0) {
  leq_error error = no_error();
  leq_token* tokens = nullptr;
  std::size_t count = 0;
  EXPECT_EQ(leq_tokenize(model, text.data(), text.size(), flags, &tokens, &count, &error), LEQ_OK)
      << error.text;
  const Owned<leq_token> owned(tokens);
  return {tokens, tokens + count};
}

struct Told {
  leq_status status = LEQ_OK;
  std::string text, setting;
};

struct Written {
  Told told;
  std::vector<leq_reply> replies;
  std::vector<std::string> texts;
  std::vector<std::vector<leq_token>> tokens;
  Owned<leq_replies> owner;
};

inline Written generate(leq_session* session, const std::vector<std::vector<leq_token>>& prompts,
                        const leq_generate_options& options) {
  std::vector<const leq_token*> pointers;
  std::vector<std::size_t> counts;
  for (const auto& prompt : prompts) {
    pointers.push_back(prompt.data());
    counts.push_back(prompt.size());
  }
  leq_error error = no_error();
  leq_replies* replies = nullptr;
  Written written;
  written.told.status = leq_generate(session, pointers.data(), counts.data(), prompts.size(),
                                     &options, &replies, &error);
  written.told.text = error.text;
  written.told.setting = error.setting;
  written.owner.reset(replies);
  for (std::size_t i = 0; i < leq_replies_count(replies); ++i) {
    auto reply = sized<leq_reply>();
    EXPECT_EQ(leq_replies_at(replies, i, &reply, nullptr), LEQ_OK);
    written.texts.emplace_back(reply.text, reply.text_bytes);
    written.tokens.emplace_back(reply.tokens, reply.tokens + reply.token_count);
    written.replies.push_back(reply);
  }
  return written;
}

}  // namespace leq::test
