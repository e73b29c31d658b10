// Drafts of a model's own multi-token prediction head must not change any token of a C API session.
#include <gtest/gtest.h>

#include "capi/native_model.h"
#include "quantize/run/quantize.h"
#include "reference/mtp_checkpoint.h"
#include "temporary_folder.h"

namespace leq::test {
namespace {

constexpr const char* kSettings = R"({"seed": 5, "ignore_eos": true})";

leq_session_options drafting(const char* how) {
  auto options = sized<leq_session_options>();
  options.context = 256;
  options.threads = 1;
  options.speculate = how;
  return options;
}

TEST(CApiDrafts, TheModelsHeadChangesNoToken) {
  const TemporaryFolder folder;
  const std::string path = (folder.path() / "mtp.leq").string();
  QuantizeOptions quantizing;
  quantizing.type = "f32";
  quantize_checkpoint(write_mtp_checkpoint(folder.path() / "hf", true, true), path, quantizing);
  const auto model = open_model(path);
  const auto prompt = tokenize(model.get(), "abcdefg");
  std::vector<std::vector<leq_token>> written;
  std::vector<std::uint64_t> bytes;
  for (const char* how : {"off", "ngram", "mtp", "auto", static_cast<const char*>(nullptr)}) {
    const leq_session_options options = drafting(how);
    leq_session* session = nullptr;
    leq_error error = no_error();
    ASSERT_EQ(leq_session_new(model.get(), &options, &session, &error), LEQ_OK) << error.text;
    const Owned<leq_session> owned(session);
    auto plan = sized<leq_memory_plan>();
    ASSERT_EQ(leq_plan_memory(path.c_str(), &options, &plan, &error), LEQ_OK) << error.text;
    EXPECT_EQ(plan.total_bytes, plan.weight_bytes + plan.kv_bytes + plan.scratch_bytes);
    bytes.push_back(plan.total_bytes);
    // Generates twice, with leq_feed in between, which clears the caches of model and head.
    const Written first = generate(session, {prompt}, seeded(kSettings, 60));
    leq_logits* logits = nullptr;
    ASSERT_EQ(leq_feed(session, prompt.data(), 3, LEQ_LAST_LOGITS, &logits, &error), LEQ_OK);
    const Owned<leq_logits> fed(logits);
    const Written second = generate(session, {prompt}, seeded(kSettings, 60));
    written.push_back(first.tokens.at(0));
    EXPECT_EQ(second.tokens.at(0), written.back());
  }
  EXPECT_EQ(written[0].size(), 60u);
  for (const auto& tokens : written) EXPECT_EQ(tokens, written[0]);
  EXPECT_GT(bytes[2], bytes[1]) << "the head takes memory, and so it is there";
  EXPECT_EQ(bytes[3], bytes[2]);
  EXPECT_EQ(bytes[4], bytes[2]);
}

TEST(CApiDrafts, WhatCannotDraftIsTold) {
  const auto model = open_model();
  for (const auto& [how, part] :
       {std::pair("mtp", "has no head"), std::pair("magic", "expected auto")}) {
    const leq_session_options options = drafting(how);
    leq_session* session = nullptr;
    leq_error error = no_error();
    EXPECT_EQ(leq_session_new(model.get(), &options, &session, &error), LEQ_BAD_SETTING);
    EXPECT_EQ(std::string(error.setting), "speculate");
    EXPECT_NE(std::string(error.text).find(part), std::string::npos) << error.text;
  }
}

}  // namespace
}  // namespace leq::test
