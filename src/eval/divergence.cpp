#include "eval/divergence.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <utility>

#include "base/bytes.h"
#include "base/error.h"
#include "base/file.h"
#include "base/json.h"
#include "base/text.h"
#include "format/leq_layout.h"

namespace leq {
namespace {

using Windows = std::vector<std::vector<RowDivergence>>;

double log_sum_exp(std::span<const float> logits) {
  const double largest = *std::ranges::max_element(logits);
  double sum = 0;
  for (const float logit : logits) sum += std::exp(static_cast<double>(logit) - largest);
  return std::log(sum) + largest;
}

// Standard error of the mean of `values`. Errors are computed over the sums of windows or, if there
// is only one window, over single values.
template <class Value>
Estimate clustered_mean(const Windows& windows, Value value_of) {
  double total = 0, count = 0;
  for (const auto& rows : windows) {
    for (const RowDivergence& row : rows) total += value_of(row);
    count += static_cast<double>(rows.size());
  }
  Estimate mean{.value = total / count};
  double squares = 0;
  const bool by_window = windows.size() > 1;
  for (const auto& rows : windows) {
    double deviation = 0;
    for (const RowDivergence& row : rows) {
      const double part = value_of(row) - mean.value;
      deviation += part;
      if (!by_window) squares += part * part;
    }
    if (by_window) squares += deviation * deviation;
  }
  const double groups = by_window ? static_cast<double>(windows.size()) : count;
  if (groups > 1) mean.error = std::sqrt(groups / (groups - 1) * squares) / count;
  return mean;
}

// Value at the fractional index `at` in [0, n-1] of sorted values, by linear interpolation.
double interpolate(std::span<const double> sorted, double at) {
  const double clamped = std::clamp(at, 0.0, static_cast<double>(sorted.size() - 1));
  const auto below = static_cast<std::size_t>(clamped);
  const std::size_t above = std::min(below + 1, sorted.size() - 1);
  return std::lerp(sorted[below], sorted[above], clamped - static_cast<double>(below));
}

Estimate quantile(std::span<const double> sorted, double share) {
  const auto count = static_cast<double>(sorted.size());
  const double at = share * (count - 1);
  const double step = std::sqrt(count * share * (1 - share));
  return {interpolate(sorted, at),
          (interpolate(sorted, at + step) - interpolate(sorted, at - step)) / 2};
}

PerplexityResult perplexity_of(Protocol protocol, const Windows& windows,
                               double RowDivergence::*nll) {
  std::vector<std::vector<double>> nlls;
  for (const auto& rows : windows) {
    auto& values = nlls.emplace_back();
    for (const RowDivergence& row : rows) values.push_back(row.*nll);
  }
  return summarize(protocol, nlls);
}

}  // namespace

double RowDivergence::delta_p() const { return std::exp(-nll) - std::exp(-nll_base); }

void fill_base(std::span<const float> logits, std::int64_t target, BaseDistribution& out) {
  const double normalizer = log_sum_exp(logits);
  out.log_probs.resize(logits.size());
  for (std::size_t i = 0; i < logits.size(); ++i) {
    out.log_probs[i] = static_cast<double>(logits[i]) - normalizer;
  }
  out.nll = -out.log_probs[static_cast<std::size_t>(target)];
  out.top = std::ranges::max_element(logits) - logits.begin();
}

RowDivergence compare(const BaseDistribution& base, std::span<const float> logits,
                      std::int64_t target) {
  require(base.log_probs.size() == logits.size(), "KL divergence: the base model has ",
          base.log_probs.size(), " tokens, this one ", logits.size(), "; they need one vocabulary");
  const double normalizer = log_sum_exp(logits);
  double kl = 0;
  for (std::size_t i = 0; i < logits.size(); ++i) {
    const double log_p = base.log_probs[i];
    kl += std::exp(log_p) * (log_p - (static_cast<double>(logits[i]) - normalizer));
  }
  RowDivergence row;
  row.kl = std::max(kl, 0.0);  // never negative, but rounding can give -1e-17
  row.nll_base = base.nll;
  row.nll = normalizer - static_cast<double>(logits[static_cast<std::size_t>(target)]);
  row.same_top = std::ranges::max_element(logits) - logits.begin() == base.top;
  return row;
}

void Divergence::add_window(std::vector<RowDivergence> rows) {
  if (!rows.empty()) windows_.push_back(std::move(rows));
}

std::vector<double> Divergence::window_kl() const {
  std::vector<double> means;
  for (const auto& rows : windows_) {
    double sum = 0;
    for (const RowDivergence& row : rows) sum += row.kl;
    means.push_back(sum / static_cast<double>(rows.size()));
  }
  return means;
}

DivergenceResult Divergence::summarize(Protocol protocol) const {
  require(!windows_.empty(), "KL divergence: no position was measured");
  std::vector<double> kl;
  for (const auto& rows : windows_) {
    for (const RowDivergence& row : rows) kl.push_back(row.kl);
  }
  std::ranges::sort(kl);
  DivergenceResult result;
  result.windows = std::ssize(windows_);
  result.scored = std::ssize(kl);
  result.window_kl = window_kl();
  result.kl_mean = clustered_mean(windows_, [](const RowDivergence& row) { return row.kl; });
  result.kl_median = quantile(kl, 0.5);
  result.kl_p99 = quantile(kl, 0.99);
  result.kl_p999 = quantile(kl, 0.999);
  result.same_top1 =
      clustered_mean(windows_, [](const RowDivergence& row) { return row.same_top ? 1.0 : 0.0; });
  result.delta_p_mean =
      clustered_mean(windows_, [](const RowDivergence& row) { return row.delta_p(); });
  const Estimate squares = clustered_mean(
      windows_, [](const RowDivergence& row) { return row.delta_p() * row.delta_p(); });
  const double rms = std::sqrt(squares.value);
  result.delta_p_rms = {rms, rms > 0 ? squares.error / (2 * rms) : 0.0};
  const PerplexityResult own = perplexity(protocol);
  const PerplexityResult base = perplexity_of(protocol, windows_, &RowDivergence::nll_base);
  result.ppl = {own.ppl, own.standard_error};
  result.ppl_base = {base.ppl, base.standard_error};
  const Estimate log_ratio =
      clustered_mean(windows_, [](const RowDivergence& row) { return row.nll - row.nll_base; });
  result.ppl_ratio.value = result.ppl.value / result.ppl_base.value;
  result.ppl_ratio.error = result.ppl_ratio.value * log_ratio.error;
  return result;
}

PerplexityResult Divergence::perplexity(Protocol protocol) const {
  return perplexity_of(protocol, windows_, &RowDivergence::nll);
}

Estimate paired_difference(std::span<const double> first, std::span<const double> second) {
  require(first.size() == second.size() && !first.empty(), "paired windows: ", first.size(),
          " against ", second.size(), "; measure both on the same windows");
  const auto count = static_cast<double>(first.size());
  double sum = 0, squares = 0;
  for (std::size_t i = 0; i < first.size(); ++i) sum += first[i] - second[i];
  const double mean = sum / count;
  for (std::size_t i = 0; i < first.size(); ++i) {
    const double part = first[i] - second[i] - mean;
    squares += part * part;
  }
  return {mean, first.size() < 2 ? 0.0 : std::sqrt(squares / (count - 1) / count)};
}

namespace {

std::size_t index(std::int64_t value) { return static_cast<std::size_t>(value); }

// Fills in the base distribution of a scored row of the current window; called from any thread.
using BaseRow = std::function<void(std::int64_t scored_row, Token target, BaseDistribution& out)>;

std::vector<RowDivergence> compare_window(WindowLogits& logits, ThreadPool& pool,
                                          const Window& window, const BaseRow& base_row) {
  std::vector<RowDivergence> result(index(window.scored()));
  std::vector<BaseDistribution> scratch(index(pool.threads()));
  logits.feed(window, [&](const ScoredRows& rows) {
    pool.run(rows.rows, [&](std::int64_t row, int worker) {
      BaseDistribution& base = scratch[index(worker)];
      base_row(rows.first + row, rows.targets[row], base);
      RowDivergence& out = result[index(rows.first + row)];
      out = compare(base, rows.row(row), rows.targets[row]);
      require_finite_logits(out.nll, window, rows.first + row);
    });
  });
  return result;
}

// Collects the rows of all windows and reports progress.
class Collector {
 public:
  explicit Collector(const PerplexityRun& run) : run_(run) {}

  void add(std::vector<RowDivergence> rows) {
    for (const RowDivergence& row : rows) sum_ += row.kl;
    scored_ += static_cast<double>(rows.size());
    divergence_.add_window(std::move(rows));
    if (run_.progress) run_.progress(std::ssize(divergence_.windows()), sum_ / scored_);
  }
  Divergence take() { return std::move(divergence_); }

 private:
  const PerplexityRun& run_;
  Divergence divergence_;
  double sum_ = 0, scored_ = 0;
};

}  // namespace

WrittenBase write_divergence_base(Session& session, ThreadPool& pool, const PerplexityRun& run,
                                  const std::filesystem::path& path, const DivergenceKey& key) {
  ensure(!run.windows.empty(), "perplexity: no window to measure");
  DivergenceBaseWriter writer(path, key);
  WindowLogits logits(session, run);
  const std::size_t row_bytes = writer.row_bytes();
  std::vector<std::byte> packed;
  std::vector<std::vector<double>> nlls;
  for (const Window& window : run.windows) {
    auto& window_nlls = nlls.emplace_back(index(window.scored()));
    logits.feed(window, [&](const ScoredRows& rows) {
      packed.resize(index(rows.rows) * row_bytes);
      pool.run(rows.rows, [&](std::int64_t row, int) {
        double& nll = window_nlls[index(rows.first + row)];
        nll = writer.encode(rows.row(row), rows.targets[row],
                            std::span(packed).subspan(index(row) * row_bytes, row_bytes));
        require_finite_logits(nll, window, rows.first + row);
      });
      writer.add_rows(packed);
    });
    if (run.progress) run.progress(std::ssize(nlls), summarize(run.protocol, nlls).ppl);
  }
  WrittenBase written;
  written.result = summarize(run.protocol, nlls);
  written.file_bytes = writer.finish();
  return written;
}

Divergence measure_divergence(Session& session, ThreadPool& pool, const PerplexityRun& run,
                              const DivergenceBaseReader& base, const DivergenceKey& key) {
  ensure(!run.windows.empty(), "KL divergence: no window to measure");
  base.require_same(key);
  WindowLogits logits(session, run);
  Collector collector(run);
  std::int64_t first = 0;  // index of the window's first row in the file
  for (const Window& window : run.windows) {
    collector.add(compare_window(
        logits, pool, window,
        [&](std::int64_t row, Token, BaseDistribution& out) { base.decode(first + row, out); }));
    base.drop(first, window.scored());
    first += window.scored();
  }
  return collector.take();
}

Divergence measure_divergence(Session& base, Session& session, ThreadPool& pool,
                              const PerplexityRun& run) {
  ensure(!run.windows.empty(), "KL divergence: no window to measure");
  WindowLogits base_logits(base, run);
  WindowLogits logits(session, run);
  const auto vocab = index(base.transformer().config().vocab);
  std::vector<float> kept;  // [scored rows of a window][V]
  Collector collector(run);
  for (const Window& window : run.windows) {
    kept.clear();
    base_logits.feed(window, [&](const ScoredRows& rows) {
      kept.insert(kept.end(), rows.logits, rows.logits + rows.rows * rows.vocab);
    });
    collector.add(compare_window(
        logits, pool, window, [&](std::int64_t row, Token target, BaseDistribution& out) {
          fill_base(std::span(kept).subspan(index(row) * vocab, vocab), target, out);
          require_finite_logits(out.nll, window, row);
        }));
  }
  return collector.take();
}

namespace {

constexpr std::array<char, 8> kMagic = {'\x89', 'L', 'E', 'Q', 'K', 'L', '\x1a', '\n'};
constexpr std::uint32_t kVersion = 1;
constexpr double kSteps = 65535;
constexpr std::int64_t kLargestVocab = 1 << 24;

static_assert(sizeof(DivergencePreamble) == 64);

struct RowHead {
  std::uint64_t xxh3;  // of the row's bytes after this field
  double nll;
  float step;
  std::uint32_t top;
};
static_assert(sizeof(RowHead) == 24);

std::uint64_t preamble_checksum(const DivergencePreamble& preamble) {
  return checksum(std::as_bytes(std::span(&preamble, 1)).first(offsetof(DivergencePreamble, xxh3)));
}

// Codes are padded to a multiple of 8 bytes.
std::uint64_t bytes_of_row(std::int64_t vocab) {
  return sizeof(RowHead) + static_cast<std::uint64_t>(round_up(2 * vocab, 8));
}

// A named field that must be equal in the file and in the run.
struct TextField {
  const char* name;
  std::string DivergenceKey::*value;
};
constexpr std::array<TextField, 5> kTexts = {{{"protocol", &DivergenceKey::protocol},
                                              {"join", &DivergenceKey::join},
                                              {"dataset_hash", &DivergenceKey::dataset_hash},
                                              {"text_sha256", &DivergenceKey::text_sha256},
                                              {"tokens_sha256", &DivergenceKey::tokens_sha256}}};
struct CountField {
  const char* name;
  std::int64_t DivergenceKey::*value;
};
constexpr std::array<CountField, 6> kCounts = {{{"vocab", &DivergenceKey::vocab},
                                                {"window", &DivergenceKey::window},
                                                {"stride", &DivergenceKey::stride},
                                                {"tokens", &DivergenceKey::tokens},
                                                {"windows", &DivergenceKey::windows},
                                                {"scored", &DivergenceKey::scored}}};
constexpr std::array<TextField, 4> kAbout = {{{"model", &DivergenceKey::model},
                                              {"type", &DivergenceKey::type},
                                              {"cache_type_k", &DivergenceKey::key_type},
                                              {"cache_type_v", &DivergenceKey::value_type}}};

std::string key_text(const DivergenceKey& key) {
  Json json = Json::object();
  for (const TextField& field : kTexts) json[field.name] = key.*field.value;
  for (const CountField& field : kCounts) json[field.name] = key.*field.value;
  for (const TextField& field : kAbout) json[field.name] = key.*field.value;
  return json.dump_any();
}

DivergenceKey parse_key(std::string_view text, std::string_view source) {
  const Json json = parse_json(text, source);
  DivergenceKey key;
  for (const TextField& field : kTexts) {
    key.*field.value = json_get<std::string>(json, field.name, source);
  }
  for (const CountField& field : kCounts) {
    key.*field.value = json_get<std::int64_t>(json, field.name, source);
  }
  for (const TextField& field : kAbout) {
    key.*field.value = json_get<std::string>(json, field.name, source);
  }
  return key;
}

DivergencePreamble parse_preamble(std::span<const std::byte> bytes, const std::string& name) {
  DivergencePreamble preamble = {};
  require(bytes.size() >= sizeof(preamble), name, ": has ", bytes.size(), " bytes, a file of ",
          Setting{"divergence_base"}, " has at least ", sizeof(preamble));
  std::memcpy(&preamble, bytes.data(), sizeof(preamble));
  require(preamble.magic == kMagic, name, ": is no file of ", Setting{"divergence_base"},
          "; write one with the base model and that option alone");
  require(preamble.version == kVersion, name, ": is of version ", preamble.version,
          ", this program reads ", kVersion, "; write it again");
  require(preamble.xxh3 == preamble_checksum(preamble), name,
          ": the first 64 bytes are damaged; write the file again");
  require(preamble.file_bytes == bytes.size(), name, ": has ", bytes.size(), " bytes, expected ",
          preamble.file_bytes, "; the file is cut off: write it again");
  const std::uint64_t rows =
      checked_multiply(preamble.rows, preamble.row_bytes, name + ": rows x bytes of a row");
  require(preamble.rows_offset <= bytes.size() && rows == bytes.size() - preamble.rows_offset &&
              preamble.json_bytes <= preamble.rows_offset - sizeof(preamble) &&
              preamble.rows_offset >= sizeof(preamble),
          name, ": its parts do not fill its ", bytes.size(), " bytes; write the file again");
  return preamble;
}

}  // namespace

std::string token_hash(std::span<const Token> tokens, Token window_bos) {
  std::string bytes(as_text(std::as_bytes(tokens)));
  bytes += as_text(std::as_bytes(std::span(&window_bos, 1)));
  return sha256_hex(bytes);
}

DivergenceBaseWriter::DivergenceBaseWriter(const std::filesystem::path& path,
                                           const DivergenceKey& key)
    : name_(path.string()), file_(path), key_(key) {
  require(key.vocab > 0 && key.vocab <= kLargestVocab, "KL divergence: vocabulary of ", key.vocab);
  std::string json = key_text(key);
  preamble_.magic = kMagic;
  preamble_.version = kVersion;
  preamble_.json_bytes = static_cast<std::uint32_t>(json.size());
  preamble_.json_xxh3 = checksum(as_bytes(json));
  const auto used = static_cast<std::int64_t>(sizeof(DivergencePreamble) + json.size());
  preamble_.rows_offset = static_cast<std::uint64_t>(round_up(used, 64));
  preamble_.row_bytes = bytes_of_row(key.vocab);
  json.resize(preamble_.rows_offset - sizeof(DivergencePreamble), ' ');
  file_.append(std::as_bytes(std::span(&preamble_, 1)));  // rewritten by finish()
  file_.append(as_bytes(json));
}

double DivergenceBaseWriter::encode(std::span<const float> logits, std::int64_t target,
                                    std::span<std::byte> out) const {
  ensure(std::ssize(logits) == key_.vocab && out.size() == row_bytes(), "KL divergence: a row of ",
         logits.size(), " logits, expected ", key_.vocab);
  BaseDistribution base;
  fill_base(logits, target, base);
  const double highest = base.log_probs[static_cast<std::size_t>(base.top)];
  const double lowest = *std::ranges::min_element(base.log_probs);
  const double depth = std::min(highest - lowest, kDeepestLogProb);
  RowHead head = {};
  head.nll = base.nll;
  head.top = static_cast<std::uint32_t>(base.top);
  head.step = depth > 0 ? static_cast<float>(depth / kSteps) : 1.0f;
  std::ranges::fill(out, std::byte{0});
  const double per_step = 1.0 / static_cast<double>(head.step);
  std::byte* codes = out.data() + sizeof(head);
  for (const double log_prob : base.log_probs) {
    const double steps = std::nearbyint((highest - log_prob) * per_step);
    const auto code = static_cast<std::uint16_t>(steps < kSteps ? steps : kSteps);
    std::memcpy(codes, &code, sizeof(code));
    codes += sizeof(code);
  }
  std::memcpy(out.data(), &head, sizeof(head));
  head.xxh3 = checksum(out.subspan(sizeof(head.xxh3)));
  std::memcpy(out.data(), &head, sizeof(head));
  return base.nll;
}

void DivergenceBaseWriter::add_rows(std::span<const std::byte> rows) {
  ensure(rows.size() % row_bytes() == 0, name_, ": ", rows.size(), " bytes are no whole rows of ",
         row_bytes());
  file_.append(rows);
  preamble_.rows += rows.size() / row_bytes();
}

std::uint64_t DivergenceBaseWriter::finish() {
  ensure(std::cmp_equal(preamble_.rows, key_.scored), name_, ": got ", preamble_.rows,
         " rows, expected ", key_.scored);
  preamble_.file_bytes = file_.size();
  preamble_.xxh3 = preamble_checksum(preamble_);
  file_.overwrite(0, std::as_bytes(std::span(&preamble_, 1)));
  file_.commit();
  return preamble_.file_bytes;
}

DivergenceBaseReader::DivergenceBaseReader(const std::filesystem::path& path) : file_(path) {
  const std::string& name = file_.name();
  const auto bytes = file_.bytes();
  preamble_ = parse_preamble(bytes, name);
  const auto json = bytes.subspan(sizeof(DivergencePreamble), preamble_.json_bytes);
  require(checksum(json) == preamble_.json_xxh3, name,
          ": the description at offset 64 is damaged; write the file again");
  key_ = parse_key(as_text(json), name);
  const std::int64_t vocab = key_.vocab;
  require(vocab > 0 && vocab <= kLargestVocab && bytes_of_row(vocab) == preamble_.row_bytes, name,
          ": rows of ", preamble_.row_bytes, " bytes do not fit a vocabulary of ", vocab);
  require(std::cmp_equal(preamble_.rows, key_.scored), name, ": has ", preamble_.rows,
          " rows, its description says ", key_.scored);
}

void DivergenceBaseReader::require_same(const DivergenceKey& run) const {
  const auto check = [&](const char* field, const auto& here, const auto& there) {
    require(here == there, file_.name(), ": ", field, " is ", there, " in the base file and ", here,
            " in this run; write the base again with the same text and protocol, from a model with "
            "the same tokenizer");
  };
  check("vocab", run.vocab, key_.vocab);
  for (const TextField& field : kTexts) {
    check(field.name, run.*field.value, key_.*field.value);
  }
  for (const CountField& field : kCounts) {
    check(field.name, run.*field.value, key_.*field.value);
  }
}

void DivergenceBaseReader::decode(std::int64_t index, BaseDistribution& out) const {
  ensure(index >= 0 && index < key_.scored, file_.name(), ": row ", index, " of ", key_.scored);
  const auto row = file_.bytes().subspan(
      preamble_.rows_offset + static_cast<std::uint64_t>(index) * preamble_.row_bytes,
      preamble_.row_bytes);
  RowHead head = {};
  std::memcpy(&head, row.data(), sizeof(head));
  const std::string& name = file_.name();
  require(checksum(row.subspan(sizeof(head.xxh3))) == head.xxh3, name, ": row ", index,
          " is damaged (its checksum differs); write the file again");
  require(
      head.top < key_.vocab && std::isfinite(head.nll) && head.step > 0 && std::isfinite(head.step),
      name, ": row ", index, " holds no distribution; write the file again");
  out.nll = head.nll;
  out.top = head.top;
  out.log_probs.resize(static_cast<std::size_t>(key_.vocab));
  const std::byte* codes = row.data() + sizeof(head);
  double sum = 0;
  for (double& log_prob : out.log_probs) {
    std::uint16_t code = 0;
    std::memcpy(&code, codes, sizeof(code));
    codes += sizeof(code);
    log_prob = -static_cast<double>(head.step) * code;
    sum += std::exp(log_prob);
  }
  const double normalizer = std::log(sum);
  for (double& log_prob : out.log_probs) log_prob -= normalizer;
}

void DivergenceBaseReader::drop(std::int64_t first, std::int64_t count) const {
  const std::uint64_t bytes = static_cast<std::uint64_t>(count) * preamble_.row_bytes;
  const std::uint64_t offset =
      preamble_.rows_offset + static_cast<std::uint64_t>(first) * preamble_.row_bytes;
  file_.drop(file_.bytes().subspan(offset, bytes));
}

}  // namespace leq
