#include "convert/hf_import.h"

#include <algorithm>
#include <array>
#include <fstream>
#include <set>

#include "base/error.h"
#include "base/file.h"
#include "base/json.h"
#include "base/text.h"
#include "convert/checkpoint_names.h"
#include "convert/hf_text_config.h"
#include "convert/hf_weights.h"
#include "convert/mistral_pattern.h"
#include "convert/quantization_config.h"
#include "convert/tied_head.h"
#include "convert/tokenizer_import.h"
#include "format/leq_layout.h"
#include "format/safetensors.h"
#include "model/tensor_list.h"
#include "models/family.h"

namespace leq {
namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t kMaxModelConfigBytes = 16 << 20;

// "layers.3.experts.17.up" -> "layers.{}.experts.{}.up" with its numbers.
struct NumberedName {
  std::string pattern;
  std::vector<std::string> numbers = {};

  std::int64_t expert() const { return numbers.size() < 2 ? 0 : std::stoll(numbers[1]); }
};

NumberedName numbered(const std::string& name) {
  NumberedName found;
  for (const std::string_view part : split(name, ".")) {
    const bool number = parse_int(part).has_value();
    if (number) found.numbers.emplace_back(part);
    found.pattern += (found.pattern.empty() ? "" : ".") + (number ? "{}" : std::string(part));
  }
  return found;
}

// Each "{}" by the next number.
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

// Finds the tensors of a checkpoint under leq's names and checks their shapes.
class TensorImporter {
 public:
  TensorImporter(const TensorSource& source, const Family& family, const ModelConfig& config,
                 std::string place)
      : source_(source), family_(family), config_(config), place_(std::move(place)) {
    find_names();
  }

  std::vector<TensorInput> import() {
    std::vector<TensorInput> tensors;
    for (const TensorSpec& spec : tensor_list(config_)) tensors.push_back(import_one(spec));
    refuse_unused();
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
    return names_.prefix + with_numbers(rule.source, name.numbers);
  }

  // The first whose source is there, else the first.
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
    const SourceTensor* tensor = source_.find(name);
    require(tensor != nullptr, place_, ": tensor ", name, " is missing",
            spec.role == TensorRole::head ? " and tie_word_embeddings is false" : "");
    check_shape(*tensor, spec, rule, numbers.expert());
    used_.insert(name);
    return wrap(*tensor, spec, rule, rule.stacked ? numbers.expert() : 0);
  }

  void check_shape(const SourceTensor& tensor, const TensorSpec& spec, const TensorRule& rule,
                   std::int64_t expert) const {
    Shape want = spec.shape;
    want[0] *= rule.parts;
    if (rule.order != nullptr) want[0] = rule.order->stored_rows(config_);
    if (rule.taps_first) want = conv_shape();
    if (rule.transposed) std::reverse(want.begin(), want.end());
    if (rule.stacked) want.insert(want.begin(), experts_of(spec));
    ensure(!rule.stacked || expert < want[0], tensor.name, " has no expert ", expert);
    require(tensor.shape == want, tensor.place, ": tensor ", tensor.name, ": expected shape ",
            shape_text(want), " by config.json, found ", shape_text(tensor.shape));
  }

  std::int64_t experts_of(const TensorSpec& spec) const {
    const auto layer = std::stoll(numbered(spec.name).numbers.at(0));
    return config_.layer(layer).experts_mlp()->experts;
  }

  TensorInput wrap(const SourceTensor& tensor, const TensorSpec& spec, const TensorRule& rule,
                   std::int64_t expert) {
    TensorInput imported;
    imported.name = spec.name;
    imported.shape = spec.shape;
    imported.role = spec.role;
    const std::int64_t columns = spec.shape.size() == 2 ? spec.shape[1] : 1;
    const std::int64_t first_row = (expert * rule.parts + rule.part) * spec.shape[0];
    if (rule.order != nullptr) {
      imported.read = read_in_order(tensor, *rule.order, columns);
      imported.read_codes = read_codes_in_order(tensor, *rule.order);
      imported.own_scheme = source_.own_scheme(tensor);
    } else if (rule.taps_first) {
      imported.read = read_taps_first(tensor);
    } else if (rule.added != 0) {
      imported.read = read_added(tensor, rule.added);
    } else if (rule.transposed) {
      const std::int64_t stored = rule.parts * spec.shape[0];
      imported.read = [from = &source_, &tensor, columns, first_row, stored](
                          std::int64_t first, std::int64_t count, std::span<float> out) {
        std::vector<float> line(static_cast<std::size_t>(count));
        for (std::int64_t k = 0; k < columns; ++k) {
          from->read(tensor, k * stored + first_row + first, line);
          for (std::int64_t n = 0; n < count; ++n) {
            out[static_cast<std::size_t>(n * columns + k)] = line[static_cast<std::size_t>(n)];
          }
        }
      };
    } else {
      imported.read = [from = &source_, &tensor, columns, first_row](
                          std::int64_t first, std::int64_t count, std::span<float> out) {
        from->read(tensor, (first_row + first) * columns,
                   out.first(static_cast<std::size_t>(count * columns)));
      };
      imported.read_codes = [from = &source_, &tensor, first_row](
                                const QuantScheme& scheme, std::int64_t first, std::int64_t count,
                                ChosenCodes& out) {
        return from->read_codes(tensor, scheme, first_row + first, count, out);
      };
      imported.own_scheme = source_.own_scheme(tensor);
    }
    if (source_.tells_types()) imported.source_type = tensor.file_dtype;
    imported.drop = [this_source = &source_, &tensor] { this_source->drop(tensor); };
    return imported;
  }

  using ReadRows = decltype(TensorInput::read);

  ReadRows read_in_order(const SourceTensor& tensor, const RowOrder& order,
                         std::int64_t columns) const {
    return [from = &source_, &tensor, &order, columns, config = config_](
               std::int64_t first, std::int64_t count, std::span<float> out) {
      const auto width = static_cast<std::size_t>(columns);
      for (std::int64_t row = 0; row < count; ++row) {
        from->read(tensor, order.row(config, first + row) * columns,
                   out.subspan(static_cast<std::size_t>(row) * width, width));
      }
    };
  }

  decltype(TensorInput::read_codes) read_codes_in_order(const SourceTensor& tensor,
                                                        const RowOrder& order) const {
    return
        [from = &source_, &tensor, &order, config = config_](
            const QuantScheme& scheme, std::int64_t first, std::int64_t count, ChosenCodes& out) {
          out = {};
          ChosenCodes one;
          for (std::int64_t row = first; row < first + count; ++row) {
            if (!from->read_codes(tensor, scheme, order.row(config, row), 1, one)) return false;
            out.codes.insert(out.codes.end(), one.codes.begin(), one.codes.end());
            out.scales.insert(out.scales.end(), one.scales.begin(), one.scales.end());
            out.zeros.insert(out.zeros.end(), one.zeros.begin(), one.zeros.end());
          }
          return true;
        };
  }

  // [channels, 1, taps]
  Shape conv_shape() const {
    const DeltaNetConfig& delta = *config_.delta_net();
    return {delta.channels(), 1, delta.conv_taps};
  }

  ReadRows read_taps_first(const SourceTensor& tensor) const {
    const auto channels = static_cast<std::size_t>(conv_shape()[0]);
    const auto taps = static_cast<std::size_t>(conv_shape()[2]);
    return [from = &source_, &tensor, channels, taps](std::int64_t first, std::int64_t count,
                                                      std::span<float> out) {
      std::vector<float> all(channels * taps);
      from->read(tensor, 0, all);
      for (std::size_t i = 0; i < static_cast<std::size_t>(count); ++i) {
        const std::size_t at = static_cast<std::size_t>(first) + i;
        out[i] = all[at % channels * taps + at / channels];
      }
    };
  }

  // Of a vector. In f32, whatever the stored type: 1 + w has bits that w's type has not.
  ReadRows read_added(const SourceTensor& tensor, float added) const {
    return [from = &source_, &tensor, added](std::int64_t first, std::int64_t count,
                                             std::span<float> out) {
      const auto numbers = out.first(static_cast<std::size_t>(count));
      from->read(tensor, first, numbers);
      for (float& number : numbers) number = number + added;
    };
  }

  // Quantizing tools give every linear a bias, of zeros where the model has none.
  bool is_zero_bias(const SourceTensor& tensor) const {
    if (!source_.tells_types() || !tensor.name.ends_with(".bias")) return false;
    std::vector<float> values(tensor.shape.size() == 1 ? static_cast<std::size_t>(tensor.shape[0])
                                                       : 0);
    source_.read(tensor, 0, values);
    return !values.empty() && std::ranges::all_of(values, [](float x) { return x == 0; });
  }

  // A tensor that nothing reads means another architecture than config.json says: refused by name.
  void refuse_unused() const {
    for (const SourceTensor& tensor : source_.tensors()) {
      if (used_.contains(tensor.name)) continue;
      if (tensor.name == names_.head && config_.tied) continue;  // settle_tying found it equal
      if (!other_model_of(tensor.name).empty()) continue;
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
  std::string place_;
  TextNames names_;
  std::set<std::string> used_;
};

}  // namespace

std::vector<TensorInput> import_tensors(const TensorSource& source, const Family& family,
                                        const ModelConfig& config, std::string place) {
  return TensorImporter(source, family, config, std::move(place)).import();
}

namespace {

std::vector<Token> token_list(const Json& json, const char* key, std::string_view source) {
  std::vector<Token> ids;
  const auto found = json.find(key);
  if (found == json.end() || found->is_null()) return ids;
  const Json list = found->is_array() ? *found : Json::array({*found});
  const std::string place = std::string(source) + ": " + key;
  for (const auto& id : list) ids.push_back(token_from_json(id, place));
  return ids;
}

// generation_config.json; end tokens also from config.json where it names none.
GenerationDefaults read_generation(const std::filesystem::path& folder, const Json& config) {
  GenerationDefaults defaults;
  const auto path = folder / "generation_config.json";
  if (file_exists(path)) {
    const std::string source = path.string();
    const Json json = parse_json(read_file(path, kMaxModelConfigBytes), source);
    defaults.sampling = sampling_from_json(json, &SamplingKnob::config_key, source);
    defaults.end_tokens = token_list(json, "eos_token_id", source);
  }
  if (defaults.end_tokens.empty()) {
    defaults.end_tokens = token_list(config, "eos_token_id", "config.json");
  }
  return defaults;
}

// No model can write such a token.
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

std::string read_config(const std::filesystem::path& folder) {
  require(file_exists(folder / "config.json"), folder.string(),
          ": is no checkpoint folder; one holds config.json, *.safetensors and tokenizer.json or "
          "tokenizer.model");
  return read_file(folder / "config.json", kMaxModelConfigBytes);
}

// What lies in the folder of a checkpoint, but for .leq files, which were written there.
std::vector<std::filesystem::path> files_in(const std::filesystem::path& folder) {
  std::vector<std::filesystem::path> files;
  for (const std::string& name : file_names(folder)) {
    const std::filesystem::path path = folder / name;
    std::error_code unknown;
    if (!std::filesystem::is_regular_file(path, unknown)) continue;
    std::array<char, kLeqMagic.size()> magic = {};
    std::ifstream file(path, std::ios::binary);
    const bool written = file.read(magic.data(), magic.size()) && magic == kLeqMagic;
    if (!written) files.push_back(path);
  }
  return files;
}

}  // namespace

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

ModelConfig import_hf_config(const std::filesystem::path& folder) {
  const std::string text = read_config(folder);
  return import_hf_config(text, (folder / "config.json").string());
}

ImportedModel import_hf(const std::filesystem::path& folder) {
  const auto config_path = folder / "config.json";
  const std::string config_text = read_config(folder);
  ImportedModel model;
  model.config = import_hf_config(config_text, config_path.string());
  const Json config =
      text_config_of(parse_json(config_text, config_path.string()), config_path.string());
  const Family& family = *find_family(json_get<std::string>(config, "model_type", "config.json"));

  model.source = open_weights(folder, config, model.notes);
  if (std::string note = left_out_note(*model.source); !note.empty()) {
    model.notes.push_back(std::move(note));
  }
  settle_tying(*model.source, family, model.config, model.notes);
  model.tensors = import_tensors(*model.source, family, model.config, folder.string());

  ImportedTokenizer tokenizer = import_tokenizer(folder, {});
  drop_added_beyond(tokenizer.spec, model.config.vocab, model.notes);
  require(std::ssize(tokenizer.spec.pieces) <= model.config.vocab, folder.string(),
          ": the tokenizer has ", tokenizer.spec.pieces.size(), " ids, the model only ",
          model.config.vocab);
  const Json whole = parse_json(config_text, config_path.string());  // with its wrapper's keys
  if (std::string note = mistral_pattern_note(whole, tokenizer.spec); !note.empty()) {
    model.notes.push_back(std::move(note));
  }
  model.has_tokenizer = true;
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
