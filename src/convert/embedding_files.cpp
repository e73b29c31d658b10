#include "convert/embedding_files.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>

#include "base/error.h"
#include "base/file.h"
#include "base/json.h"
#include "base/text.h"
#include "model/linear_sites.h"

namespace leq {
namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t kMaxBytes = 1 << 20;

// sentence-transformers' names of what leq does too, and the flags of its older files.
struct PoolingMode {
  std::string_view name, flag;
  Pooling pooling;
};
constexpr std::array<PoolingMode, 3> kModes = {{{"mean", "mean_tokens", Pooling::mean},
                                                {"lasttoken", "lasttoken", Pooling::last},
                                                {"cls", "cls_token", Pooling::cls}}};
constexpr std::string_view kFlag = "pooling_mode_";

Json read_settings(const fs::path& path) {
  Json json = parse_json(read_file(path, kMaxBytes), path.string());
  require(json.is_object(), path.string(), ": expected an object, found ", json.type_name());
  return json;
}

Json read_modules(const fs::path& path) {
  Json modules = parse_json(read_file(path, kMaxBytes), path.string());
  require(modules.is_array(), path.string(), ": expected a list of modules, found ",
          modules.type_name());
  return modules;
}

// The folder of a module, which is inside the checkpoint's.
fs::path config_of(const fs::path& folder, const Json& module, std::string_view source) {
  const auto name = json_get<std::string>(module, "path", source);
  require(!name.empty() && name != ".." && fs::path(name).filename() == name, source, ": path ",
          printable(name), ": expected the name of a folder");
  return folder / name / "config.json";
}

std::string pooling_mode(const Json& config, const std::string& source) {
  if (config.contains("pooling_mode")) {
    const Json& mode = config["pooling_mode"];
    if (mode.is_string()) return mode.get<std::string>();
    require(mode.is_array() && mode.size() == 1, source, ": pooling_mode ", mode.dump(),
            ": several at once are not supported");
    return json_get<std::string>(Json::object({{"mode", mode[0]}}), "mode", source);
  }
  std::vector<std::string> flags;
  for (const auto& [key, value] : config.items()) {
    if (!key.starts_with(kFlag) || !value.is_boolean() || !value.get<bool>()) continue;
    flags.push_back(key.substr(kFlag.size()));
  }
  require(flags.size() <= 1, source, ": several poolings at once are not supported: ", join(flags));
  if (flags.empty()) return "mean";  // as sentence-transformers does
  const auto* found = std::ranges::find(kModes, flags[0], &PoolingMode::flag);
  return found == kModes.end() ? flags[0] : std::string(found->name);
}

Pooling read_pooling(const fs::path& path) {
  const std::string source = path.string();
  const std::string mode = pooling_mode(read_settings(path), source);
  const auto* found = std::ranges::find(kModes, mode, &PoolingMode::name);
  require(found != kModes.end(), source, ": pooling ", printable(mode),
          " is not supported; supported are mean, lasttoken and cls");
  return found->pooling;
}

// Only the form of Qwen3-Reranker's prompts is known, which asks for a yes or no.
void check_score(const fs::path& path, const TokenizerSpec& tokenizer) {
  const std::string source = path.string();
  const Json config = read_settings(path);
  const auto piece = [&](const char* key) {
    const auto id = json_get<std::int64_t>(config, key, source);
    require(id >= 0 && id < std::ssize(tokenizer.pieces), source, ": ", key, " ", id,
            ": the tokenizer has no such token");
    return tokenizer.pieces[static_cast<std::size_t>(id)];
  };
  require(piece("true_token_id") == "yes" && piece("false_token_id") == "no", source,
          ": rerankers that do not answer yes or no (Qwen3-Reranker) are not supported");
}

std::map<std::string, std::string> read_prompts(const fs::path& folder,
                                                std::vector<std::string>& notes) {
  const fs::path path = folder / "config_sentence_transformers.json";
  if (!file_exists(path)) return {};
  const Json json = read_settings(path);
  const auto name = json_get_or<std::string>(json, "default_prompt_name", "", path.string());
  if (!name.empty()) {
    notes.push_back("embeddings: the prompt " + printable(name) +
                    " is not put in front of texts by itself: prompt_name in a request does it");
  }
  return prompts_from_json(json, path.string());
}

// The checkpoints of Qwen3-Reranker are those of a chat model, and only their names tell.
bool is_named_reranker(const fs::path& checkpoint) {
  std::error_code unknown;
  const std::string path = fs::absolute(checkpoint, unknown).string();
  return path.find("Qwen3-Reranker") != std::string::npos ||
         path.find("qwen3-reranker") != std::string::npos;
}

float cosine(std::span<const float> a, std::span<const float> b) {
  double product = 0, squares = 0, others = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    product += double{a[i]} * double{b[i]};
    squares += double{a[i]} * double{a[i]};
    others += double{b[i]} * double{b[i]};
  }
  return static_cast<float>(product / std::sqrt(squares * others));
}

// llama.cpp's converter copies the head's rows of "yes" and "no" to cls.output.weight, and leaves
// out the rest of a head that is not the embedding, which leq needs.
void check_ranking_head(const GgufSource& source, const TokenizerSpec& tokenizer) {
  const SourceTensor* scores = source.find("cls.output.weight");
  const SourceTensor* table = source.find("token_embd.weight");
  const std::string& place = source.metadata().source();
  const auto yes = std::ranges::find(tokenizer.pieces, "yes");
  require(yes != tokenizer.pieces.end(), place,
          ": pooling_type 4 (rank) without a token \"yes\": ", "only Qwen3-Reranker is supported");
  if (scores == nullptr || table == nullptr || source.find("output.weight") != nullptr) return;
  require(
      scores->shape.size() == 2 && table->shape.size() == 2 && scores->shape[1] == table->shape[1],
      place, ": cls.output.weight ", shape_text(scores->shape), ": expected two rows as of ",
      shape_text(table->shape));
  std::vector<float> row(static_cast<std::size_t>(table->shape[1])), own = row;
  source.read(*scores, 0, row);
  source.read(*table, (yes - tokenizer.pieces.begin()) * table->shape[1], own);
  require(cosine(row, own) > 0.5f, place, ": its head is cut down to cls.output.weight, which is ",
          "not supported; convert the checkpoint's folder");
}

}  // namespace

EmbeddingRules read_embedding_files(const fs::path& folder, const TokenizerSpec& tokenizer,
                                    std::vector<std::string>& notes) {
  EmbeddingRules rules;
  const fs::path path = folder / "modules.json", pooling = folder / "1_Pooling" / "config.json";
  if (!file_exists(path)) {
    if (file_exists(pooling)) rules.pooling = read_pooling(pooling);
    if (!rules.pooling && is_named_reranker(folder)) rules.pooling = Pooling::rank;
    return rules;
  }
  const std::string source = path.string();
  rules.normalize = false;
  bool pools_prompts = true;  // else a mean would have to leave them out
  for (const Json& module : read_modules(path)) {
    const auto type = json_get<std::string>(module, "type", source);
    const std::string_view kind = std::string_view(type).substr(type.rfind('.') + 1);
    if (kind == "Pooling") {
      const fs::path config = config_of(folder, module, source);
      rules.pooling = read_pooling(config);
      pools_prompts = json_get_or<bool>(read_settings(config), "include_prompt", true, source);
    } else if (kind == "Normalize") {
      rules.normalize = true;
    } else if (kind == "LogitScore") {
      check_score(config_of(folder, module, source), tokenizer);
      rules.pooling = Pooling::rank;
    } else if (kind == "Dense") {
      require(rules.pooling.has_value(), source, ": module Dense, expected after Pooling");
    } else {
      require(kind == "Transformer", source, ": module ", printable(type),
              " is not supported; supported are Transformer, Pooling, Dense, Normalize and ",
              "LogitScore");
    }
  }
  if (pools_prompts) rules.prompts = read_prompts(folder, notes);
  return rules;
}

// In double, so that one matrix computes what the two do.
TensorInput embedding_projection(const DenseTensor& first, const DenseTensor& second,
                                 std::int64_t width) {
  const Shape& inner = first.tensor.shape;
  const Shape& outer = second.tensor.shape;
  require(inner.size() == 2 && outer.size() == 2 && inner[1] == width && outer[0] == width &&
              outer[1] == inner[0],
          second.tensor.place, ": ", shape_text(outer), " of ", shape_text(inner),
          ": expected matrices from ", width, " numbers to ", width);
  constexpr std::int64_t kWidest = 1 << 13;  // the joined matrix has width x width numbers
  require(width <= kWidest, second.tensor.place, ": a projection of embeddings of ", width,
          " numbers, at most ", kWidest, " are accepted");
  std::vector<float> a(static_cast<std::size_t>(inner[0] * width)), b(a.size());
  first.source.read(first.tensor, 0, a);
  second.source.read(second.tensor, 0, b);
  const auto n = static_cast<std::size_t>(width), hidden = static_cast<std::size_t>(inner[0]);
  auto product = std::make_shared<std::vector<float>>(n * n);
  std::vector<double> row(n);
  for (std::size_t o = 0; o < n; ++o) {
    std::ranges::fill(row, 0.0);
    for (std::size_t h = 0; h < hidden; ++h) {
      const double factor = double{b[o * hidden + h]};
      for (std::size_t i = 0; i < n; ++i) row[i] += factor * double{a[h * n + i]};
    }
    std::ranges::transform(row, product->begin() + static_cast<std::ptrdiff_t>(o * n),
                           [](double x) { return static_cast<float>(x); });
  }
  TensorInput tensor = {std::string(kEmbeddingProjection), {width * width}, TensorRole::vector};
  tensor.read = [product](std::int64_t from, std::int64_t count, std::span<float> out) {
    std::copy_n(product->begin() + from, count, out.begin());
  };
  return tensor;
}

std::optional<TensorInput> read_embedding_projection(const fs::path& folder, std::int64_t width) {
  const fs::path path = folder / "modules.json";
  if (!file_exists(path)) return std::nullopt;
  std::vector<std::unique_ptr<TensorSource>> sources;
  for (const Json& module : read_modules(path)) {
    if (!json_get<std::string>(module, "type", path.string()).ends_with("Dense")) continue;
    const fs::path config = config_of(folder, module, path.string());
    const std::string source = config.string();
    const Json dense = read_settings(config);
    const auto activation = json_get_or<std::string>(dense, "activation_function", "Tanh", source);
    require(activation.ends_with("Identity") && !json_get_or<bool>(dense, "bias", true, source),
            source, ": a module Dense with a bias or with the activation ", printable(activation),
            " is not supported");
    sources.push_back(open_safetensors(config.parent_path()));
    require(sources.back()->find("linear.weight") != nullptr, source,
            ": linear.weight is missing beside it");
  }
  if (sources.empty()) return std::nullopt;
  require(sources.size() == 2, path.string(), ": ", sources.size(),
          " modules Dense, expected none or 2");
  return embedding_projection({*sources[0], *sources[0]->find("linear.weight")},
                              {*sources[1], *sources[1]->find("linear.weight")}, width);
}

EmbeddingRules read_gguf_embedding(const GgufSource& source, const TokenizerSpec& tokenizer) {
  constexpr std::array<Pooling, 5> kTypes = {Pooling::none, Pooling::mean, Pooling::cls,
                                             Pooling::last, Pooling::rank};
  const GgufMetadata& metadata = source.metadata();
  const std::string key =
      std::string(metadata.text("general.architecture").value_or("")) + ".pooling_type";
  EmbeddingRules rules;
  const auto type = metadata.integer(key);
  if (!type || *type == -1) {
    if (is_named_reranker(source.paths().front())) rules.pooling = Pooling::rank;
    return rules;
  }
  require(*type >= 0 && *type < std::ssize(kTypes), metadata.source(), ": ", key, " = ", *type,
          " is not supported; supported are 0 (none), 1 (mean), 2 (cls), 3 (last) and 4 (rank)");
  rules.pooling = kTypes[static_cast<std::size_t>(*type)];
  if (rules.pooling == Pooling::rank) check_ranking_head(source, tokenizer);
  return rules;
}

}  // namespace leq
