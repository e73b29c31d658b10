#include "convert/hf_import.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "base/error.h"
#include "base/file.h"
#include "base/json.h"
#include "base/text.h"
#include "convert/checkpoint_names.h"
#include "convert/embedding_files.h"
#include "convert/hf_tokenizer.h"
#include "convert/import.h"
#include "convert/quantization_config.h"
#include "convert/tokenizer_import.h"
#include "families/family.h"
#include "format/leq_layout.h"
#include "format/packed_source.h"
#include "format/tensor_source.h"
#include "model/linear_sites.h"
#include "model/model_config.h"
#include "quantize/methods/method.h"
#include "tensor/quant_scheme.h"
#include "tokenizer/spec.h"

namespace leq {
namespace {

namespace fs = std::filesystem;

// Opens the tensors of a checkpoint folder; quantized weights are assembled from their parts.
// `config`: the text model's. `notes` gets a line about tensors that are not imported and one with
// the method of a quantized checkpoint. Throws Error like open_safetensors,
// read_quantization_config and PackedSource.
std::unique_ptr<TensorSource> open_weights(const fs::path& folder, const Json& config,
                                           std::vector<std::string>& notes,
                                           ArrivingFiles* arriving = nullptr) {
  auto files = open_safetensors(folder, &notes, arriving);
  const auto options = read_quantization_config(config, (folder / "config.json").string());
  if (!options) return files;
  ensure(arriving == nullptr, folder.string(), ": quantized weights are read from whole files");
  auto packed = std::make_unique<PackedSource>(std::move(files), *options);
  notes.push_back(packed->note());
  return packed;
}

// Adds a note if no scheme represents the values of some quantized weights exactly.
// Weights are inexact if they have sorted columns or unusual groups, or are floats of few bits.
void note_inexact(std::span<const TensorInput> tensors, std::vector<std::string>& notes) {
  const auto count = std::ranges::count_if(tensors, [](const TensorInput& tensor) {
    return tensor.role != TensorRole::vector && !tensor.own_scheme && !tensor.source_type.empty();
  });
  if (count == 0) return;
  notes.push_back(std::to_string(count) +
                  " weights have no scheme that holds their numbers as they are: they are read as "
                  "floats and quantized again");
}

// The type that represents all floats of a source exactly; f32 if some tensors are quantized.
// Tensors that are not of a float type, such as masks, are ignored.
DType exact_dtype(const TensorSource& source) {
  const auto holds = [&](DType dtype) {
    return std::ranges::any_of(source.tensors(),
                               [&](const SourceTensor& tensor) { return tensor.dtype == dtype; });
  };
  if (source.has_types() || holds(DType::f32) || holds(DType::f16) == holds(DType::bf16))
    return DType::f32;
  return holds(DType::f16) ? DType::f16 : DType::bf16;
}

// --- duplicate heads, and token ids without weights in the checkpoint, as in transformers 5

constexpr std::size_t kCompared = 4096;  // number of values per comparison

// Compares values, because the tensors may be stored in different types.
bool are_equal(const TensorSource& source, const SourceTensor& a, const SourceTensor& b) {
  if (a.shape != b.shape) return false;
  if (a.file_dtype == b.file_dtype && !a.bytes.empty()) return std::ranges::equal(a.bytes, b.bytes);
  std::size_t size = 1;
  for (const std::int64_t extent : a.shape) size *= static_cast<std::size_t>(extent);
  std::vector<float> x(kCompared), y(kCompared);
  for (std::size_t at = 0; at < size; at += kCompared) {
    const std::size_t count = std::min(kCompared, size - at);
    x.resize(count);
    y.resize(count);
    source.read(a, static_cast<std::int64_t>(at), x);
    source.read(b, static_cast<std::int64_t>(at), y);
    if (x != y) return false;
  }
  return true;
}

// Decides whether head and embedding are tied: a head whose weights differ is always kept, and an
// absent head is the embedding. `notes` gets a line if this contradicts the config.
void resolve_tied_head(const TensorSource& source, const Family& family, ModelConfig& config,
                       std::vector<std::string>& notes) {
  const auto names = find_text_names(source, family);
  if (!names) return;  // reported later by the tensor readers
  const SourceTensor* head = source.find(names->head);
  const SourceTensor* embedding =
      source.find(names->prefix + std::string(family.tensors.front().source));
  const std::string name = printable(names->head);
  if (head == nullptr) {
    if (config.tied) return;
    config.tied = true;
    notes.push_back("tie_word_embeddings is false but there is no " + name +
                    ": the embedding is the head");
  } else if (config.tied && !are_equal(source, *head, *embedding)) {
    config.tied = false;
    notes.push_back("warning: tie_word_embeddings is true but " + name +
                    " differs from the embedding: both are kept");
  }
}

// Drops added tokens without a row in the embedding, so that they are neither encoded nor sampled.
// `notes` gets a line.
void drop_added_beyond(TokenizerSpec& spec, std::int64_t rows, std::vector<std::string>& notes) {
  if (std::ssize(spec.pieces) <= rows) return;
  std::set<Token> added;
  for (const AddedToken& token : spec.added) added.insert(token.id);
  for (auto id = static_cast<Token>(rows); id < static_cast<Token>(spec.pieces.size()); ++id) {
    const bool is_unused = spec.types[static_cast<std::size_t>(id)] == TokenType::unused;
    if (!is_unused && !added.contains(id)) return;  // the check of the counts refuses it
  }
  std::string names;
  std::erase_if(spec.added, [&](const AddedToken& token) {
    if (token.id < rows) return false;
    names +=
        (names.empty() ? "" : ", ") + printable(spec.pieces[static_cast<std::size_t>(token.id)]);
    return true;
  });
  const auto count = static_cast<std::size_t>(rows);
  notes.push_back("the model has no weights for added tokens from id " + std::to_string(rows) +
                  " on, which are left out: " + names);
  spec.pieces.resize(count);
  spec.types.resize(count);
  if (spec.scores.size() > count) spec.scores.resize(count);
  for (Token* id : {&spec.unknown, &spec.bos, &spec.eos}) {
    if (*id >= rows) *id = kNoToken;
  }
}

// --- readers that produce leq's tensors from stored ones by the rules of family.h

// Source and tensor must outlive the readers created from this.
struct StoredRows {
  const TensorSource& source;
  const SourceTensor& tensor;
  TensorRule rule;
  std::shared_ptr<const ModelConfig> config;  // one for all tensors
  Shape shape;                                // shape of leq's tensor
  std::int64_t first_row = 0;                 // the rule's first stored row
};

struct RowReaders {
  decltype(TensorInput::read) read;
  decltype(TensorInput::read_codes) read_codes = {};  // empty if the values must be computed
  std::optional<QuantScheme> own_scheme = {};
};

// The stored shape [channels, 1, taps] of the convolution of layers without attention.
Shape conv_shape(const ModelConfig& config) {
  const LayerConfig& layer = config.layer(config.state_layers().front());
  if (layer.short_conv() != nullptr) return {config.width, 1, layer.short_conv()->taps};
  return {layer.delta_net()->channels(), 1, layer.delta_net()->conv_taps};
}

using Rows = std::shared_ptr<const StoredRows>;

std::int64_t columns_of(const Shape& shape) { return shape.size() == 2 ? shape[1] : 1; }

// The row and column in the stored tensor for leq's row `row` and column `column`.
std::int64_t stored_row(const StoredRows& rows, std::int64_t row) {
  const TensorLayout& layout = rows.rule.layout;
  if (layout.order != nullptr) return layout.order->row(*rows.config, row);
  return rows.first_row + row * (layout.interleaved ? layout.parts : 1);
}
std::int64_t stored_column(const StoredRows& rows, std::int64_t column) {
  return rows.rule.layout.columns->row(*rows.config, column);
}

// Applies the rule's elementwise transformation to a row.
void finish_row(const StoredRows& rows, std::span<float> row) {
  const TensorRule& rule = rows.rule;
  // Computed in f32 for all stored types, because 1 + w may need more bits than w's type has.
  if (rule.transform.added != 0) {
    for (float& number : row) number = number + rule.transform.added;
  }
  if (rule.transform.divisor != 1) {
    for (float& number : row) number /= rule.transform.divisor;
  }
  if (rule.transform.by_root_width) {
    const auto root = static_cast<float>(std::sqrt(static_cast<double>(rows.config->width)));
    for (float& number : row) number /= root;
  }
  if (rule.transform.log_of_negative) {
    for (float& number : row) number = static_cast<float>(std::log(-double{number}));
  }
  if (rule.transform.normed_rows) {
    double squares = 0;
    for (const float number : row) squares += double{number} * double{number};
    const double mean = squares / static_cast<double>(row.size());
    const double norm = std::sqrt(mean + double{rows.config->norm_eps});
    for (float& number : row) number = static_cast<float>(double{number} / norm);
  }
  if (rule.layout.columns == nullptr) return;
  const std::vector<float> stored(row.begin(), row.end());
  for (std::size_t k = 0; k < row.size(); ++k) {
    row[k] = stored[static_cast<std::size_t>(stored_column(rows, static_cast<std::int64_t>(k)))];
  }
}

auto read_rows(const Rows& rows) {
  return [rows](std::int64_t first, std::int64_t count, std::span<float> out) {
    const TensorRule& rule = rows->rule;
    const std::int64_t columns = columns_of(rows->shape);
    const auto width = static_cast<std::size_t>(columns);
    const bool at_once =
        rule.layout.order == nullptr && !rule.layout.interleaved && rule.layout.column_parts == 1;
    if (at_once) {
      rows->source.read(rows->tensor, (rows->first_row + first) * columns,
                        out.first(static_cast<std::size_t>(count) * width));
    }
    for (std::int64_t i = 0; i < count; ++i) {
      const std::span<float> row = out.subspan(static_cast<std::size_t>(i) * width, width);
      if (!at_once) {
        const std::int64_t part = stored_row(*rows, first + i) * rule.layout.column_parts;
        rows->source.read(rows->tensor, columns * (part + rule.layout.column_part), row);
      }
      finish_row(*rows, row);
    }
  };
}

auto read_transposed(const Rows& rows) {
  return [rows](std::int64_t first, std::int64_t count, std::span<float> out) {
    const std::int64_t columns = columns_of(rows->shape);
    const std::int64_t stored = rows->rule.layout.parts * rows->shape[0];
    const std::int64_t step = rows->rule.layout.interleaved ? rows->rule.layout.parts : 1;
    const std::int64_t expert = rows->first_row / stored;
    const std::int64_t begin = rows->first_row % stored + first * step;
    std::vector<float> line(static_cast<std::size_t>((count - 1) * step + 1));
    for (std::int64_t k = 0; k < columns; ++k) {
      rows->source.read(rows->tensor, (expert * columns + k) * stored + begin, line);
      for (std::int64_t n = 0; n < count; ++n) {
        out[static_cast<std::size_t>(n * columns + k)] = line[static_cast<std::size_t>(n * step)];
      }
    }
  };
}

auto read_taps_first(const Rows& rows) {
  return [rows](std::int64_t first, std::int64_t count, std::span<float> out) {
    const Shape conv = conv_shape(*rows->config);
    const std::int64_t channels = conv[0], taps = conv[2];
    std::vector<float> all(static_cast<std::size_t>(channels * taps));
    rows->source.read(rows->tensor, 0, all);
    for (std::int64_t i = 0; i < count; ++i) {
      const std::int64_t tap = (first + i) / channels, channel = (first + i) % channels;
      out[static_cast<std::size_t>(i)] =
          all[static_cast<std::size_t>(stored_row(*rows, channel) * taps + tap)];
    }
  };
}

bool moves_columns(const StoredRows& rows) {
  if (rows.rule.layout.columns == nullptr) return false;
  for (std::int64_t k = 0; k < columns_of(rows.shape); ++k) {
    if (stored_column(rows, k) != k) return true;
  }
  return false;
}

// Whether columns are permuted in whole groups of a scheme, so that codes and scales can be
// permuted with them. Groups of k types have 256 columns, which is more than a head has.
bool moves_groups(const StoredRows& rows, const QuantScheme& scheme) {
  if (rows.rule.layout.columns == nullptr || scheme.is_float()) return true;
  const std::int64_t columns = columns_of(rows.shape);
  const std::int64_t group = scheme.scaling == Scaling::group ? scheme.group : 0;
  if (scheme.is_super() || group == 0 || columns % group != 0) return false;
  for (std::int64_t k = 0; k < columns; ++k) {
    const std::int64_t begin = stored_column(rows, k / group * group);
    if (begin % group != 0 || stored_column(rows, k) != begin + k % group) return false;
  }
  return true;
}

// Permutes a row's values, each of which covers `each` columns, to leq's order of columns.
template <class T>
void move_columns(const StoredRows& rows, std::int64_t each, std::vector<T>& row) {
  const std::vector<T> stored = row;
  for (std::size_t i = 0; i < row.size(); ++i) {
    const std::int64_t from = stored_column(rows, static_cast<std::int64_t>(i) * each) / each;
    row[i] = stored[static_cast<std::size_t>(from)];
  }
}

auto read_code_rows(const Rows& rows) {
  return
      [rows](const QuantScheme& scheme, std::int64_t first, std::int64_t count, ChosenCodes& out) {
        const TensorRule& rule = rows->rule;
        if (rule.layout.order == nullptr && !rule.layout.interleaved &&
            rule.layout.columns == nullptr) {
          return rows->source.read_codes(rows->tensor, scheme, rows->first_row + first, count, out);
        }
        out = {};
        for (std::int64_t row = first; row < first + count; ++row) {
          ChosenCodes one;
          if (!rows->source.read_codes(rows->tensor, scheme, stored_row(*rows, row), 1, one)) {
            return false;
          }
          if (rule.layout.columns != nullptr) {
            move_columns(*rows, 1, one.codes);
            move_columns(*rows, scheme.group, one.scales);
            move_columns(*rows, scheme.group, one.zeros);
          }
          out.codes.insert(out.codes.end(), one.codes.begin(), one.codes.end());
          out.scales.insert(out.scales.end(), one.scales.begin(), one.scales.end());
          out.zeros.insert(out.zeros.end(), one.zeros.begin(), one.zeros.end());
          out.scale_mul = one.scale_mul;
        }
        return true;
      };
}

RowReaders row_readers(StoredRows stored) {
  if (!moves_columns(stored)) stored.rule.layout.columns = nullptr;
  const auto rows = std::make_shared<const StoredRows>(std::move(stored));
  const TensorRule& rule = rows->rule;
  if (rule.layout.transposed) return {read_transposed(rows)};
  if (rule.layout.taps_first) return {read_taps_first(rows)};
  RowReaders readers = {read_rows(rows)};
  if (rule.transform.computes() || rule.layout.column_parts > 1) return readers;
  const auto own = rows->source.own_scheme(rows->tensor);
  if (own && !moves_groups(*rows, *own)) return readers;
  readers.own_scheme = own;
  const bool moves_codes = rule.layout.columns == nullptr || (own && !own->is_float());
  if (moves_codes) readers.read_codes = read_code_rows(rows);
  return readers;
}

// --- tensors by name

constexpr std::uint64_t kMaxModelConfigBytes = 16 << 20;

// A name's pattern and numbers: "layers.3.experts.17.up" -> "layers.{}.experts.{}.up", {3, 17}.
struct NumberedName {
  std::string pattern;
  std::vector<std::string> numbers = {};
  bool of_mtp = false;  // whether the name began with "mtp."

  std::int64_t expert() const { return numbers.size() < 2 ? 0 : std::stoll(numbers[1]); }
};

NumberedName numbered(std::string_view name) {
  NumberedName found;
  found.of_mtp = name.starts_with(kMtp);
  if (found.of_mtp) name.remove_prefix(kMtp.size());
  for (const std::string_view part : split(name, ".")) {
    const bool number = parse_int(part).has_value();
    if (number) found.numbers.emplace_back(part);
    found.pattern += (found.pattern.empty() ? "" : ".") + (number ? "{}" : std::string(part));
  }
  return found;
}

// Replaces each "{}" by the next number.
std::string with_numbers(std::string_view pattern, const std::vector<std::string>& numbers) {
  std::string name;
  std::size_t next = 0;
  for (std::size_t at = 0; at < pattern.size(); ++at) {
    if (pattern.substr(at, 2) == "{}" && next < numbers.size()) {
      name += numbers[next++];
      ++at;
    } else {
      name += pattern[at];
    }
  }
  return name;
}

// Some converters remove or add dimensions of 1, so shapes are compared without them.
Shape without_ones(Shape shape) {
  std::erase(shape, 1);
  return shape;
}

// Looks up the tensors of a checkpoint by leq's names and checks their shapes.
class TensorImporter {
 public:
  TensorImporter(const TensorSource& source, const Family& family, const ModelConfig& config,
                 std::string place, std::span<const std::string> left_out)
      : source_(source),
        family_(family),
        config_(config),
        shared_config_(std::make_shared<const ModelConfig>(config)),
        place_(std::move(place)),
        left_out_(left_out) {
    find_names();
  }

  std::vector<TensorInput> import() {
    std::vector<TensorInput> tensors;
    for (const TensorSpec& spec : tensor_list(config_)) tensors.push_back(import_one(spec));
    leave_shared_keys();
    refuse_unused();
    refuse_empty();
    return tensors;
  }

 private:
  void find_names() {
    const auto names = find_text_names(source_, family_);
    require(names.has_value(), place_, ": tensor ", family_.prefixes.front(),
            family_.tensors.front().source, " is missing; is this a ", family_.name,
            " checkpoint?");
    names_ = *names;
  }

  std::string source_name(const TensorRule& rule, const NumberedName& name) const {
    return (name.of_mtp ? names_.mtp : names_.prefix) + with_numbers(rule.source, name.numbers);
  }

  // The first rule whose source tensor exists; if none exists, the first rule.
  const TensorRule& rule_for(const NumberedName& name) const {
    const TensorRule* first = nullptr;
    for (const TensorRule& rule : family_.tensors) {
      if (rule.leq != name.pattern) continue;
      if (source_.find(source_name(rule, name)) != nullptr) return rule;
      if (first == nullptr) first = &rule;
    }
    ensure(first != nullptr, place_, ": family ", family_.name, " has no tensor ", name.pattern);
    return *first;
  }

  TensorInput import_one(const TensorSpec& spec) {
    const NumberedName numbers = numbered(spec.name);
    TensorRule rule;
    std::string name;
    if (spec.role == TensorRole::head) {
      name = names_.head;
    } else {
      rule = rule_for(numbers);
      name = source_name(rule, numbers);
    }
    if (rule.transform.constant != 0) return filled(spec, rule.transform.constant);
    const SourceTensor* tensor = source_.find(name);
    require(tensor != nullptr, place_, ": tensor ", name, " is missing",
            spec.role == TensorRole::head ? " and tie_word_embeddings is false" : "");
    check_shape(*tensor, spec, rule, numbers.expert());
    used_.insert(name);
    return wrap(*tensor, spec, rule, rule.layout.stacked ? numbers.expert() : 0);
  }

  // Some checkpoints have keys and values of layers that read those of other layers.
  void leave_shared_keys() {
    for (std::int64_t layer = 0; layer < config_.layer_count(); ++layer) {
      const AttentionConfig* attention = config_.layer(layer).attention();
      if (attention == nullptr || attention->kv_of < 0) continue;
      for (const char* part : {"k", "v", "k_norm"}) {
        const NumberedName name = numbered(layer_tensor(layer, part));
        const std::string source = source_name(rule_for(name), name);
        if (source_.find(source) != nullptr) used_.insert(source);
      }
    }
  }

  static TensorInput filled(const TensorSpec& spec, float value) {
    TensorInput imported;
    imported.name = spec.name;
    imported.shape = spec.shape;
    imported.role = spec.role;
    imported.read = [value](std::int64_t, std::int64_t count, std::span<float> out) {
      std::ranges::fill(out.first(static_cast<std::size_t>(count)), value);
    };
    imported.drop = [] {};
    return imported;
  }

  void check_shape(const SourceTensor& tensor, const TensorSpec& spec, const TensorRule& rule,
                   std::int64_t expert) const {
    Shape want = spec.shape;
    want[0] *= rule.layout.parts;
    if (rule.layout.column_parts > 1) want[1] *= rule.layout.column_parts;
    if (rule.layout.order != nullptr) want[0] = rule.layout.order->stored_rows(config_);
    if (rule.layout.taps_first) want = conv_shape(config_);
    if (rule.layout.transposed) std::reverse(want.begin(), want.end());
    if (rule.layout.stacked) want.insert(want.begin(), experts_of(spec));
    ensure(!rule.layout.stacked || expert < want[0], tensor.name, " has no expert ", expert);
    require(without_ones(tensor.shape) == without_ones(want), tensor.place, ": tensor ",
            tensor.name, ": expected shape ", shape_text(want), " by config.json, found ",
            shape_text(tensor.shape));
  }

  std::int64_t experts_of(const TensorSpec& spec) const {
    const NumberedName name = numbered(spec.name);
    const LayerConfig& layer =
        name.of_mtp ? *config_.mtp : config_.layer(std::stoll(name.numbers.at(0)));
    return layer.experts_mlp()->experts;
  }

  TensorInput wrap(const SourceTensor& tensor, const TensorSpec& spec, const TensorRule& rule,
                   std::int64_t expert) {
    TensorInput imported;
    imported.name = spec.name;
    imported.shape = spec.shape;
    imported.role = spec.role;
    const auto& layout = rule.layout;
    const std::int64_t first_row = layout.interleaved
                                       ? expert * layout.parts * spec.shape[0] + layout.part
                                       : (expert * layout.parts + layout.part) * spec.shape[0];
    RowReaders rows = row_readers({source_, tensor, rule, shared_config_, spec.shape, first_row});
    imported.read = std::move(rows.read);
    imported.read_codes = std::move(rows.read_codes);
    imported.own_scheme = rows.own_scheme;
    if (source_.has_types()) imported.source_type = tensor.file_dtype;
    imported.drop = [this_source = &source_, &tensor] { this_source->drop(tensor); };
    return imported;
  }

  // The end of a preallocated file that was not downloaded whole consists of zeros.
  void refuse_empty() const {
    std::vector<std::string> empty;
    for (const std::string& name : used_) {
      const SourceTensor& tensor = *source_.find(name);
      if (tensor.shape.size() >= 2 && !tensor.bytes.empty() && are_zeros(tensor.bytes)) {
        empty.push_back(printable(name));
      }
    }
    require(empty.empty(), place_, ": all bytes of ", empty.size(), " weights are zero, as ",
            empty.empty() ? "" : empty.front(), " at ",
            empty.empty() ? "" : source_.find(empty.front())->place,
            "; the file was not downloaded whole, download it again");
  }

  // Quantization tools add a bias to every linear; it is all zeros if the model has none.
  bool is_zero_bias(const SourceTensor& tensor) const {
    if (!source_.has_types() || !tensor.name.ends_with(".bias")) return false;
    std::vector<float> values(tensor.shape.size() == 1 ? static_cast<std::size_t>(tensor.shape[0])
                                                       : 0);
    source_.read(tensor, 0, values);
    return !values.empty() && std::ranges::all_of(values, [](float x) { return x == 0; });
  }

  // An unread tensor suggests that the architecture differs from config.json's, so it is refused.
  void refuse_unused() const {
    for (const SourceTensor& tensor : source_.tensors()) {
      if (used_.contains(tensor.name)) continue;
      if (tensor.name == names_.head && config_.tied) continue;  // a duplicate (resolve_tied_head)
      if (!other_model_of(tensor.name).empty()) continue;
      const bool left_out = std::ranges::any_of(left_out_, [&](const std::string& beginning) {
        return tensor.name.starts_with(beginning);
      });
      if (left_out) continue;
      const auto& endings = family_.ignored;
      const bool ignored = std::any_of(endings.begin(), endings.end(), [&](std::string_view end) {
        return tensor.name.ends_with(end);
      });
      if (!ignored && is_zero_bias(tensor)) continue;
      require(ignored, tensor.place, ": tensor ", printable(tensor.name), " ",
              shape_text(tensor.shape), " has no place in family ", family_.name,
              " with this config.json");
    }
  }

  const TensorSource& source_;
  const Family& family_;
  const ModelConfig& config_;
  std::shared_ptr<const ModelConfig> shared_config_;  // shared with readers
  std::string place_;
  std::span<const std::string> left_out_;
  TextNames names_;
  std::set<std::string> used_;
};

}  // namespace

std::vector<TensorInput> import_tensors(const TensorSource& source, const Family& family,
                                        const ModelConfig& config, std::string place,
                                        std::span<const std::string> left_out) {
  return TensorImporter(source, family, config, std::move(place), left_out).import();
}

namespace {

std::vector<Token> token_list(const Json& json, const char* key, std::string_view source) {
  std::vector<Token> ids;
  const Json* found = json.find_given(key);
  if (found == nullptr) return ids;
  const Json list = found->is_array() ? *found : Json::array({*found});
  const std::string place = std::string(source) + ": " + key;
  for (const auto& id : list) ids.push_back(token_from_json(id, place));
  return ids;
}

// Reads generation_config.json; if it has no end tokens, uses those of config.json.
GenerationDefaults read_generation(const fs::path& folder, const Json& config) {
  GenerationDefaults defaults;
  const auto path = folder / "generation_config.json";
  if (file_exists(path)) {
    const std::string source = path.string();
    const Json json = parse_json(read_file(path, kMaxModelConfigBytes), source);
    defaults.sampling = sampling_from_json(json, &SamplingParameter::config_key, source);
    defaults.end_tokens = token_list(json, "eos_token_id", source);
  }
  if (defaults.end_tokens.empty()) {
    defaults.end_tokens = token_list(config, "eos_token_id", "config.json");
  }
  return defaults;
}

// Drops end tokens outside of the vocabulary, because the model cannot generate them.
void drop_ends_beyond(ImportedModel& model) {
  std::erase_if(model.generation.end_tokens, [&](Token id) {
    const bool beyond = id < 0 || id >= model.config.vocab;
    if (beyond) {
      model.notes.push_back("the end token " + std::to_string(id) + " is left out: the model has " +
                            std::to_string(model.config.vocab) + " ids");
    }
    return beyond;
  });
}

std::string read_config(const fs::path& folder) {
  const fs::path path = folder / "config.json";
  if (!file_exists(path)) {
    refuse_adapter(folder);
    refuse_lfs_pointer(folder);
    fail(folder.string(),
         ": is no checkpoint folder; one holds config.json, *.safetensors and tokenizer.json or "
         "tokenizer.model");
  }
  std::string text = read_file(path, kMaxModelConfigBytes);
  Json config = parse_json(text, path.string());
  return add_side_file(folder, config) ? config.dump() : text;
}

// The files of a checkpoint folder, except .leq files, which are outputs of earlier conversions.
std::vector<fs::path> files_in(const fs::path& folder) {
  std::vector<fs::path> files;
  for (const std::string& name : file_names(folder)) {
    const fs::path path = folder / name;
    std::error_code unknown;
    if (!fs::is_regular_file(path, unknown)) continue;
    std::array<char, kLeqMagic.size()> magic = {};
    std::ifstream file(path, std::ios::binary);
    const bool written = file.read(magic.data(), magic.size()) && magic == kLeqMagic;
    if (!written) files.push_back(path);
  }
  return files;
}

// The multi-token prediction head gets the attention config of the last attention layer and the MLP
// config of the last layer.
void add_mtp(const TensorSource& source, const Family& family, ModelConfig& config) {
  const auto names = find_text_names(source, family);
  if (!names || names->mtp.empty() || config.attention_layers().empty()) return;
  config.mtp = {config.layer(config.attention_layers().back()).mixer, config.layers.back().mlp};
}

}  // namespace

bool says_quantized(const fs::path& folder) {
  const std::string place = (folder / "config.json").string();
  const Json config = text_config_of(parse_json(read_config(folder), place), place);
  return read_quantization_config(config, place).has_value();
}

bool folder_holds_codes(const fs::path& folder) {
  if (!file_exists(folder / "config.json")) return false;
  const std::string place = (folder / "config.json").string();
  const Json config = text_config_of(parse_json(read_config(folder), place), place);
  if (!read_quantization_config(config, place)) return false;
  std::vector<std::string> notes;
  const auto source = open_weights(folder, config, notes);
  return std::ranges::any_of(source->tensors(), [&](const SourceTensor& tensor) {
    const auto scheme = source->own_scheme(tensor);
    return scheme && !scheme->is_float();
  });
}

ModelConfig import_hf_config(const fs::path& folder) {
  const std::string text = read_config(folder);
  return import_hf_config(text, (folder / "config.json").string());
}

ImportedModel import_hf(const fs::path& folder, ArrivingFiles* arriving) {
  const auto config_path = folder / "config.json";
  const std::string config_text = read_config(folder);
  ImportedModel model;
  model.config = import_hf_config(config_text, config_path.string());
  const Json config =
      text_config_of(parse_json(config_text, config_path.string()), config_path.string());
  Family family = *find_family(json_get<std::string>(config, "model_type", "config.json"));
  read_constants(config, config_path.string(), family);

  model.source = open_weights(folder, config, model.notes, arriving);
  add_mtp(*model.source, family, model.config);
  if (std::string note = left_out_note(*model.source, model.config.mtp.has_value());
      !note.empty()) {
    model.notes.push_back(std::move(note));
  }
  resolve_tied_head(*model.source, family, model.config, model.notes);
  require(!model.config.tied || !family.tensors.front().transform.normed_rows, folder.string(),
          ": ", family.name, " norms its embeddings, a head of the same rows is not supported");
  model.tensors = import_tensors(*model.source, family, model.config, folder.string());
  if (auto projection = read_embedding_projection(folder, model.config.width)) {
    model.config.embedding_projection = true;
    model.tensors.push_back(std::move(*projection));
  }

  ImportedTokenizer tokenizer = import_tokenizer(folder, {});
  drop_added_beyond(tokenizer.spec, model.config.vocab, model.notes);
  require(std::ssize(tokenizer.spec.pieces) <= model.config.vocab, folder.string(),
          ": the tokenizer has ", tokenizer.spec.pieces.size(), " ids, the model only ",
          model.config.vocab);
  const Json whole = parse_json(config_text, config_path.string());  // including the wrapper's keys
  if (std::string note = mistral_pattern_note(whole, tokenizer.spec); !note.empty()) {
    model.notes.push_back(std::move(note));
  }
  model.has_tokenizer = true;
  model.embedding = read_embedding_files(folder, tokenizer.spec, model.notes);
  if (tokenizer.end < std::ssize(tokenizer.spec.pieces)) model.embedding.end = tokenizer.end;
  model.tokenizer = std::move(tokenizer.spec);
  model.chat_template = std::move(tokenizer.chat_template);
  model.generation = read_generation(folder, config);
  drop_ends_beyond(model);
  note_inexact(model.tensors, model.notes);
  model.dtype = exact_dtype(*model.source);
  const auto quantized = read_quantization_config(config, config_path.string());
  model.description =
      std::string(family.architectures.front()) + ", " +
      std::string(quantized ? packed_method_name(quantized->method) : dtype_name(model.dtype));
  model.folder = folder.filename().empty() ? folder.parent_path().filename().string()
                                           : folder.filename().string();
  model.files = files_in(folder);
  return model;
}

}  // namespace leq
