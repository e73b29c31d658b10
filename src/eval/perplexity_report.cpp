#include "eval/perplexity_report.h"

#include <cmath>

#include "base/error.h"
#include "base/json.h"
#include "base/text.h"

namespace leq {
namespace {

bool is_wikitext2_test(const PerplexityReport& report) {
  return report.dataset_hash == kWikitext2TestSha256;
}

template <class T>
void require_equal(const T& here, const Json& earlier, const char* key, std::string_view source) {
  const T there = json_get<T>(earlier, key, source);
  require(here == there, "the runs do not measure the same thing: ", key, " is ", here,
          " here and ", there, " in ", source, "; run both with the same text and protocol",
          std::string_view(key) == "tokens" ? " (models with other tokenizers do not compare by "
                                              "token)"
                                            : "");
}

}  // namespace

Row report_row(const PerplexityReport& report) {
  constexpr int kShown = 4;
  return {{"ppl", Cell(report.result.ppl, kShown)},
          {"nll", Cell(report.result.nll, kShown)},
          {"stderr", Cell(report.result.standard_error, kShown)},
          {"tokens", report.tokens},
          {"windows", report.windows},
          {"scored", report.scored},
          {"protocol", std::string(protocol_name(report.settings.protocol))},
          {"window", report.settings.window},
          {"stride", report.settings.stride},
          {"join", std::string(join_name(report.settings.join))},
          {"dataset", report.dataset},
          {"dataset_hash", report.dataset_hash},
          {"text_sha256", report.text_sha256},
          {"model", report.model},
          {"type", report.type},
          {"bits_per_weight", Cell(report.bits_per_weight, 2)},
          {"cache_type_k", report.key_type},
          {"cache_type_v", report.value_type}};
}

std::string report_text(const PerplexityReport& report) {
  const std::string known = is_wikitext2_test(report) ? " (WikiText-2 raw test)" : "";
  std::string out = "protocol: " + describe(report.settings) + "\n" +
                    "dataset:  " + report.dataset + ", SHA-256 " + report.dataset_hash + known +
                    "\n";
  if (const std::string check = join_check(report); !check.empty()) out += check + "\n";
  Table table;
  table.add(
      {{"model", report.model},
       {"type", report.type},
       {"bits/weight", Cell(report.bits_per_weight, 2)},
       {"KV", report.key_type == report.value_type ? report.key_type
                                                   : report.key_type + "/" + report.value_type},
       {"tokens", report.tokens},
       {"windows", report.windows},
       {"scored", report.scored},
       {"nll", Cell(report.result.nll, 5)},
       {"PPL", fixed(report.result.ppl, 4) + " +/- " + fixed(report.result.standard_error, 4)}});
  return out + table.text();
}

std::string join_check(const PerplexityReport& report) {
  const bool applies = report.vocab == kGpt2Vocabulary && is_wikitext2_test(report) &&
                       report.settings.join == Join::hf;
  if (!applies) return "";
  const std::string expected = with_commas(kWikitext2TestGpt2Tokens);
  if (report.tokens == kWikitext2TestGpt2Tokens) {
    return "join check: " + expected + " GPT-2 tokens, as they must be";
  }
  return "join check: FAILED: expected " + expected + " GPT-2 tokens, found " +
         with_commas(report.tokens) + "; is the model's tokenizer GPT-2's?";
}

EarlierRun require_same_measurement(const PerplexityReport& report, const Json& earlier,
                                    std::string_view source) {
  require(earlier.is_object(), source, ": expected the object that leq-perplexity ",
          Setting{"output"}, " json writes");
  const ProtocolSettings& settings = report.settings;
  require_equal(std::string(protocol_name(settings.protocol)), earlier, "protocol", source);
  require_equal(std::string(join_name(settings.join)), earlier, "join", source);
  require_equal(settings.window, earlier, "window", source);
  require_equal(settings.stride, earlier, "stride", source);
  require_equal(report.dataset_hash, earlier, "dataset_hash", source);
  require_equal(report.text_sha256, earlier, "text_sha256", source);
  require_equal(report.tokens, earlier, "tokens", source);
  require_equal(report.windows, earlier, "windows", source);
  require_equal(report.scored, earlier, "scored", source);
  EarlierRun run;
  run.ppl = json_get<double>(earlier, "ppl", source);
  run.standard_error = json_get<double>(earlier, "stderr", source);
  require(std::isfinite(run.ppl) && run.ppl > 0, source,
          ": ppl: expected a positive number, found ", run.ppl);
  run.source = source;
  return run;
}

Row comparison_row(const PerplexityReport& report, const EarlierRun& earlier) {
  return {{"against", earlier.source},
          {"against_ppl", Cell(earlier.ppl, 4)},
          {"ratio", Cell(report.result.ppl / earlier.ppl, 5)},
          {"difference", Cell(report.result.ppl - earlier.ppl, 4)}};
}

}  // namespace leq
