// A file of the statistics of a model's linear inputs, which can be used again.
//
//   preamble 64 bytes: magic, version, checksum of the identity, its size, number of records
//   identity: JSON with the model's configuration and a checksum of its weights, and the text
//   records: header {layer, reader, columns, tokens, samples, flags, bytes, checksum}, then
//            absmax f32, abs_sum, sum, square_sum f64 [K], histogram u64, largest_token f32 [K],
//            samples f32, X^T X f64 where it was gathered
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <utility>

#include "base/file.h"
#include "base/json.h"
#include "model/model_config.h"
#include "quantize/calibration/statistics.h"
#include "quantize/run/block_run.h"

namespace leq {

// Identifies the model and the data from which statistics were gathered.
struct StatisticsIdentity {
  ModelConfig config;
  std::string weights;  // checksum of some of the model's weights
  std::string text;     // name of the calibration text
  std::string text_sha256;
  std::int64_t samples = 0;
  std::int64_t length = 0;
  std::uint64_t seed = 0;
  bool hessian = false;
};

// Describes a calibration as files store it: {"text", "text_sha256", "samples", "length", "seed"}.
Json calibration_json(const StatisticsIdentity& identity);

// Writes record by record. The file gets its final name once it is complete.
class StatisticsWriter {
 public:
  StatisticsWriter(const std::filesystem::path& path, const StatisticsIdentity& identity);
  void add(std::int64_t layer, std::size_t site, const InputStatistics& statistics);
  void finish();

 private:
  AtomicFile file_;
  std::string identity_;
  std::uint64_t records_ = 0;
};

// Reads a file on demand.
class StatisticsReader {
 public:
  // Throws Error naming the file if it is damaged or truncated, of another model than `config` with
  // weights `weights`, or without X^T X although `hessian` is set.
  StatisticsReader(const std::filesystem::path& path, const ModelConfig& config,
                   const std::string& weights, bool hessian);

  InputStatistics read(std::int64_t layer, std::size_t site) const;
  const StatisticsIdentity& identity() const { return identity_; }

 private:
  void read_tables();  // throws Error if the file is no file of statistics

  MappedFile map_;
  StatisticsIdentity identity_;
  std::map<std::pair<std::uint64_t, std::uint64_t>, std::size_t> offsets_;  // of record headers
  bool hessian_ = false;
};

}  // namespace leq
