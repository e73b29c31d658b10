// A comparison from its steps to its report: resumed runs, equal numbers in page, JSON and CSV, and
// well-formed pages.
#include "compare/compare.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <fstream>
#include <regex>
#include <set>

#include "base/error.h"
#include "base/file.h"
#include "compare/analysis.h"
#include "compare/claims.h"
#include "compare/page/write_report.h"
#include "small_comparison.h"

namespace leq::test {
namespace {

// Groups that contain measured times, and groups that are derived from these.
const std::set<std::string> kTimedGroups = {"speed", "batches", "ranks", "fusion"};

Json without_times(Json results) {
  for (const std::string& group : kTimedGroups) results.erase(group);
  for (auto& [spec, file] : results["file"].items()) {
    results["file"][spec].erase("setup_seconds");
  }
  return results;
}

std::string text_of_file(const std::filesystem::path& path) { return read_file(path, 64 << 20); }

class Comparison : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    folder_ = new TemporaryFolder;
    results_ = new Json(run_comparison(small_job(*folder_ / "report")));
    write_report(*results_, *folder_ / "report");
  }
  static void TearDownTestSuite() {
    delete results_;
    delete folder_;
  }
  static std::string written(const std::string& name) {
    return text_of_file(*folder_ / "report" / name);
  }

  static inline TemporaryFolder* folder_ = nullptr;
  static inline Json* results_ = nullptr;
};

TEST_F(Comparison, FindsWhatIsKnownOfTheMethods) {
  const auto kl = [&](const std::string& spec) {
    return *result_number(*results_, "quality", spec, "kl_mean");
  };
  EXPECT_LT(std::abs(kl("base")), 1e-6);
  EXPECT_GT(kl("absmax:int8"), 1e-5);
  EXPECT_GT(kl("absmax:int4-g128"), 5 * kl("absmax:int8"));
  EXPECT_EQ(*result_number(*results_, "file", "simquant:4", "bits_per_weight"),
            *result_number(*results_, "file", "base", "bits_per_weight"));
  EXPECT_GT(*result_number(*results_, "choices choices", "base", "acc"), 0);
}

TEST_F(Comparison, AnInterruptedRunGoesOnToEqualNumbers) {
  const TemporaryFolder folder;
  CompareJob job = small_job(folder / "report");
  int left = 12;  // steps until the user interrupts
  job.progress = [&](std::int64_t, std::int64_t, const std::string&) { --left; };
  job.stop = [&] { return left <= 0; };
  try {
    run_comparison(job);
    FAIL() << "not interrupted";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::interrupted);
  }
  const Json results = run_comparison(small_job(folder / "report"));
  EXPECT_EQ(without_times(results), without_times(*results_));
}

TEST_F(Comparison, AFinishedRunMeasuresNothingAgain) {
  const std::string before = written("report.json");
  const Json again = run_comparison(small_job(*folder_ / "report"));
  EXPECT_EQ(again, *results_);  // including the times
  write_report(again, *folder_ / "report");
  EXPECT_EQ(written("report.json"), before);
}

// Returns whether the numbers of a group differ between the two results.
bool differs(const Json& one, const Json& other, const std::string& group) {
  return one[group] != other[group];
}

TEST_F(Comparison, MeasuresAgainWhatIsAskedForAndKeepsTheRest) {
  const TemporaryFolder folder;
  const std::filesystem::path report = folder / "report";
  std::filesystem::copy(*folder_ / "report", report, std::filesystem::copy_options::recursive);
  CompareJob job = small_job(report);
  job.again = {"speed"};
  const Json speeds = run_comparison(job);
  EXPECT_EQ(without_times(speeds), without_times(*results_));
  EXPECT_EQ(speeds["file"], (*results_)["file"]);
  for (const std::string& group : kTimedGroups) {
    EXPECT_TRUE(differs(speeds, *results_, group)) << group;
  }
  job.again = {"setup"};
  const Json setup = run_comparison(job);
  EXPECT_EQ(without_times(setup), without_times(*results_));
  EXPECT_TRUE(differs(setup, speeds, "file"));
  EXPECT_EQ(setup["speed"], speeds["speed"]);
}

// Collects every number in `json` as text.
void collect_numbers(const Json& json, std::set<std::string>& numbers) {
  if (json.is_number()) numbers.insert(json.dump());
  if (json.is_array()) {
    for (const Json& element : json) collect_numbers(element, numbers);
  }
  if (json.is_object()) {
    for (const auto& [key, value] : json.items()) collect_numbers(value, numbers);
  }
}

// Chart points and inputs by site are thousands of rows and only in the CSV and JSON files.
const std::set<std::string> kNotOnThePage = {"activations", "channels", "weight_histograms",
                                             "activation_histograms", "hidden"};

TEST_F(Comparison, ThePageHasEveryNumberOfTheTables) {
  const std::string page = written("index.html");
  const Json report = parse_json(written("report.json"), "report.json");
  std::set<std::string> numbers, shown;
  for (const auto& [id, table] : report.items()) {
    if (table.is_array() && !kNotOnThePage.contains(id)) collect_numbers(table, numbers);
  }
  const std::regex value("data-value=\"([^\"]*)\"");
  for (auto it = std::sregex_iterator(page.begin(), page.end(), value);
       it != std::sregex_iterator(); ++it) {
    shown.insert((*it)[1]);
  }
  EXPECT_GT(numbers.size(), 500u);
  for (const std::string& number : numbers) EXPECT_TRUE(shown.contains(number)) << number;
}

TEST_F(Comparison, CsvFilesHoldTheNumbersOfTheJson) {
  const Json report = parse_json(written("report.json"), "report.json");
  const std::string csv = written("head_to_head.csv");
  for (const Json& row : report["head_to_head"]) {
    EXPECT_NE(csv.find(row["method"].text()), std::string::npos);
    EXPECT_NE(csv.find(row["KL, nats"].dump()), std::string::npos) << row["KL, nats"];
  }
  EXPECT_TRUE(std::filesystem::exists(*folder_ / "report" / "layers.csv"));
}

TEST_F(Comparison, ThePageIsWellFormedAndNeedsNothingBesideIt) {
  const std::string page = written("index.html");
  EXPECT_EQ(page.find("src="), std::string::npos);
  EXPECT_EQ(page.find("http"), std::string::npos);
  const std::string script = folder_->write("check.py", R"(
import sys
from html.parser import HTMLParser
void = {'meta', 'br', 'hr', 'img', 'link', 'input'}
class Check(HTMLParser):
    def __init__(self):
        super().__init__(); self.open = []; self.ids = set()
    def handle_starttag(self, tag, attributes):
        if tag not in void: self.open.append(tag)
        for name, value in attributes:
            if name == 'id':
                if value in self.ids: sys.exit('id twice: ' + value)
                self.ids.add(value)
    def handle_startendtag(self, tag, attributes): pass
    def handle_endtag(self, tag):
        if not self.open or self.open.pop() != tag: sys.exit('line %d: %s' % (self.getpos()[0], tag))
check = Check()
check.feed(open(sys.argv[1], encoding='utf-8', errors='strict').read()); check.close()
if check.open: sys.exit('left open: ' + ' '.join(check.open))
import xml.etree.ElementTree
xml.etree.ElementTree.parse(sys.argv[2])
)");
  if (std::system("python3 -c pass 2> /dev/null") != 0) GTEST_SKIP() << "needs python3";
  const std::string report = (*folder_ / "report").string();
  const std::string command =
      "python3 " + script + " " + report + "/index.html " + report + "/size_and_kl.svg";
  EXPECT_EQ(std::system(command.c_str()), 0);
}

TEST_F(Comparison, PairsAreTestedInBothDirectionsAlike) {
  const auto outcomes = pair_outcomes(*results_, "window_kl");
  ASSERT_EQ(outcomes.size(), 3u);
  const auto one = pair_outcome(outcomes, "absmax:int8", "absmax:int4-g128");
  const auto other = pair_outcome(outcomes, "absmax:int4-g128", "absmax:int8");
  EXPECT_LT(one->test.mean, 0);
  EXPECT_EQ(one->test.mean, -other->test.mean);
  EXPECT_EQ(one->test.p, other->test.p);
  EXPECT_EQ(one->corrected, std::min(1.0, 3 * one->test.p));
}

TEST_F(Comparison, TheErrorOfALayerIsWithinTheSumOfMeasuredGains) {
  for (const auto& [spec, entry] : (*results_)["layers"].items()) {
    for (const Json& row : entry["layers"]) {
      EXPECT_LE(row["share_error"].get<double>(), 1.001 * row["share_bound"].get<double>() + 1e-9)
          << spec << " " << row["layer"];
    }
  }
}

// Inputs read back as codes times scales equal the exact inputs except for rounding.
TEST_F(Comparison, InputsOfAQuantizedModelAreThoseOfTheOtherRounded) {
  constexpr double kRounding = 0.03;
  const Json& exact = (*results_)["activations"]["base"]["sites"];
  const Json& rounded = (*results_)["activations"]["absmax:int8"]["sites"];
  ASSERT_EQ(exact.size(), rounded.size());
  for (std::size_t i = 0; i < exact.size(); ++i) {
    for (const char* key : {"rms", "absmax"}) {
      const double value = exact[i][key].get<double>();
      EXPECT_NEAR(rounded[i][key].get<double>(), value, kRounding * value) << i << " " << key;
    }
  }
}

TEST_F(Comparison, AnswersEachTableOfThePaper) {
  const Json report = parse_json(written("report.json"), "report.json");
  std::set<std::string> asked;
  for (const Json& row : report["answers"]) {
    asked.insert(row["paper"].text());
    EXPECT_FALSE(row["found here"].text().empty());
  }
  for (const char* table : {"Table 1", "Table 2", "Table 3", "Table 4", "Table 5, Figure 3"}) {
    EXPECT_TRUE(asked.contains(table)) << table;
  }
  EXPECT_EQ(report["table4"].size(), 3u);  // base, absmax:int8, simquant:4
}

CompareJob small_part(const std::filesystem::path& output, const std::string& methods) {
  CompareJob job = small_job(output);
  job.candidates = parse_candidates(methods);
  job.choices.clear();
  job.parts.clear();
  return job;
}

TEST(ComparisonErrors, AMethodThatCannotIsLeftOutAndTold) {
  const TemporaryFolder folder;
  CompareJob job = small_part(folder / "report", "gptq,absmax:int8");
  job.calibration.text = "Too short.";
  std::string said;
  job.say = [&](const std::string& line) { said += line + "\n"; };
  const Json results = run_comparison(job);
  EXPECT_EQ(results["candidates"].dump(), R"(["absmax:int8"])");
  ASSERT_EQ(results["not_measured"].size(), 1u);
  EXPECT_EQ(results["not_measured"][0]["method"].text(), "gptq");
  EXPECT_NE(said.find("gptq, file: left out: "), said.npos) << said;
  write_report(results, folder / "report");
  const std::string page = text_of_file(folder / "report/index.html");
  EXPECT_NE(page.find("calibration needs at least"), page.npos);
}

TEST(ComparisonErrors, LeaveNoFolder) {
  const TemporaryFolder folder;
  CompareJob job = small_part(folder / "report", "absmax:int8");
  job.text = folder.write("short.txt", "Once upon a time.");
  EXPECT_THROW(run_comparison(job), Error);
  EXPECT_FALSE(std::filesystem::exists(folder / "report"));
  job = small_part(folder / "report", "absmax:int8");
  job.choices = {folder.write("questions.jsonl", "{\"a\": 1}\n")};
  EXPECT_THROW(run_comparison(job), Error);
  EXPECT_FALSE(std::filesystem::exists(folder / "report"));
}

// If the model does not support a measurement with ranks, the report says so and has all others.
TEST(HybridComparison, IsMeasuredLayerByLayer) {
  const auto model = shared_path("models/qwen35-tiny");
  if (!model) GTEST_SKIP() << "needs shared/models/qwen35-tiny";
  const TemporaryFolder folder;
  CompareJob job = small_part(folder / "report", "absmax:int8");
  job.checkpoint = *model;
  job.parts = {"layers", "inside"};
  const Json results = run_comparison(job);
  EXPECT_TRUE(results["not_measured"].empty()) << results["not_measured"].dump();
  const Json& layers = results["layers"]["absmax:int8"]["layers"];
  EXPECT_EQ(std::ssize(layers), results["model"]["layers"].get<std::int64_t>() + 1);
  for (std::size_t i = 1; i < layers.size(); ++i) EXPECT_GT(layers[i]["kl_alone"].get<double>(), 0);
  const auto claims = try_claims(results);
  EXPECT_EQ(claims.back().verdict, ClaimVerdict::holds) << claims.back().found;
}

TEST_F(Comparison, ClaimsAreDecidedByTheFigures) {
  // In these results no methods differ, so nothing is significant.
  Json results = *results_;
  for (const auto& [spec, entry] : (*results_)["quality"].items()) {
    results["quality"][spec]["window_nll"] = Json::array({1.0, 2.0, 3.0, 4.0});
  }
  const auto verdict = [](const Json& of, std::string_view text) {
    for (const Claim& claim : try_claims(of)) {
      if (claim.text.starts_with(text)) return claim.verdict;
    }
    return ClaimVerdict::not_tried;
  };
  EXPECT_EQ(verdict(results, "All differences"), ClaimVerdict::does_not_hold);
  EXPECT_EQ(verdict(results, "The error of SimQuant"), ClaimVerdict::holds);
  results["cache_bound"]["simquant:8"][0]["share_4"] = 1.5;
  EXPECT_EQ(verdict(results, "The error of SimQuant"), ClaimVerdict::does_not_hold);
  results["quality"]["absmax:int8"]["ppl"] = 1e6;
  EXPECT_EQ(verdict(results, "Perplexity grows"), ClaimVerdict::does_not_hold);
  EXPECT_EQ(verdict(results, "SmoothQuant has"), ClaimVerdict::not_tried);
}

}  // namespace
}  // namespace leq::test
