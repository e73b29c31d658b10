#include "convert/quantization_config.h"

#include <algorithm>
#include <array>
#include <string>

#include "base/error.h"
#include "base/file.h"
#include "base/text.h"

namespace leq {
namespace {

constexpr std::string_view kRead =
    "; read are fp8, fbgemm_fp8, gptq, awq, auto-round, compressed-tensors, modelopt and mxfp4";

std::string text_of(const Json& object, std::string_view key, std::string_view place) {
  const Json* value = object.find_given(key);
  if (value == nullptr) return "";
  require(value->is_string(), place, ": ", key, ": expected a text");
  return value->text();
}

// The value of the first of `keys` that is present; 0 if none is.
std::int64_t number_of(const Json& object, std::initializer_list<std::string_view> keys,
                       std::string_view place) {
  for (const std::string_view key : keys) {
    const Json* value = object.find_given(key);
    if (value == nullptr) continue;
    require(value->is_number_integer(), place, ": ", key, ": expected a whole number");
    return value->get<std::int64_t>();
  }
  return 0;
}

void add_bits(std::int64_t bits, std::string_view place, PackedOptions& options) {
  require(bits >= 2 && bits <= 8, place, ": ", bits, " bits: expected 2 to 8");
  if (std::ranges::find(options.bits, bits) == options.bits.end()) {
    options.bits.push_back(static_cast<int>(bits));
  }
}

void read_block(const Json& object, std::string_view key, std::string_view place,
                PackedOptions& options) {
  const Json* block = object.find_given(key);
  if (block == nullptr) return;
  require(
      block->is_array() && block->size() == 2 &&
          std::ranges::all_of(*block, [](const Json& size) { return size.is_number_integer(); }),
      place, ": ", key, ": expected two whole numbers");
  options.block_rows = (*block)[std::size_t{0}].get<std::int64_t>();
  options.block_columns = (*block)[std::size_t{1}].get<std::int64_t>();
  constexpr std::int64_t kLargest = 1 << 30;  // sums with the sizes of a matrix do not overflow
  require(options.block_rows > 0 && options.block_columns > 0 && options.block_rows <= kLargest &&
              options.block_columns <= kLargest,
          place, ": ", key, ": blocks of ", options.block_rows, " x ", options.block_columns);
}

PackedOptions read_gptq(const Json& config, std::string_view place) {
  PackedOptions options;
  options.method = PackedMethod::gptq;
  std::int64_t bits = number_of(config, {"bits"}, place);
  require(bits == 2 || bits == 3 || bits == 4 || bits == 8, place, ": gptq: bits = ", bits,
          ": expected 2, 3, 4 or 8");
  add_bits(bits, place, options);
  options.group = number_of(config, {"group_size"}, place);
  std::string format = text_of(config, "checkpoint_format", place);
  if (format.empty()) format = text_of(config, "format", place);
  require(format.empty() || format == "gptq" || format == "gptq_v2", place, ": gptq: format ",
          printable(format), " is not read; expected gptq or gptq_v2");
  const std::string word = text_of(config, "pack_dtype", place);
  require(word.empty() || word == "int32", place, ": gptq: pack_dtype ", printable(word),
          " is not read; expected int32");
  require(
      config.find_given("is_marlin_format") == nullptr || config["is_marlin_format"] == Json(false),
      place, ": gptq: is_marlin_format is not read; get the checkpoint in gptq's own format");
  options.zeros_plus_one = format != "gptq_v2";
  return options;
}

PackedOptions read_awq(const Json& config, std::string_view place) {
  PackedOptions options;
  options.method = PackedMethod::awq;
  std::string version = text_of(config, "version", place);
  if (version.empty()) version = text_of(config, "format", place);
  for (char& c : version) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  require(version.empty() || version == "gemm", place, ": awq: version ", printable(version),
          " is not read; expected gemm");
  const std::int64_t bits = number_of(config, {"bits", "w_bit"}, place);
  require(bits == 4 || bits == 0, place, ": awq: bits = ", bits, ": expected 4");
  options.bits = {4};
  options.group = number_of(config, {"group_size", "q_group_size"}, place);
  return options;
}

PackedOptions read_fp8(const Json& config, std::string_view place) {
  PackedOptions options;
  read_block(config, "weight_block_size", place, options);
  return options;
}

// The words in the names of AutoRound's packings ("auto_round:gptq:exllamav2"), and the layout that
// they stand for; kernels say nothing about it.
struct AutoRoundWord {
  std::string_view word, layout;
};
constexpr std::array<AutoRoundWord, 12> kAutoRoundWords = {{{"auto_awq", "awq"},
                                                            {"awq", "awq"},
                                                            {"auto_gptq", "gptq"},
                                                            {"gptq", "gptq"},
                                                            {"gptqmodel", "gptq_v2"},
                                                            {"auto_round", ""},
                                                            {"autoround", ""},
                                                            {"exllamav2", ""},
                                                            {"tritonv2", ""},
                                                            {"triton", ""},
                                                            {"torch", ""},
                                                            {"cuda", ""}}};

// AutoRound stores weights in layouts of other methods, which `config` names: by `backend` in older
// checkpoints. Its own layout stores zero points as they are.
PackedOptions read_auto_round(const Json& config, std::string_view place) {
  std::string packing = text_of(config, "packing_format", place);
  if (packing.empty()) packing = text_of(config, "backend", place);
  require(!packing.empty(), place, ": auto-round: packing_format is missing");
  std::string_view layout = "gptq_v2";
  for (const std::string_view word : split(packing, ":")) {
    const auto* known = std::ranges::find(kAutoRoundWords, word, &AutoRoundWord::word);
    require(known != kAutoRoundWords.end(), place, ": auto-round: packing_format ",
            printable(packing),
            " is not read; expected auto_round, alone or with auto_gptq, gptqmodel or auto_awq");
    if (!known->layout.empty()) layout = known->layout;
  }
  if (layout == "awq") return read_awq(config, place);
  Json gptq = config;
  gptq["checkpoint_format"] = layout;
  return read_gptq(gptq, place);
}

PackedOptions read_modelopt(const Json& config, std::string_view place) {
  const std::string algorithm = text_of(config, "quant_algo", place);
  require(algorithm == "FP8" || algorithm == "NVFP4" || algorithm == "MXFP4", place,
          ": modelopt: quant_algo ", printable(algorithm),
          " is not read; expected FP8, NVFP4 or MXFP4");
  PackedOptions options;
  options.method = PackedMethod::modelopt;
  options.group = number_of(config, {"group_size"}, place);
  if (options.group == 0 && algorithm != "FP8") options.group = algorithm == "NVFP4" ? 16 : 32;
  return options;
}

// The experts of gpt-oss; their settings are in their tensors.
PackedOptions read_mxfp4(const Json&, std::string_view) { return {.method = PackedMethod::mxfp4}; }

void check_format(const std::string& format, std::string_view place) {
  constexpr std::array<std::string_view, 10> kFormats = {"",
                                                         "dense",
                                                         "int-quantized",
                                                         "float-quantized",
                                                         "naive-quantized",
                                                         "pack-quantized",
                                                         "nvfp4-pack-quantized",
                                                         "mxfp4-pack-quantized",
                                                         "mxfp8-quantized",
                                                         "mixed-precision"};
  const bool known = std::ranges::find(kFormats, std::string_view(format)) != kFormats.end();
  require(known, place, ": compressed-tensors: format ", printable(format), " is not read");
}

// The settings of the weights in one group of targets.
void read_group(const Json& group, std::string_view place, PackedOptions& options) {
  require(group.is_object(), place, ": config_groups: expected objects");
  check_format(text_of(group, "format", place), place);
  const Json* weights = group.find_given("weights");
  if (weights == nullptr) return;
  require(weights->is_object(), place, ": weights: expected an object");
  if (text_of(*weights, "type", place) != "float") {
    add_bits(number_of(*weights, {"num_bits"}, place), place, options);
  }
  const std::int64_t columns = number_of(*weights, {"group_size"}, place);
  if (options.group == 0 && columns > 0) options.group = columns;
  read_block(*weights, "block_structure", place, options);
}

PackedOptions read_compressed_tensors(const Json& config, std::string_view place) {
  PackedOptions options;
  options.method = PackedMethod::compressed_tensors;
  check_format(text_of(config, "format", place), place);
  if (const Json* sparsity = config.find_given("sparsity_config")) {
    const std::string format = text_of(*sparsity, "format", place);
    require(format.empty() || format == "dense", place, ": compressed-tensors: sparsity format ",
            printable(format), " is not read");
  }
  const Json* transforms = config.find_given("transform_config");
  const Json* rotations = transforms == nullptr ? nullptr : transforms->find_given("config_groups");
  require(rotations == nullptr || rotations->size() == 0, place,
          ": compressed-tensors: transform_config: rotations of inputs are not supported");
  const Json* groups = config.find_given("config_groups");
  require(groups != nullptr && groups->is_object(), place,
          ": compressed-tensors: config_groups: expected an object");
  for (const auto& [name, group] : groups->items()) {
    read_group(group, std::string(place) + ": config_groups: " + printable(name), options);
  }
  return options;
}

struct Reader {
  std::string_view method;
  PackedOptions (*read)(const Json& config, std::string_view place);
};
constexpr std::array<Reader, 9> kReaders = {{{"fp8", read_fp8},
                                             {"fbgemm_fp8", read_fp8},
                                             {"gptq", read_gptq},
                                             {"awq", read_awq},
                                             {"auto-round", read_auto_round},
                                             {"intel/auto-round", read_auto_round},
                                             {"compressed-tensors", read_compressed_tensors},
                                             {"modelopt", read_modelopt},
                                             {"mxfp4", read_mxfp4}}};

// Files in which older tools wrote what is now in config.json's quantization_config.
struct SideFile {
  std::string_view name, method;
  std::string_view member;  // the member that has the settings; empty: the file itself
};
constexpr std::array<SideFile, 3> kSideFiles = {
    {{"hf_quant_config.json", "modelopt", "quantization"},
     {"quantize_config.json", "gptq", ""},
     {"quant_config.json", "awq", ""}}};
constexpr std::uint64_t kMaxSideFileBytes = 16 << 20;

}  // namespace

bool add_side_file(const std::filesystem::path& folder, Json& config) {
  constexpr const char* kKey = "quantization_config";
  const Json* text = config.find_given("text_config");
  const bool has_own =
      config.find_given(kKey) != nullptr || (text != nullptr && text->find_given(kKey) != nullptr);
  if (has_own || !config.is_object()) return false;
  for (const SideFile& file : kSideFiles) {
    const std::filesystem::path path = folder / file.name;
    if (!file_exists(path)) continue;
    const std::string place = path.string();
    const Json whole = parse_json(read_file(path, kMaxSideFileBytes), place);
    const Json* settings = &whole;
    if (!file.member.empty()) settings = whole.find_given(file.member);
    require(settings != nullptr && settings->is_object(), place, ": expected an object",
            file.member.empty() ? "" : " \"", file.member, file.member.empty() ? "" : "\"");
    Json added = *settings;
    // Without an algorithm, ModelOpt has quantized the KV cache alone.
    if (file.method == "modelopt" && added.find_given("quant_algo") == nullptr) return false;
    if (added.find_given("quant_method") == nullptr) added["quant_method"] = file.method;
    config[kKey] = std::move(added);
    read_quantization_config(config, place);  // its errors name this file
    return true;
  }
  return false;
}

std::optional<PackedOptions> read_quantization_config(const Json& config, std::string_view source) {
  const Json* quantization = config.find_given("quantization_config");
  if (quantization == nullptr) return std::nullopt;
  const std::string place = std::string(source) + ": quantization_config";
  require(quantization->is_object(), place, ": expected an object");
  const std::string method = text_of(*quantization, "quant_method", place);
  const auto* reader = std::ranges::find(kReaders, std::string_view(method), &Reader::method);
  require(reader != kReaders.end(), place, ": quant_method \"", printable(method), "\" is not read",
          kRead);
  return reader->read(*quantization, place);
}

}  // namespace leq
