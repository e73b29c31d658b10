#include "eval/divergence_base.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

#include "base/bytes.h"
#include "base/error.h"
#include "base/file.h"
#include "base/json.h"
#include "base/sha256.h"
#include "format/leq_layout.h"

namespace leq {
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
