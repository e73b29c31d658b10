// Tests the contents of a run's report, and the rules for when two runs may be compared.
#include "eval/report.h"

#include <gtest/gtest.h>

#include <cmath>

#include "base/error.h"
#include "base/json.h"
#include "errors.h"

namespace leq {
namespace {

PerplexityReport sample() {
  PerplexityReport report;
  report.model = "m.leq";
  report.type = "int8";
  report.key_type = report.value_type = "f16";
  report.vocab = kGpt2Vocabulary;
  report.settings = resolve_protocol({}, 1024);
  report.dataset = "wiki.test.raw";
  report.dataset_hash = kWikitext2TestSha256;
  report.text_sha256 = "abc";
  report.tokens = kWikitext2TestGpt2Tokens;
  report.windows = 280;
  report.scored = 286440;
  report.result = {.nll = std::log(29.94),
                   .ppl = 29.94,
                   .standard_error = 0.5,
                   .windows = 280,
                   .scored = 286440};
  return report;
}

std::string refusal(const PerplexityReport& report, const Json& earlier) {
  return test::error_of([&] { require_same_measurement(report, earlier, "other.json"); });
}

TEST(PerplexityReport, JsonHasTheKeysThatScriptsRead) {
  const PerplexityReport report = sample();
  const Json json = parse_json(json_object(report_row(report)), "report");
  EXPECT_EQ(json.at("ppl").get<double>(), report.result.ppl);
  EXPECT_EQ(json.at("nll").get<double>(), report.result.nll);
  EXPECT_EQ(json.at("stderr").get<double>(), 0.5);
  EXPECT_EQ(json.at("tokens").get<std::int64_t>(), 287644);
  EXPECT_EQ(json.at("windows").get<std::int64_t>(), 280);
  EXPECT_EQ(json.at("scored").get<std::int64_t>(), 286440);
  EXPECT_EQ(json.at("protocol").get<std::string>(), "hf");
  EXPECT_EQ(json.at("dataset_hash").get<std::string>(), kWikitext2TestSha256);
  EXPECT_EQ(json.at("text_sha256").get<std::string>(), "abc");
  EXPECT_EQ(json.at("join").get<std::string>(), "hf");
}

TEST(PerplexityReport, TextNamesTheDataSetByItsHash) {
  PerplexityReport report = sample();
  const std::string text = report_text(report);
  for (const auto* part :
       {"hf: windows of 1024 tokens", "WikiText-2 raw test", "29.9400 +/- 0.5000",
        "join check: 287,644 GPT-2 tokens, as they must be"}) {
    EXPECT_NE(text.find(part), std::string::npos) << part << " in\n" << text;
  }
  report.dataset_hash[0] = '0';
  EXPECT_EQ(report_text(report).find("WikiText-2"), std::string::npos);
}

TEST(PerplexityReport, JoinCheckIsForGpt2sVocabularyOnJoinedWikiText) {
  PerplexityReport report = sample();
  report.tokens = 284614;
  EXPECT_EQ(join_check(report),
            "join check: FAILED: expected 287,644 GPT-2 tokens, found 284,614; is the model's "
            "tokenizer GPT-2's?");
  report.vocab = 32000;
  EXPECT_EQ(join_check(report), "");
}

TEST(Comparison, GivesRatioAndDifference) {
  const PerplexityReport report = sample();
  Json earlier = parse_json(json_object(report_row(report)), "earlier");
  earlier["ppl"] = 29.0;
  const EarlierRun run = require_same_measurement(report, earlier, "other.json");
  const Json json = parse_json(json_object(comparison_row(report, run)), "comparison");
  EXPECT_DOUBLE_EQ(json.at("ratio").get<double>(), 29.94 / 29.0);
  EXPECT_DOUBLE_EQ(json.at("difference").get<double>(), 29.94 - 29.0);
  EXPECT_EQ(json.at("against_ppl").get<double>(), 29.0);
}

TEST(Comparison, IsRefusedWithBothValuesWhereTheMeasurementsDiffer) {
  const PerplexityReport report = sample();
  const Json same = parse_json(json_object(report_row(report)), "earlier");
  const auto changed = [&](const char* key, const Json& value) {
    Json json = same;
    json[key] = value;
    return refusal(report, json);
  };
  EXPECT_EQ(refusal(report, same), "");
  EXPECT_EQ(changed("protocol", "llamacpp-512"),
            "the runs do not measure the same thing: protocol is hf here and llamacpp-512 in "
            "other.json; run both with the same text and protocol");
  for (const auto* key : {"join", "dataset_hash", "text_sha256"}) {
    EXPECT_NE(changed(key, "x").find(" and x in other.json"), std::string::npos) << key;
  }
  for (const auto* key : {"window", "stride", "tokens", "windows", "scored"}) {
    EXPECT_NE(changed(key, 7).find(" and 7 in other.json"), std::string::npos) << key;
    EXPECT_NE(changed(key, nullptr), "") << key;
  }
  EXPECT_NE(changed("ppl", -1.0).find("expected a positive number"), std::string::npos);
  EXPECT_NE(refusal(report, Json::array()).find("expected the object"), std::string::npos);
  EXPECT_NE(refusal(report, Json::object()), "");
}

}  // namespace
}  // namespace leq
