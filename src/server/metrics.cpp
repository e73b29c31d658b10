#include "server/metrics.h"

#include <array>
#include <charconv>
#include <cstdint>
#include <string_view>

#include "base/text.h"

namespace leq {
namespace {

// The shortest text that reads back as the same number, independent of the locale.
std::string number(double value) {
  std::array<char, 32> buffer;
  return {buffer.data(), std::to_chars(buffer.data(), buffer.data() + buffer.size(), value).ptr};
}

double rate(std::int64_t tokens, double seconds) {
  return seconds > 0 ? static_cast<double>(tokens) / seconds : 0;
}

double share(std::int64_t part, std::int64_t whole) {
  return whole > 0 ? static_cast<double>(part) / static_cast<double>(whole) : 0;
}

struct Metric {
  std::string_view name, type, help;
  double (*value)(const EngineStatus&);
};

double whole(auto count) { return static_cast<double>(count); }

constexpr Metric kMetrics[] = {
    {"prompt_tokens_total", "counter", "tokens of prompts fed",
     [](const EngineStatus& s) { return whole(s.counts.prompt_tokens); }},
    {"prompt_tokens_cached_total", "counter", "tokens of prompts that were there already",
     [](const EngineStatus& s) { return whole(s.counts.cached_tokens); }},
    {"tokens_predicted_total", "counter", "tokens of replies",
     [](const EngineStatus& s) { return whole(s.counts.reply_tokens); }},
    {"prompt_seconds_total", "counter", "time of feeding prompts",
     [](const EngineStatus& s) { return s.prompt_seconds; }},
    {"tokens_predicted_seconds_total", "counter", "time of writing replies",
     [](const EngineStatus& s) { return s.reply_seconds; }},
    {"n_decode_total", "counter", "steps of the engine",
     [](const EngineStatus& s) { return whole(s.counts.steps); }},
    {"requests_total", "counter", "replies asked for",
     [](const EngineStatus& s) { return whole(s.requests); }},
    {"requests_refused_total", "counter", "calls refused while the queue was full",
     [](const EngineStatus& s) { return whole(s.refused); }},
    {"requests_failed_total", "counter", "replies that failed",
     [](const EngineStatus& s) { return whole(s.failed); }},
    {"requests_cancelled_total", "counter",
     "requests cancelled because the client closed the connection",
     [](const EngineStatus& s) { return whole(s.cancelled); }},
    {"evictions_total", "counter", "times that a reply gave up its pages",
     [](const EngineStatus& s) { return whole(s.counts.evictions); }},
    {"draft_tokens_total", "counter", "draft tokens checked",
     [](const EngineStatus& s) { return whole(s.counts.draft_tokens); }},
    {"accepted_tokens_total", "counter", "draft tokens accepted",
     [](const EngineStatus& s) { return whole(s.counts.accepted_tokens); }},
    {"prompt_tokens_seconds", "gauge", "tokens of prompts in a second, mean over replies",
     [](const EngineStatus& s) { return rate(s.prompt_fed, s.prompt_seconds); }},
    {"predicted_tokens_seconds", "gauge", "tokens of replies in a second, mean over replies",
     [](const EngineStatus& s) { return rate(s.reply_decoded, s.reply_seconds); }},
    {"kv_cache_usage_ratio", "gauge", "share of the KV cache's pages in use",
     [](const EngineStatus& s) { return share(s.pages - s.free_pages - s.idle_pages, s.pages); }},
    {"requests_processing", "gauge", "replies being written",
     [](const EngineStatus& s) { return whole(s.running); }},
    {"requests_deferred", "gauge", "replies that wait for a sequence",
     [](const EngineStatus& s) { return whole(s.waiting); }},
};

// Histograms under vLLM's names, which existing dashboards use.
struct HistogramMetric {
  std::string_view name, help;
  TimeHistogram EngineStatus::*value;
};
constexpr HistogramMetric kHistograms[] = {
    {"time_to_first_token_seconds", "from a request to its first token",
     &EngineStatus::first_token},
    {"inter_token_latency_seconds", "from one token of a reply to its next",
     &EngineStatus::next_token},
    {"e2e_request_latency_seconds", "from a request to its reply's end",
     &EngineStatus::whole_reply},
};

std::string head(std::string_view name, std::string_view type, std::string_view help) {
  const std::string full = "leq:" + std::string(name);
  return "# HELP " + full + ' ' + std::string(help) + "\n# TYPE " + full + ' ' + std::string(type) +
         '\n';
}

// The label `model="NAME"`, escaped for Prometheus; empty if there is no name.
std::string label_of(const std::string& model) {
  if (model.empty()) return "";
  return "model=\"" +
         replace_all(replace_all(replace_all(model, "\\", "\\\\"), "\"", "\\\""), "\n", "\\n") +
         '"';
}

std::string sample(std::string_view name, const std::string& labels, const std::string& value) {
  return "leq:" + std::string(name) + (labels.empty() ? "" : "{" + labels + "}") + ' ' + value +
         '\n';
}

// Buckets are cumulative: each counts all values up to its bound.
std::string histogram_samples(std::string_view name, const std::string& labels,
                              const TimeHistogram& histogram) {
  std::string text;
  std::int64_t below = 0;
  for (std::size_t i = 0; i < histogram.counts.size(); ++i) {
    below += histogram.counts[i];
    const std::string bound =
        i < TimeHistogram::kBounds.size() ? number(TimeHistogram::kBounds[i]) : std::string("+Inf");
    text +=
        sample(std::string(name) + "_bucket",
               labels + (labels.empty() ? "" : ",") + "le=\"" + bound + '"', std::to_string(below));
  }
  return text + sample(std::string(name) + "_sum", labels, number(histogram.sum)) +
         sample(std::string(name) + "_count", labels, std::to_string(below));
}

}  // namespace

std::string metrics_text(std::span<const ModelMetrics> models) {
  std::string text;
  for (const Metric& metric : kMetrics) {
    text += head(metric.name, metric.type, metric.help);
    for (const ModelMetrics& one : models) {
      text += sample(metric.name, label_of(one.model), number(metric.value(one.status)));
    }
  }
  for (const HistogramMetric& metric : kHistograms) {
    text += head(metric.name, "histogram", metric.help);
    for (const ModelMetrics& one : models) {
      text += histogram_samples(metric.name, label_of(one.model), one.status.*metric.value);
    }
  }
  return text;
}

std::string pool_metrics_text(const PoolCounts& counts) {
  const auto metric = [](std::string_view name, std::string_view type, std::string_view help,
                         auto value) {
    return head(name, type, help) + sample(name, "", number(whole(value)));
  };
  return metric("models_loaded", "gauge", "models in memory", counts.loaded) +
         metric("models_memory_bytes", "gauge", "memory of loaded models", counts.memory_bytes) +
         metric("model_loads_total", "counter", "models loaded", counts.loads) +
         metric("model_unloads_total", "counter", "models unloaded for others", counts.drops) +
         metric("model_load_failures_total", "counter", "models that could not be loaded",
                counts.failures);
}

}  // namespace leq
