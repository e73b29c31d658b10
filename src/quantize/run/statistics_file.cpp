#include "quantize/run/statistics_file.h"

#include <xxhash.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <map>
#include <new>
#include <utility>

#include "base/error.h"
#include "base/json.h"
#include "base/text.h"

namespace leq {
namespace {

constexpr std::array<char, 8> kMagic = {'\x89', 'L', 'E', 'Q', 'S', 'T', 'A', 'T'};
constexpr std::uint64_t kVersion2 = 2;
constexpr std::uint64_t kMaxColumns = 1 << 20;
constexpr std::uint64_t kMaxSamples = 1 << 24;

struct Preamble {
  std::array<char, 8> magic;
  std::uint64_t version;
  std::uint64_t identity_xxh3;
  std::uint64_t identity_bytes;
  std::uint64_t records;
  std::array<std::uint64_t, 3> reserved;  // 0
};
static_assert(sizeof(Preamble) == 64);

struct RecordHeader {
  std::uint64_t layer, site;  // index in linear_sites
  std::uint64_t columns, tokens, samples;
  std::uint64_t hessian;  // 0 or 1
  std::uint64_t bytes;    // bytes after the header
  std::uint64_t xxh3;     // hash of the header with xxh3 = 0 and of the bytes after it
};

std::uint64_t hash(std::span<const std::byte> bytes) {
  return XXH3_64bits(bytes.data(), bytes.size());
}

// Computes the hash of a record: its header with a checksum of 0, then the bytes that follow.
class RecordHash {
 public:
  explicit RecordHash(RecordHeader header) : state_(XXH3_createState(), XXH3_freeState) {
    if (!state_) throw std::bad_alloc();
    header.xxh3 = 0;
    XXH3_64bits_reset(state_.get());
    add(std::as_bytes(std::span(&header, 1)));
  }
  void add(std::span<const std::byte> bytes) {
    XXH3_64bits_update(state_.get(), bytes.data(), bytes.size());
  }
  std::uint64_t value() const { return XXH3_64bits_digest(state_.get()); }

 private:
  std::unique_ptr<XXH3_state_t, XXH_errorcode (*)(XXH3_state_t*)> state_;
};

std::uint64_t record_bytes(const RecordHeader& header) {
  return header.columns * (2 * 4 + 3 * 8) + std::uint64_t{kHistogramBins} * 8 +
         header.samples * header.columns * 4 + header.hessian * header.columns * header.columns * 8;
}

Json identity_json(const StatisticsIdentity& identity) {
  return {{"config", config_to_json(identity.config)},
          {"weights", identity.weights},
          {"text", identity.text},
          {"text_sha256", identity.text_sha256},
          {"samples", identity.samples},
          {"length", identity.length},
          {"seed", identity.seed},
          {"hessian", identity.hessian}};
}

StatisticsIdentity identity_from(std::span<const std::byte> bytes, const std::string& source) {
  const Json json = parse_json({reinterpret_cast<const char*>(bytes.data()), bytes.size()}, source);
  StatisticsIdentity identity;
  require(json.is_object() && json.contains("config"), source, ": the identity has no \"config\"");
  identity.config = config_from_json(json["config"], source);
  identity.weights = json_get<std::string>(json, "weights", source);
  identity.text = json_get<std::string>(json, "text", source);
  identity.text_sha256 = json_get<std::string>(json, "text_sha256", source);
  identity.samples = json_get<std::int64_t>(json, "samples", source);
  identity.length = json_get<std::int64_t>(json, "length", source);
  identity.seed = json_get<std::uint64_t>(json, "seed", source);
  identity.hessian = json_get<bool>(json, "hessian", source);
  return identity;
}

// Throws Error unless the values have the properties on which other code relies.
void check_values(const InputStatistics& statistics, const std::string& where) {
  const auto finite = [&](auto values) {
    for (const auto value : values) {
      require(std::isfinite(static_cast<double>(value)), where, ": holds ", value,
              ", expected finite numbers; save the statistics again");
    }
  };
  each_array(statistics, finite);
  for (const double value : statistics.square_sum) {
    require(value >= 0, where, ": a sum of squares is ", value, "; save the statistics again");
  }
}

}  // namespace

Json calibration_json(const StatisticsIdentity& identity) {
  return {{"text", identity.text},
          {"text_sha256", identity.text_sha256},
          {"samples", identity.samples},
          {"length", identity.length},
          {"seed", identity.seed}};
}

StatisticsWriter::StatisticsWriter(const std::filesystem::path& path,
                                   const StatisticsIdentity& identity)
    : file_(path), identity_(identity_json(identity).dump()) {
  const Preamble preamble = {};  // placeholder; rewritten at the end
  file_.append(std::as_bytes(std::span(&preamble, 1)));
  file_.append(std::as_bytes(std::span(identity_)));
}

void StatisticsWriter::add(std::int64_t layer, std::size_t site,
                           const InputStatistics& statistics) {
  RecordHeader header = {};
  header.layer = static_cast<std::uint64_t>(layer);
  header.site = site;
  header.columns = static_cast<std::uint64_t>(statistics.columns);
  header.tokens = static_cast<std::uint64_t>(statistics.tokens);
  header.samples = static_cast<std::uint64_t>(statistics.sample_tokens());
  header.hessian = statistics.hessian.empty() ? 0 : 1;
  header.bytes = record_bytes(header);
  RecordHash sum(header);
  const std::uint64_t start = file_.size();
  file_.append(std::as_bytes(std::span(&header, 1)));
  each_array(statistics, [&](auto values) {
    sum.add(std::as_bytes(values));
    file_.append(std::as_bytes(values));
  });
  header.xxh3 = sum.value();
  file_.overwrite(start, std::as_bytes(std::span(&header, 1)));
  ++records_;
}

void StatisticsWriter::finish() {
  Preamble preamble = {};
  preamble.magic = kMagic;
  preamble.version = kVersion2;
  preamble.identity_xxh3 = hash(std::as_bytes(std::span(identity_)));
  preamble.identity_bytes = identity_.size();
  preamble.records = records_;
  file_.overwrite(0, std::as_bytes(std::span(&preamble, 1)));
  file_.commit();
}

StatisticsReader::StatisticsReader(const std::filesystem::path& path, const ModelConfig& config,
                                   const std::string& weights, bool hessian)
    : map_(path), hessian_(hessian) {
  read_tables();
  require(identity_.config == config, path.string(), ": statistics of another model (",
          describe(identity_.config), "), expected ", describe(config));
  require(identity_.weights == weights, path.string(),
          ": statistics of another checkpoint of this shape; save them again");
  require(identity_.hessian || !hessian, path.string(),
          ": these statistics hold no X^T X, which the method needs; save them with that method");
}

void StatisticsReader::read_tables() {
  const auto bytes = map_.bytes();
  const std::string& name = map_.name();
  Preamble preamble = {};
  require(bytes.size() >= sizeof preamble, name, ": expected statistics of ", Setting{"save_stats"},
          ", found ", bytes.size(), " bytes");
  std::memcpy(&preamble, bytes.data(), sizeof preamble);
  require(preamble.magic == kMagic && preamble.version == kVersion2, name,
          ": expected statistics of ", Setting{"save_stats"}, ", version 2; save them again");
  require(preamble.identity_bytes <= bytes.size() - sizeof preamble, name,
          ": cut off; save the statistics again");
  const auto identity =
      bytes.subspan(sizeof preamble, static_cast<std::size_t>(preamble.identity_bytes));
  require(hash(identity) == preamble.identity_xxh3, name,
          ": the identity's checksum differs; save the statistics again");
  identity_ = identity_from(identity, name);
  const ModelConfig& config = identity_.config;
  std::size_t offset = sizeof preamble + identity.size();
  for (std::uint64_t i = 0; i < preamble.records; ++i) {
    RecordHeader header = {};
    require(bytes.size() - offset >= sizeof header, name, ": cut off in record ", i);
    std::memcpy(&header, bytes.data() + offset, sizeof header);
    const bool known =
        std::cmp_less(header.layer, config.layer_count()) &&
        header.site < linear_sites(config, static_cast<std::int64_t>(header.layer)).size();
    require(known && header.columns > 0 && header.columns <= kMaxColumns &&
                header.samples <= kMaxSamples && header.hessian <= 1 && header.tokens > 0 &&
                header.bytes == record_bytes(header) &&
                header.bytes <= bytes.size() - offset - sizeof header,
            name, ": record ", i, " at byte ", offset, " has sizes that do not fit the file");
    offsets_[{header.layer, header.site}] = offset;
    offset += sizeof header + static_cast<std::size_t>(header.bytes);
  }
  require(offset == bytes.size(), name, ": ", bytes.size() - offset,
          " bytes after the last record");
}

InputStatistics StatisticsReader::read(std::int64_t layer, std::size_t site) const {
  const std::string where =
      map_.name() + ": " + input_name(layer, linear_sites(identity_.config, layer).at(site));
  const auto found = offsets_.find({static_cast<std::uint64_t>(layer), std::uint64_t{site}});
  require(found != offsets_.end(), where, ": no statistics");
  RecordHeader header = {};
  std::memcpy(&header, map_.bytes().data() + found->second, sizeof header);
  auto bytes =
      map_.bytes().subspan(found->second + sizeof header, static_cast<std::size_t>(header.bytes));
  RecordHash sum(header);
  sum.add(bytes);
  require(sum.value() == header.xxh3, where, ": the checksum differs; save the statistics again");
  InputStatistics statistics;
  const auto columns = static_cast<std::size_t>(header.columns);
  statistics.columns = static_cast<std::int64_t>(header.columns);
  statistics.tokens = static_cast<std::int64_t>(header.tokens);
  statistics.absmax.resize(columns);
  statistics.abs_sum.resize(columns);
  statistics.sum.resize(columns);
  statistics.square_sum.resize(columns);
  statistics.largest_token.resize(columns);
  statistics.samples.resize(static_cast<std::size_t>(header.samples) * columns);
  if (header.hessian == 1) statistics.hessian.resize(columns * columns);
  each_array(statistics, [&](auto values) {
    if (values.empty()) return;  // memcpy requires a valid pointer
    std::memcpy(values.data(), bytes.data(), values.size_bytes());
    bytes = bytes.subspan(values.size_bytes());
  });
  check_values(statistics, where);
  map_.drop(map_.bytes().subspan(found->second, static_cast<std::size_t>(header.bytes)));
  if (!hessian_) statistics.hessian = {};
  return statistics;
}

}  // namespace leq
