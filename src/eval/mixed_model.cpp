#include "eval/mixed_model.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <span>
#include <utility>

#include "base/error.h"
#include "base/json.h"
#include "base/text.h"
#include "format/leq_copy.h"
#include "format/leq_layout.h"
#include "tensor/pack.h"

namespace leq {
namespace {

struct PartKind {
  std::string_view part;
  std::string_view kind;
};
constexpr std::array<PartKind, 13> kParts = {{{"q", "qkv"},
                                              {"k", "qkv"},
                                              {"v", "qkv"},
                                              {"o", "o"},
                                              {"gate", "gate_up"},
                                              {"up", "gate_up"},
                                              {"down", "down"},
                                              {"experts.gate", "experts"},
                                              {"experts.up", "experts"},
                                              {"shared.gate", "experts"},
                                              {"shared.up", "experts"},
                                              {"experts.down", "experts.down"},
                                              {"shared.down", "shared.down"}}};

struct UnitName {
  std::int64_t layer = 0;
  std::string kind;
};

// The unit of "layers.3.q", "layers.3.q.bias", ...: a linear with its biases and vectors. All
// experts of a layer are one unit, because their inputs share a block and a format.
std::optional<UnitName> unit_name(std::string_view tensor) {
  const auto words = split(tensor, ".");
  if (words.size() < 3 || words[0] != "layers") return std::nullopt;
  const auto layer = parse_int(words[1]);
  std::string part(words[2]);
  if (part == "shared" && words.size() >= 4) part += "." + std::string(words[3]);
  if (part == "experts" && words.size() >= 5) part += "." + std::string(words[4]);
  const auto* found = std::ranges::find(kParts, part, &PartKind::part);
  if (!layer || found == kParts.end()) return std::nullopt;
  return UnitName{*layer, std::string(found->kind)};
}

const LeqReader& reader(const std::unique_ptr<Model>& model) { return model->file(); }

std::string plane_text(const StoredTensor& tensor) {
  std::string text = tensor.name;
  for (const StoredPlane& plane : tensor.planes) text += ' ' + checksum_text(plane.xxh3);
  return text + '\n';
}

// Input scales of o and down are folded into v and up, which may be in another unit. Returns the
// checksum of these scales in the file; empty if there are none.
std::string fold_of(const LeqReader& file, const std::string& tensor) {
  return file.entry(tensor).value("fold", "");
}

std::string attention_biases_of(const LeqReader& file) {
  const Json provenance = file.metadata().value("provenance", Json::object());
  return provenance.value("attention_biases", "");
}

// Counts of the 8-bit codes of one unit: symmetric, with one scale per row.
struct CodeCounts {
  std::array<double, 256> codes = {};
  double count = 0;
};

void add_row(std::span<const float> row, CodeCounts& sums) {
  double absmax = 0;
  for (const float w : row) absmax = std::max(absmax, std::abs(static_cast<double>(w)));
  for (const float w : row) {
    const double value = static_cast<double>(w);
    const double code = absmax > 0 ? std::nearbyint(value / absmax * 127) : 0.0;
    sums.codes[static_cast<std::size_t>(code + 128)] += 1;
  }
  sums.count += static_cast<double>(row.size());
}

double entropy_of(const CodeCounts& sums) {
  double entropy = 0;
  for (const double count : sums.codes) {
    if (count > 0) entropy -= count / sums.count * std::log2(count / sums.count);
  }
  return entropy;
}

}  // namespace

MixedModel::MixedModel(const std::array<std::filesystem::path, kChoices>& candidates) {
  for (const auto& path : candidates) {
    files_.push_back(std::make_unique<Model>(path, LoadOptions{.mode = LoadMode::map}));
  }
  require_alike();
  add_units();
}

// Requires equal configurations and tensors outside the units; vectors bit for bit equal.
void MixedModel::require_alike() const {
  const LeqReader& last = reader(files_.back());
  const Json config = config_to_json(files_.back()->config());
  for (const auto& model : files_) {
    const LeqReader& file = model->file();
    require(config_to_json(model->config()) == config, file.name(), " and ", last.name(),
            ": other configurations; make all candidates from one checkpoint");
    require(file.tensors().size() == last.tensors().size(), file.name(), " has ",
            file.tensors().size(), " tensors, ", last.name(), " ", last.tensors().size(),
            "; make all candidates with the same folds");
    for (const StoredTensor& tensor : last.tensors()) {
      const StoredTensor* other = file.find(tensor.name);
      require(other != nullptr && other->shape == tensor.shape, file.name(), ": tensor ",
              tensor.name, " is not that of ", last.name());
      const bool must_equal = tensor.shape.size() == 1 && !unit_name(tensor.name);
      require(!must_equal || plane_text(*other) == plane_text(tensor), file.name(), " and ",
              last.name(), ": tensor ", tensor.name,
              " differs; make all candidates with the same folds");
      require(fold_of(file, tensor.name) == fold_of(last, tensor.name), file.name(), " and ",
              last.name(), ": other scales are folded in front of ", tensor.name,
              "; make all candidates with one alpha and the same statistics");
    }
    require(attention_biases_of(file) == attention_biases_of(last), file.name(), " and ",
            last.name(), ": attention biases are folded in one of them; make both alike");
  }
}

void MixedModel::add_units() {
  std::map<std::pair<std::int64_t, std::string>, std::vector<std::string>> tensors;
  for (const StoredTensor& tensor : reader(files_.back()).tensors()) {
    if (const auto name = unit_name(tensor.name)) {
      tensors[{name->layer, name->kind}].push_back(tensor.name);
    }
  }
  for (const auto& [key, names] : tensors) {
    SearchUnit unit;
    unit.layer = key.first;
    unit.kind = key.second;
    unit.name = layer_tensor(unit.layer, unit.kind);
    for (const std::string& name : names) {
      unit_of_.emplace(name, units_.size());
      for (std::size_t c = 0; c < kChoices; ++c) {
        const StoredTensor& tensor = *reader(files_[c]).find(name);
        unit.bytes[c] += tensor.bytes();
        if (tensor.shape.size() != 2) continue;
        const auto params = tensor.shape[0] * tensor.shape[1];
        if (c == kEightBits) unit.params += params;
        unit.proxy[c] += tensor.error * static_cast<double>(params);
      }
    }
    units_.push_back(std::move(unit));
  }
}

void MixedModel::measure_entropy(ThreadPool& pool) {
  const LeqReader& file = reader(files_.back());
  pool.run(std::ssize(units_), [&](std::int64_t index, int) {
    CodeCounts sums;
    std::vector<float> row;
    for (const auto& [name, owner] : unit_of_) {
      const StoredTensor& tensor = *file.find(name);
      if (std::cmp_not_equal(owner, index) || tensor.shape.size() != 2) continue;
      row.resize(static_cast<std::size_t>(tensor.view.columns));
      for (std::int64_t r = 0; r < tensor.view.rows; ++r) {
        unpack_row(tensor.view, r, row);
        add_row(row, sums);
      }
    }
    units_[static_cast<std::size_t>(index)].entropy = entropy_of(sums);
  });
}

const LeqReader& MixedModel::file_of(const Assignment& assignment, std::string_view name) const {
  const auto unit = unit_of_.find(name);
  if (unit == unit_of_.end()) return reader(files_.back());
  return reader(files_[assignment[unit->second]]);
}

std::uint64_t MixedModel::rest_bytes() const {
  std::uint64_t bytes = 0;
  for (const StoredTensor& tensor : reader(files_.back()).tensors()) {
    if (!unit_of_.contains(tensor.name)) bytes += tensor.bytes();
  }
  return bytes;
}

std::uint64_t MixedModel::bytes(const Assignment& assignment) const {
  std::uint64_t bytes = rest_bytes();
  for (std::size_t l = 0; l < units_.size(); ++l) bytes += units_[l].bytes[assignment[l]];
  return bytes;
}

std::string MixedModel::checksums() const {
  std::string text;
  for (const auto& model : files_) {
    for (const StoredTensor& tensor : model->file().tensors()) text += plane_text(tensor);
  }
  return text;
}

Weights MixedModel::bind(const Assignment& assignment, Backend& backend) const {
  ensure(assignment.size() == units_.size(), "search: a plan of ", assignment.size(),
         " units, the model has ", units_.size());
  const TensorFinder find = [&](std::string_view name) {
    return file_of(assignment, name).find(name);
  };
  return bind_weights(find, "mixed model", files_.back()->config(), backend.memory());
}

std::uint64_t MixedModel::write(const std::filesystem::path& path, const Assignment& assignment,
                                const Json& provenance, const Json& more) const {
  const auto source = [&](const std::string& name) -> const LeqReader& {
    return file_of(assignment, name);
  };
  return write_copy(path, reader(files_.back()), source, [&](Json& metadata) {
    Json& about = metadata["provenance"];
    about["type"] = "mixed";
    for (const auto& [key, value] : provenance.items()) about[key] = value;
    for (const auto& [key, value] : more.items()) metadata[key] = value;
  });
}

}  // namespace leq
