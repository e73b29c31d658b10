// Runs the seeded checkpoints of tests/golden/families and compares with the results of
// transformers for them (transformers_goldens.py).
#pragma once

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <string>
#include <vector>

#include "base/file.h"
#include "base/json.h"
#include "convert/import.h"
#include "model/session.h"
#include "quantize/run/quantize.h"
#include "runtime/make_backend.h"
#include "temporary_folder.h"

namespace leq::test {

inline std::filesystem::path family_folder(const std::string& name) {
  return std::filesystem::path(LEQ_SOURCE_DIR) / "tests/golden/families" / name;
}

class FamilyGolden {
 public:
  explicit FamilyGolden(const std::string& name) {
    const Json json =
        parse_json(read_file(family_folder(name) / "golden.json", 1 << 24), "golden.json");
    positions_ = json["positions"].get<std::vector<std::int64_t>>();
    logits_ = json["logits"].get<std::vector<std::vector<double>>>();
    for (std::int64_t i = 0; i <= positions_.back(); ++i) {
      ids_.push_back(id_at(i));
    }
  }

  std::int64_t length() const { return std::ssize(ids_); }

  RunLimits limits(const Model& model, std::int64_t chunk) const {
    RunLimits limits;
    limits.context = length();
    limits.batch_tokens = limits.output_tokens = std::min(chunk, length());
    limits.key_type = limits.value_type = KvType::f32;
    return resolve_limits(limits, model.config());
  }

  // Feeds the text in chunks and returns logits of the golden file's positions.
  std::vector<std::vector<float>> run(const Model& model, Backend& backend,
                                      std::int64_t chunk) const {
    Session session(model, backend, limits(model, chunk));
    return run(session, chunk);
  }
  std::vector<std::vector<float>> run(Session& session, std::int64_t chunk) const {
    std::vector<std::vector<float>> rows;
    for (std::int64_t first = 0; first < length(); first += chunk) {
      Batch batch;
      const std::int64_t count = std::min(chunk, length() - first);
      batch.add(0, ids_.data() + first, count, Batch::Want::none);
      for (const std::int64_t position : positions_) {
        if (position < first || position >= first + count) continue;
        batch.outputs.push_back(static_cast<std::int32_t>(position - first));
      }
      const leq::Rows& logits = session.transformer().forward(batch, session.state());
      add_rows(session.transformer().backend(), logits, std::ssize(batch.outputs), rows);
    }
    return rows;
  }

  // Returns the largest difference from the golden logits, relative to their largest value.
  double difference(const std::vector<std::vector<float>>& rows) const {
    double worst = rows.size() == logits_.size() ? 0 : 1, largest = 0;
    for (std::size_t row = 0; row < logits_.size() && worst < 1; ++row) {
      if (rows[row].size() != logits_[row].size()) return 1;
      for (std::size_t v = 0; v < logits_[row].size(); ++v) {
        worst = std::max(worst, std::abs(logits_[row][v] - double{rows[row][v]}));
        largest = std::max(largest, std::abs(logits_[row][v]));
      }
    }
    return worst / std::max(largest, 1.0);
  }

  // Returns by how much the perplexity of the text's own next tokens differs from the one by the
  // golden logits, relative to it.
  double perplexity_difference(const std::vector<std::vector<float>>& rows) const {
    double difference = rows.size() == logits_.size() ? 0 : 1;
    for (std::size_t row = 0; row < logits_.size() && difference < 1; ++row) {
      const auto next = static_cast<std::size_t>(id_at(positions_[row] + 1));
      difference += surprise(rows[row], next) - surprise(logits_[row], next);
    }
    return std::abs(std::expm1(difference / static_cast<double>(logits_.size())));
  }

 private:
  static Token id_at(std::int64_t i) {
    return static_cast<Token>((i * i * 7 + i * 13 + i / 5) % 94);
  }

  // -ln of the token's probability.
  template <class T>
  static double surprise(const std::vector<T>& logits, std::size_t token) {
    const double largest = *std::ranges::max_element(logits);
    double sum = 0;
    for (const double logit : logits) sum += std::exp(logit - largest);
    return std::log(sum) + largest - double{logits[token]};
  }

  static void add_rows(Backend& backend, const leq::Rows& logits, std::int64_t count,
                       std::vector<std::vector<float>>& rows) {
    std::vector<float> all(static_cast<std::size_t>(count * logits.width));
    backend.download(logits, count, all);
    for (auto row = all.begin(); row != all.end(); row += logits.width) {
      rows.emplace_back(row, row + logits.width);
    }
  }

  std::vector<std::int64_t> positions_;
  std::vector<std::vector<double>> logits_;
  std::vector<Token> ids_;
};

// Opens a checkpoint folder or GGUF file as a model in f32.
inline Model f32_model(const std::filesystem::path& checkpoint, const TemporaryFolder& scratch) {
  const auto file = scratch.path() / "model.leq";
  quantize_imported(import_checkpoint(checkpoint), file, {.type = "f32", .threads = 1});
  return Model(file, LoadOptions{});
}

}  // namespace leq::test
