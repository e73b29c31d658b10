#include "eval/perplexity.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <iterator>
#include <numeric>

#include "base/error.h"
#include "base/file.h"
#include "base/text.h"

namespace leq {
namespace {

constexpr std::int64_t kLongestDefaultWindow = 2048;
constexpr std::int64_t kDefaultStride = 512;
constexpr std::int64_t kLlamacppWindow = 512;

struct ProtocolRow {
  Protocol protocol;
  std::string_view name;
  Join join;
  std::string_view meaning;
};
constexpr std::array<ProtocolRow, 3> kProtocols = {{
    {Protocol::hf, "hf", Join::hf, "side by side, each scored from its second token on"},
    {Protocol::hf_stride, "hf-stride", Join::hf, "overlapping, each token scored once"},
    {Protocol::llamacpp_512, "llamacpp-512", Join::none,
     "side by side, BOS first where the model has one, the second half scored"},
}};

const ProtocolRow& row_of(Protocol protocol) {
  return *std::ranges::find(kProtocols, protocol, &ProtocolRow::protocol);
}

const ProtocolRow& row_of(std::string_view name) {
  const auto* found = std::ranges::find(kProtocols, name, &ProtocolRow::name);
  require(found != kProtocols.end(), Setting{"protocol"},
          ": expected hf | hf-stride | llamacpp-512, found '", printable(name), "'");
  return *found;
}

Join resolve_join(const ProtocolRequest& request, const ProtocolRow& row) {
  if (!request.join) return row.join;
  const bool hf = *request.join == "hf";
  require(hf || *request.join == "none", Setting{"join"}, ": expected hf | none, found '",
          printable(*request.join), "'");
  require(!hf || row.protocol != Protocol::llamacpp_512, Setting{"join"},
          " hf: protocol llamacpp-512 takes the file as it is; leave ", Setting{"join"}, " out");
  return hf ? Join::hf : Join::none;
}

std::int64_t resolve_window(const ProtocolRequest& request, const ProtocolRow& row,
                            std::int64_t context) {
  if (row.protocol == Protocol::llamacpp_512) {
    require(request.window.value_or(kLlamacppWindow) == kLlamacppWindow, Setting{"window"}, " ",
            request.window.value_or(0), ": protocol llamacpp-512 has windows of 512; leave ",
            Setting{"window"}, " out");
    require(context >= kLlamacppWindow, Setting{"protocol"},
            " llamacpp-512: needs windows of 512, the model has a context of ", context);
    return kLlamacppWindow;
  }
  const std::int64_t window = request.window.value_or(std::min(context, kLongestDefaultWindow));
  require(window >= 2 && window <= context, Setting{"window"}, " ", window,
          ": expected 2 to the model's context of ", context);
  return window;
}

std::int64_t resolve_stride(const ProtocolRequest& request, const ProtocolRow& row,
                            std::int64_t window) {
  if (row.protocol != Protocol::hf_stride) {
    require(!request.stride || *request.stride == window, Setting{"stride"}, " ",
            request.stride.value_or(0), ": protocol ", row.name, " has none; use ",
            Setting{"protocol"}, " hf-stride");
    return window;
  }
  const std::int64_t stride =
      request.stride.value_or(window < 2 * kDefaultStride ? window / 2 : kDefaultStride);
  require(stride >= 1 && stride <= window, Setting{"stride"}, " ", stride,
          ": expected 1 to the window of ", window);
  return stride;
}

}  // namespace

std::string_view protocol_name(Protocol protocol) { return row_of(protocol).name; }

ProtocolSettings resolve_protocol(const ProtocolRequest& request, std::int64_t context) {
  const ProtocolRow& row = row_of(request.protocol);
  ProtocolSettings settings;
  settings.protocol = row.protocol;
  settings.join = resolve_join(request, row);
  settings.window = resolve_window(request, row, context);
  settings.stride = resolve_stride(request, row, settings.window);
  require(request.chunks >= 0, Setting{"chunks"}, " ", request.chunks,
          ": expected 0 (all) or more");
  settings.chunks = request.chunks;
  return settings;
}

std::vector<Window> plan_windows(const ProtocolSettings& settings, std::int64_t tokens,
                                 std::string_view text) {
  require(tokens >= settings.window, text, " has ", tokens, " tokens, one window has ",
          settings.window, "; take a longer text or a smaller ", Setting{"window"});
  std::vector<Window> windows;
  std::int64_t scored_to = 0;  // all tokens before this index are scored
  for (std::int64_t first = 0; scored_to < tokens; first += settings.stride) {
    if (settings.chunks > 0 && std::ssize(windows) == settings.chunks) break;
    const std::int64_t end = std::min(first + settings.window, tokens);
    // With disjoint windows, a last window that would be shorter is dropped.
    if (settings.protocol != Protocol::hf_stride && end - first < settings.window) break;
    std::int64_t scored_from = std::max(first + 1, scored_to);
    if (settings.protocol == Protocol::llamacpp_512) scored_from = first + settings.window / 2 + 1;
    if (scored_from < end) windows.push_back({first, end - first, scored_from});
    scored_to = end;
  }
  return windows;
}

std::string describe(const ProtocolSettings& settings) {
  std::string out = std::string(protocol_name(settings.protocol)) + ": windows of " +
                    std::to_string(settings.window) + " tokens";
  if (settings.protocol == Protocol::hf_stride) {
    out += " every " + std::to_string(settings.stride);
  }
  out += ", " + std::string(row_of(settings.protocol).meaning) + "; ";
  return out + (settings.join == Join::hf ? "rows joined by two newlines (join hf)"
                                          : "the text as it is (join none)");
}

namespace {

constexpr std::uint64_t kLargestFile = 4ull << 30;

// Characters that Python's str.isspace accepts.
bool is_space(char32_t c) {
  if (c < 0x80) return (c >= 0x09 && c <= 0x0d) || (c >= 0x1c && c <= 0x20);
  constexpr char32_t kOthers[] = {0x85, 0xa0, 0x1680, 0x2028, 0x2029, 0x202f, 0x205f, 0x3000};
  return (c >= 0x2000 && c <= 0x200a) || std::ranges::find(kOthers, c) != std::end(kOthers);
}

bool is_blank(std::string_view row) {
  while (!row.empty()) {
    const std::size_t length = utf8_length(row);
    if (length == 0 || !is_space(decode_utf8(row))) return false;
    row.remove_prefix(length);
  }
  return true;
}

}  // namespace

std::string_view join_name(Join join) { return join == Join::hf ? "hf" : "none"; }

std::string join_rows(std::string_view raw) {
  std::string text;
  text.reserve(raw.size() * 2);
  for (std::size_t begin = 0; begin < raw.size();) {
    const std::size_t newline = raw.find('\n', begin);
    const std::size_t end = newline == std::string_view::npos ? raw.size() : newline + 1;
    const std::string_view row = raw.substr(begin, end - begin);
    if (begin > 0) text += "\n\n";
    if (!is_blank(row)) text += row;
    begin = end;
  }
  return text;
}

Join default_join(std::string_view dataset_hash) {
  return dataset_hash == kWikitext2TestSha256 ? Join::hf : Join::none;
}

EvaluationText read_evaluation_text(const std::filesystem::path& path, std::optional<Join> join) {
  EvaluationText out;
  std::string raw = read_text_file(path, kLargestFile);
  require(!raw.empty(), path.string(), ": the file is empty; a text to measure is needed");
  if (const auto offset = first_invalid_utf8(raw)) {
    fail(path.string(), ": invalid UTF-8 at offset ", *offset, " (byte ",
         printable(raw.substr(*offset, 1)), "); convert the file to UTF-8");
  }
  out.dataset_hash = sha256_hex(raw);
  out.join = join.value_or(default_join(out.dataset_hash));
  out.text = out.join == Join::hf ? join_rows(raw) : std::move(raw);
  out.text_sha256 = sha256_hex(out.text);
  return out;
}

namespace {

constexpr std::int32_t kSequence = 0;

std::size_t at(std::int64_t value) { return static_cast<std::size_t>(value); }

}  // namespace

WindowLogits::WindowLogits(Session& session, const PerplexityRun& run)
    : session_(session), run_(run) {
  const RunLimits& limits = session.limits();
  chunk_ = std::min({limits.batch_tokens, limits.output_tokens, kOutputRows});
}

void WindowLogits::feed(const Window& window, const std::function<void(const ScoredRows&)>& sink) {
  session_.state().drop(kSequence);
  const auto first = run_.tokens.begin() + window.first;
  window_.assign(first, first + window.count);
  if (run_.window_bos != kNoToken) window_[0] = run_.window_bos;
  for (const Token token : window_) {
    require(token >= 0 && token < vocab(), "token id ", token, ": the model has ", vocab(),
            "; its tokenizer belongs to another model");
  }
  const std::int64_t first_row = window.scored_from - window.first - 1;  // scores the first target
  // The window's last token is only predicted and never fed.
  const std::int64_t rows = window.count - 1;
  for (std::int64_t row = 0; row < rows; row += chunk_) {
    const std::int64_t end = std::min(row + chunk_, rows);
    const std::int64_t scored = std::clamp(first_row, row, end);
    forward(row, scored, end);
    if (scored == end) continue;
    sink({.first = scored - first_row,
          .rows = end - scored,
          .vocab = vocab(),
          .logits = logits_.data(),
          .targets = &window_[at(scored + 1)]});
  }
}

// Runs rows [begin, end) of the window, and downloads the logits of rows from `scored` on.
void WindowLogits::forward(std::int64_t begin, std::int64_t scored, std::int64_t end) {
  if (run_.before_forward) run_.before_forward();
  batch_.clear();
  batch_.add(kSequence, window_.data() + begin, scored - begin, Batch::Want::none);
  batch_.add(kSequence, window_.data() + scored, end - scored, Batch::Want::all);
  const Rows& logits = session_.transformer().forward(batch_, session_.state());
  logits_.resize(at((end - scored) * vocab()));
  if (scored < end) session_.transformer().backend().download(logits, end - scored, logits_);
}

void require_finite_logits(double value, const Window& window, std::int64_t scored_row) {
  require(std::isfinite(value), "token ", window.scored_from - 1 + scored_row,
          " of the text (window at ", window.first,
          "): a logit is not finite; check the file with leq-inspect ", Setting{"verify"},
          ", or try ", Setting{"key_type"}, " f32 ", Setting{"value_type"}, " f32");
}

namespace {

double mean_of(std::span<const double> values) {
  return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

// Standard error of the mean of independent values; 0 for fewer than two values.
double error_of_mean(std::span<const double> values) {
  if (values.size() < 2) return 0;
  const double mean = mean_of(values);
  double squares = 0;
  for (const double value : values) squares += (value - mean) * (value - mean);
  const auto count = static_cast<double>(values.size());
  return std::sqrt(squares / (count - 1) / count);
}

}  // namespace

std::vector<Token> encode_text(const Tokenizer& tokenizer, std::string_view text) {
  return tokenizer.encode(text, {.parse_special = true, .add_bos = tokenizer.add_bos()});
}

double negative_log_likelihood(std::span<const float> logits, std::int64_t target) {
  const double largest = *std::ranges::max_element(logits);
  double sum = 0;
  for (const float logit : logits) sum += std::exp(static_cast<double>(logit) - largest);
  return std::log(sum) + (largest - static_cast<double>(logits[static_cast<std::size_t>(target)]));
}

std::vector<double> score_window(WindowLogits& logits, ThreadPool& pool, const Window& window) {
  std::vector<double> nlls(static_cast<std::size_t>(window.scored()));
  logits.feed(window, [&](const ScoredRows& rows) {
    pool.run(rows.rows, [&](std::int64_t row, int) {
      double& nll = nlls[static_cast<std::size_t>(rows.first + row)];
      nll = negative_log_likelihood(rows.row(row), rows.targets[row]);
      require_finite_logits(nll, window, rows.first + row);
    });
  });
  return nlls;
}

PerplexityResult summarize(Protocol protocol, std::span<const std::vector<double>> window_nlls) {
  std::vector<double> tokens, means;
  for (const auto& nlls : window_nlls) {
    tokens.insert(tokens.end(), nlls.begin(), nlls.end());
    means.push_back(mean_of(nlls));
  }
  const bool by_window = protocol == Protocol::hf;
  PerplexityResult result;
  result.windows = std::ssize(window_nlls);
  result.scored = std::ssize(tokens);
  result.nll = mean_of(by_window ? means : tokens);
  result.ppl = std::exp(result.nll);
  result.standard_error =
      result.ppl * error_of_mean(by_window && means.size() > 1 ? means : tokens);
  return result;
}

PerplexityResult measure_perplexity(Session& session, ThreadPool& pool, const PerplexityRun& run) {
  ensure(!run.windows.empty(), "perplexity: no window to measure");
  WindowLogits logits(session, run);
  std::vector<std::vector<double>> nlls;
  double sum = 0, weight = 0;  // sums over window means for hf, otherwise over tokens
  for (const Window& window : run.windows) {
    nlls.push_back(score_window(logits, pool, window));
    const double share =
        run.protocol == Protocol::hf ? 1.0 : static_cast<double>(nlls.back().size());
    sum += mean_of(nlls.back()) * share;
    weight += share;
    if (run.progress) run.progress(std::ssize(nlls), std::exp(sum / weight));
  }
  return summarize(run.protocol, nlls);
}

}  // namespace leq
