#include "server/metrics.h"

#include <array>
#include <charconv>
#include <string_view>

namespace leq {
namespace {

// The shortest text of a number that reads back as the same, in any locale.
std::string number(double value) {
  std::array<char, 32> room;
  return {room.data(), std::to_chars(room.data(), room.data() + room.size(), value).ptr};
}

double rate(std::int64_t tokens, double seconds) {
  return seconds > 0 ? static_cast<double>(tokens) / seconds : 0;
}

double share(std::int64_t part, std::int64_t whole) {
  return whole > 0 ? static_cast<double>(part) / static_cast<double>(whole) : 0;
}

struct Metric {
  std::string_view name, type, help;
  double value;
};

std::string head(std::string_view name, std::string_view type, std::string_view help) {
  const std::string full = "leq:" + std::string(name);
  return "# HELP " + full + ' ' + std::string(help) + "\n# TYPE " + full + ' ' + std::string(type) +
         '\n';
}

// Each bound counts all that is below it.
std::string histogram_text(std::string_view name, std::string_view help,
                           const TimeHistogram& histogram) {
  std::string text = head(name, "histogram", help);
  const std::string full = "leq:" + std::string(name);
  std::int64_t below = 0;
  for (std::size_t i = 0; i < histogram.counts.size(); ++i) {
    below += histogram.counts[i];
    const std::string bound =
        i < TimeHistogram::kBounds.size() ? number(TimeHistogram::kBounds[i]) : std::string("+Inf");
    text += full + "_bucket{le=\"" + bound + "\"} " + std::to_string(below) + '\n';
  }
  return text + full + "_sum " + number(histogram.sum) + '\n' + full + "_count " +
         std::to_string(below) + '\n';
}

}  // namespace

std::string metrics_text(const EngineStatus& status) {
  const EngineCounts& counts = status.counts;
  const auto whole = [](auto count) { return static_cast<double>(count); };
  const std::int64_t used = status.pages - status.free_pages - status.idle_pages;
  const Metric metrics[] = {
      {"prompt_tokens_total", "counter", "tokens of prompts fed", whole(counts.prompt_tokens)},
      {"prompt_tokens_cached_total", "counter", "tokens of prompts that were there already",
       whole(counts.cached_tokens)},
      {"tokens_predicted_total", "counter", "tokens of replies", whole(counts.reply_tokens)},
      {"prompt_seconds_total", "counter", "time of feeding prompts", status.prompt_seconds},
      {"tokens_predicted_seconds_total", "counter", "time of writing replies",
       status.reply_seconds},
      {"n_decode_total", "counter", "steps of the engine", whole(counts.steps)},
      {"requests_total", "counter", "replies asked for", whole(status.requests)},
      {"requests_refused_total", "counter", "calls refused while the queue was full",
       whole(status.refused)},
      {"requests_failed_total", "counter", "replies that failed", whole(status.failed)},
      {"requests_cancelled_total", "counter",
       "requests cancelled because the client closed the connection", whole(status.cancelled)},
      {"evictions_total", "counter", "times that a reply gave up its pages",
       whole(counts.evictions)},
      {"draft_tokens_total", "counter", "draft tokens checked", whole(counts.draft_tokens)},
      {"accepted_tokens_total", "counter", "draft tokens accepted", whole(counts.accepted_tokens)},
      {"prompt_tokens_seconds", "gauge", "tokens of prompts in a second, mean over replies",
       rate(status.prompt_fed, status.prompt_seconds)},
      {"predicted_tokens_seconds", "gauge", "tokens of replies in a second, mean over replies",
       rate(status.reply_decoded, status.reply_seconds)},
      {"kv_cache_usage_ratio", "gauge", "share of the KV cache's pages in use",
       share(used, status.pages)},
      {"requests_processing", "gauge", "replies being written", whole(status.running)},
      {"requests_deferred", "gauge", "replies that wait for a sequence", whole(status.waiting)},
  };
  std::string text;
  for (const Metric& metric : metrics) {
    text += head(metric.name, metric.type, metric.help) + "leq:" + std::string(metric.name) + ' ' +
            number(metric.value) + '\n';
  }
  // vLLM's names, which dashboards know.
  return text +
         histogram_text("time_to_first_token_seconds", "from a request to its first token",
                        status.first_token) +
         histogram_text("inter_token_latency_seconds", "from one token of a reply to its next",
                        status.next_token) +
         histogram_text("e2e_request_latency_seconds", "from a request to its reply's end",
                        status.whole_reply);
}

}  // namespace leq
