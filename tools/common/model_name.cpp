#include "tools/common/model_name.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <cstdlib>
#include <functional>
#include <map>
#include <set>
#include <system_error>
#include <utility>

#include "base/ascii.h"
#include "base/error.h"
#include "base/file.h"
#include "base/text.h"
#include "quantize/run/quantize.h"
#include "runtime/model_files.h"

namespace leq {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kIdentityDigits = 16;  // of a conversion's file (convert_in_cache)
constexpr std::string_view kBetween = "--";  // no name on the hub has it

// What a revision may have and a part of a file's name may not, and how that has it.
constexpr std::array<std::pair<std::string_view, std::string_view>, 2> kInFileNames = {
    {{"/", "%2F"}, {kBetween, "-%2D"}}};

// The first size of a family is that of the name without a size: Ollama's, where it has the family.
constexpr std::array kShortNames = {
    ShortName{"qwen3:8b", "Qwen/Qwen3-8B"},
    ShortName{"qwen3:0.6b", "Qwen/Qwen3-0.6B"},
    ShortName{"qwen3:1.7b", "Qwen/Qwen3-1.7B"},
    ShortName{"qwen3:4b", "Qwen/Qwen3-4B"},
    ShortName{"qwen3:14b", "Qwen/Qwen3-14B"},
    ShortName{"qwen3:32b", "Qwen/Qwen3-32B"},
    ShortName{"qwen3:30b", "Qwen/Qwen3-30B-A3B"},
    ShortName{"qwen3:30b-a3b", "Qwen/Qwen3-30B-A3B"},
    ShortName{"qwen3:235b", "Qwen/Qwen3-235B-A22B"},
    ShortName{"qwen3.5:9b", "Qwen/Qwen3.5-9B"},
    ShortName{"qwen3.5:0.8b", "Qwen/Qwen3.5-0.8B"},
    ShortName{"qwen3.5:2b", "Qwen/Qwen3.5-2B"},
    ShortName{"qwen3.5:4b", "Qwen/Qwen3.5-4B"},
    ShortName{"qwen3.5:27b", "Qwen/Qwen3.5-27B"},
    ShortName{"qwen3.5:35b", "Qwen/Qwen3.5-35B-A3B"},
    ShortName{"qwen3.5:122b", "Qwen/Qwen3.5-122B-A10B"},
    ShortName{"qwen3.6:35b", "Qwen/Qwen3.6-35B-A3B"},
    ShortName{"qwen3.6:27b", "Qwen/Qwen3.6-27B"},
    ShortName{"qwen3.8:27b", "Qwen/Qwen3.8-27B"},
    ShortName{"qwen3-next:80b", "Qwen/Qwen3-Next-80B-A3B-Instruct"},
    ShortName{"qwen3-coder:30b", "Qwen/Qwen3-Coder-30B-A3B-Instruct"},
    ShortName{"qwen2.5:7b", "Qwen/Qwen2.5-7B-Instruct"},
    ShortName{"qwen2.5:0.5b", "Qwen/Qwen2.5-0.5B-Instruct"},
    ShortName{"qwen2.5:1.5b", "Qwen/Qwen2.5-1.5B-Instruct"},
    ShortName{"qwen2.5:3b", "Qwen/Qwen2.5-3B-Instruct"},
    ShortName{"qwen2.5:14b", "Qwen/Qwen2.5-14B-Instruct"},
    ShortName{"qwen2.5:32b", "Qwen/Qwen2.5-32B-Instruct"},
    ShortName{"qwen2.5:72b", "Qwen/Qwen2.5-72B-Instruct"},
    ShortName{"qwen2.5-coder:7b", "Qwen/Qwen2.5-Coder-7B-Instruct"},
    ShortName{"qwen2.5-coder:0.5b", "Qwen/Qwen2.5-Coder-0.5B-Instruct"},
    ShortName{"qwen2.5-coder:1.5b", "Qwen/Qwen2.5-Coder-1.5B-Instruct"},
    ShortName{"qwen2.5-coder:3b", "Qwen/Qwen2.5-Coder-3B-Instruct"},
    ShortName{"qwen2.5-coder:14b", "Qwen/Qwen2.5-Coder-14B-Instruct"},
    ShortName{"qwen2.5-coder:32b", "Qwen/Qwen2.5-Coder-32B-Instruct"},
    ShortName{"qwen2:7b", "Qwen/Qwen2-7B-Instruct"},
    ShortName{"qwen2:0.5b", "Qwen/Qwen2-0.5B-Instruct"},
    ShortName{"qwen2:1.5b", "Qwen/Qwen2-1.5B-Instruct"},
    ShortName{"qwq:32b", "Qwen/QwQ-32B"},
    ShortName{"llama3.3:70b", "meta-llama/Llama-3.3-70B-Instruct"},
    ShortName{"llama3.2:3b", "meta-llama/Llama-3.2-3B-Instruct"},
    ShortName{"llama3.2:1b", "meta-llama/Llama-3.2-1B-Instruct"},
    ShortName{"llama3.1:8b", "meta-llama/Llama-3.1-8B-Instruct"},
    ShortName{"llama3.1:70b", "meta-llama/Llama-3.1-70B-Instruct"},
    ShortName{"llama3:8b", "meta-llama/Meta-Llama-3-8B-Instruct"},
    ShortName{"llama3:70b", "meta-llama/Meta-Llama-3-70B-Instruct"},
    ShortName{"llama2:7b", "meta-llama/Llama-2-7b-chat-hf"},
    ShortName{"llama2:13b", "meta-llama/Llama-2-13b-chat-hf"},
    ShortName{"codellama:7b", "codellama/CodeLlama-7b-Instruct-hf"},
    ShortName{"codellama:13b", "codellama/CodeLlama-13b-Instruct-hf"},
    ShortName{"tinyllama:1.1b", "TinyLlama/TinyLlama-1.1B-Chat-v1.0"},
    ShortName{"deepseek-r1:8b", "deepseek-ai/DeepSeek-R1-0528-Qwen3-8B"},
    ShortName{"deepseek-r1:1.5b", "deepseek-ai/DeepSeek-R1-Distill-Qwen-1.5B"},
    ShortName{"deepseek-r1:7b", "deepseek-ai/DeepSeek-R1-Distill-Qwen-7B"},
    ShortName{"deepseek-r1:14b", "deepseek-ai/DeepSeek-R1-Distill-Qwen-14B"},
    ShortName{"deepseek-r1:32b", "deepseek-ai/DeepSeek-R1-Distill-Qwen-32B"},
    ShortName{"deepseek-r1:70b", "deepseek-ai/DeepSeek-R1-Distill-Llama-70B"},
    ShortName{"gpt-oss:20b", "openai/gpt-oss-20b"},
    ShortName{"gpt-oss:120b", "openai/gpt-oss-120b"},
    ShortName{"gemma4:e4b", "google/gemma-4-E4B-it"},
    ShortName{"gemma4:e2b", "google/gemma-4-E2B-it"},
    ShortName{"gemma4:12b", "google/gemma-4-12B-it"},
    ShortName{"gemma4:26b", "google/gemma-4-26B-A4B-it"},
    ShortName{"gemma4:31b", "google/gemma-4-31B-it"},
    ShortName{"gemma3:4b", "google/gemma-3-4b-it"},
    ShortName{"gemma3:270m", "google/gemma-3-270m-it"},
    ShortName{"gemma3:1b", "google/gemma-3-1b-it"},
    ShortName{"gemma3:12b", "google/gemma-3-12b-it"},
    ShortName{"gemma3:27b", "google/gemma-3-27b-it"},
    ShortName{"mistral:7b", "mistralai/Mistral-7B-Instruct-v0.3"},
    ShortName{"mistral-nemo:12b", "mistralai/Mistral-Nemo-Instruct-2407"},
    ShortName{"mistral-small:24b", "mistralai/Mistral-Small-24B-Instruct-2501"},
    ShortName{"ministral-3:8b", "mistralai/Ministral-3-8B-Instruct-2512"},
    ShortName{"ministral-3:3b", "mistralai/Ministral-3-3B-Instruct-2512"},
    ShortName{"ministral-3:14b", "mistralai/Ministral-3-14B-Instruct-2512"},
    ShortName{"mixtral:8x7b", "mistralai/Mixtral-8x7B-Instruct-v0.1"},
    ShortName{"mixtral:8x22b", "mistralai/Mixtral-8x22B-Instruct-v0.1"},
    ShortName{"phi4:14b", "microsoft/phi-4"},
    ShortName{"phi4-mini:3.8b", "microsoft/Phi-4-mini-instruct"},
    ShortName{"phi3.5:3.8b", "microsoft/Phi-3.5-mini-instruct"},
    ShortName{"phi3:3.8b", "microsoft/Phi-3-mini-128k-instruct"},
    ShortName{"phi3:14b", "microsoft/Phi-3-medium-128k-instruct"},
    ShortName{"smollm3:3b", "HuggingFaceTB/SmolLM3-3B"},
    ShortName{"smollm2:1.7b", "HuggingFaceTB/SmolLM2-1.7B-Instruct"},
    ShortName{"smollm2:135m", "HuggingFaceTB/SmolLM2-135M-Instruct"},
    ShortName{"smollm2:360m", "HuggingFaceTB/SmolLM2-360M-Instruct"},
    ShortName{"granite4:3b", "ibm-granite/granite-4.0-micro"},
    ShortName{"granite4:350m", "ibm-granite/granite-4.0-350m"},
    ShortName{"granite4:1b", "ibm-granite/granite-4.0-1b"},
    ShortName{"granite3.3:8b", "ibm-granite/granite-3.3-8b-instruct"},
    ShortName{"granite3.3:2b", "ibm-granite/granite-3.3-2b-instruct"},
    ShortName{"lfm2.5:1.2b", "LiquidAI/LFM2.5-1.2B-Instruct"},
    ShortName{"lfm2.5:350m", "LiquidAI/LFM2.5-350M"},
    ShortName{"lfm2:1.2b", "LiquidAI/LFM2-1.2B"},
    ShortName{"lfm2:350m", "LiquidAI/LFM2-350M"},
    ShortName{"lfm2:700m", "LiquidAI/LFM2-700M"},
    ShortName{"embeddinggemma:300m", "google/embeddinggemma-300m"},
    ShortName{"qwen3-embedding:8b", "Qwen/Qwen3-Embedding-8B"},
    ShortName{"qwen3-embedding:0.6b", "Qwen/Qwen3-Embedding-0.6B"},
    ShortName{"qwen3-embedding:4b", "Qwen/Qwen3-Embedding-4B"},
    ShortName{"gpt2:124m", "openai-community/gpt2"},
};

// Families of Ollama's library that leq does not run, and what to run in their place.
struct FamilyNotRun {
  std::string_view family, instead;
};
constexpr std::array kNotRun = {
    FamilyNotRun{"gemma2", "gemma3"},
    FamilyNotRun{"gemma", "gemma3"},
    FamilyNotRun{"gemma3n", "gemma4:e2b"},
    FamilyNotRun{"codegemma", "qwen2.5-coder"},
    FamilyNotRun{"phi", "phi3"},
    FamilyNotRun{"phi4-mini-reasoning", "phi4-mini"},
    FamilyNotRun{"llama4", "llama3.3"},
    FamilyNotRun{"llama3.2-vision", "llama3.2"},
    FamilyNotRun{"llava", "gemma3 (its text model)"},
    FamilyNotRun{"qwen", "qwen2.5"},
    FamilyNotRun{"qwen2.5vl", "qwen2.5"},
    FamilyNotRun{"qwen3-vl", "qwen3"},
    FamilyNotRun{"deepseek-v3", "deepseek-r1"},
    FamilyNotRun{"deepseek-v3.1", "deepseek-r1"},
    FamilyNotRun{"deepseek-coder-v2", "qwen2.5-coder"},
    FamilyNotRun{"command-r", "mistral-small"},
    FamilyNotRun{"olmo2", "qwen3"},
    FamilyNotRun{"glm4", "qwen3"},
    FamilyNotRun{"starcoder2", "qwen2.5-coder"},
    FamilyNotRun{"nomic-embed-text", "embeddinggemma"},
    FamilyNotRun{"mxbai-embed-large", "embeddinggemma"},
    FamilyNotRun{"all-minilm", "embeddinggemma"},
    FamilyNotRun{"bge-m3", "qwen3-embedding:0.6b"},
};

// Owners and beginnings of names of repositories that are gated.
constexpr std::array<std::string_view, 3> kGated = {"meta-llama/", "google/gemma-3",
                                                    "google/embeddinggemma"};

bool is_name_part(std::string_view text) {
  return !text.empty() && text.front() != '.' && text.front() != '-' &&
         text.find(kBetween) == text.npos && std::ranges::all_of(text, [](unsigned char c) {
           return std::isalnum(c) != 0 || c == '-' || c == '_' || c == '.';
         });
}

// Removes what begins with `mark` from `text` and returns it, without the mark.
std::string take_after(std::string& text, char mark) {
  const auto at = text.find(mark);
  if (at == text.npos) return "";
  const std::string taken = text.substr(at + 1);
  text.erase(at);
  return taken;
}

std::optional<HubName> expand_short(std::string_view text) {
  const std::string wanted = ascii_lower(text);
  for (const ShortName& known : kShortNames) {
    if (wanted == known.name || wanted == known.family()) {
      return HubName{.repository = std::string(known.repository),
                     .family = wanted == known.name ? "" : wanted};
    }
  }
  return std::nullopt;
}

}  // namespace

std::string HubName::place() const {
  if (revision == kMainRevision) return repository;
  std::string part = revision;  // of a file's name
  for (const auto& [plain, written] : kInFileNames) part = replace_all(part, plain, written);
  return repository + '@' + part;
}

std::string_view without_latest(std::string_view name) {
  constexpr std::string_view kLatest = ":latest";
  if (name.ends_with(kLatest)) name.remove_suffix(kLatest.size());
  return name;
}

std::optional<HubName> parse_hub_name(std::string_view text) {
  text = without_latest(text);
  if (auto name = expand_short(text)) return name;
  std::string rest(text);
  for (const std::string_view host :
       {"https://huggingface.co/", "https://hf.co/", "huggingface.co/", "hf.co/"}) {
    if (rest.starts_with(host)) {
      rest.erase(0, host.size());
      break;
    }
  }
  HubName name;
  std::string revision = take_after(rest, '@');
  std::string& before_tag = revision.find(':') == revision.npos ? rest : revision;
  const bool tagged = before_tag.find(':') != before_tag.npos;
  name.tag = take_after(before_tag, ':');
  for (const auto& [plain, written] : kInFileNames) {
    revision = replace_all(revision, written, plain);
  }
  if (!revision.empty()) name.revision = std::move(revision);
  name.repository = rest;
  const auto parts = split(rest, "/");
  const bool valid = parts.size() == 2 && is_name_part(parts[0]) && is_name_part(parts[1]) &&
                     (!tagged || is_name_part(name.tag));
  if (!valid || rest.ends_with(".leq") || rest.ends_with(".gguf")) return std::nullopt;
  return name;
}

bool is_on_hub(const std::string& name) {
  std::error_code error;
  const auto slash = name.find('/');
  return parse_hub_name(name) && (slash == name.npos || !fs::exists(name.substr(0, slash), error));
}

std::string whole_name(const std::string& name) {
  const auto hub = parse_hub_name(name);
  if (!hub) return name;
  return hub->place() + (hub->tag.empty() ? "" : ":" + hub->tag);
}

bool ShortName::gated() const {
  return std::ranges::any_of(
      kGated, [&](std::string_view beginning) { return repository.starts_with(beginning); });
}

std::span<const ShortName> short_names() { return kShortNames; }

std::vector<std::string> sizes_of(std::string_view family) {
  std::vector<std::string> names;
  for (const ShortName& known : kShortNames) {
    if (known.family() == family) names.emplace_back(known.name);
  }
  return names;
}

void refuse_known_name(std::string_view name) {
  const std::string place = "'" + printable(name) + "': ";
  const std::string wanted = ascii_lower(name);
  const std::string family = wanted.substr(0, wanted.find(':'));
  for (const FamilyNotRun& known : kNotRun) {
    require(family != known.family, place, "leq does not run this family; take ", known.instead);
  }
  const std::vector<std::string> sizes = sizes_of(family);
  for (const std::string& size : sizes) {
    require(!wanted.starts_with(size + "-"), place, "a name of Ollama's for a file; here ", size,
            " is the model, and --recipe q4 or q8 its type");
  }
  require(sizes.empty(), place, "no size of ", family, "; expected ", join(sizes));
}

std::optional<fs::path> find_models_folder() {
  const auto variable = [](const char* name) {
    const char* value = std::getenv(name);
    return fs::path(value == nullptr ? "" : value);
  };
  if (const fs::path models = variable("LEQ_MODELS"); !models.empty()) return models;
  if (const fs::path data = variable("XDG_DATA_HOME"); data.is_absolute()) {
    return data / "leq" / "models";
  }
  const fs::path home = variable("HOME");
  if (!home.is_absolute()) return std::nullopt;
  return home / ".local" / "share" / "leq" / "models";
}

fs::path models_folder() {
  const auto folder = find_models_folder();
  require(folder.has_value(), ErrorKind::io,
          "models are kept in a folder: set LEQ_MODELS, XDG_DATA_HOME or HOME");
  return *folder;
}

std::vector<KeptModel> kept_models() {
  const fs::path folder = models_folder();
  std::vector<KeptModel> models;
  std::error_code error;
  if (!fs::exists(folder, error)) return models;
  for (const ModelFile& file : models_in(folder)) {
    const auto parts = split(file.name, kBetween);
    std::string name = file.name;
    if (parts.size() == 2 || parts.size() == 3) {
      name = parts[0];
      if (parts.size() == 3) name += '/' + std::string(parts[1]);
      name += ':' + std::string(parts.back());
    }
    models.push_back({name, file.path});
  }
  std::ranges::sort(models, {}, &KeptModel::name);
  return models;
}

std::vector<KeptModel> conversions(const fs::path& cache) {
  std::vector<KeptModel> models;
  std::error_code error;
  if (!fs::exists(cache, error)) return models;
  std::map<std::string, int> versions;
  for (const ModelFile& file : models_in(cache)) {
    const std::string gguf = converted_from(file.path);
    models.push_back({gguf.empty() ? file.name : model_name_of(gguf), file.path});
    ++versions[models.back().name];
  }
  for (KeptModel& model : models) {
    if (versions[model.name] < 2) continue;
    model.name += ':' + model.path.stem().string().substr(model.name.size() + 1);
  }
  std::ranges::sort(models, {}, &KeptModel::name);
  return models;
}

std::vector<KeptModel> listed_models() {
  std::vector<KeptModel> models = kept_models(), converted;
  try {
    converted = conversions(conversion_cache());
  } catch (const Error&) {  // neither HOME nor XDG_CACHE_HOME: there is no cache
  }
  std::set<std::string> names, files;
  for (const KeptModel& model : models) {
    names.insert(model.name);
    files.insert(model.path.filename().string());
  }
  for (KeptModel& model : converted) {
    if (files.contains(converted_from(model.path))) continue;  // listed as the GGUF file
    if (names.contains(model.name)) model.name += ".gguf";
    models.push_back(std::move(model));
  }
  return models;
}

std::optional<std::string> listed_name(const fs::path& file) try {
  const std::string gguf = converted_from(file);
  for (const KeptModel& model : listed_models()) {
    std::error_code error;
    const bool converted = !gguf.empty() && model.path.filename() == gguf &&
                           conversion_of(model.path, file.parent_path()) == file;
    if (converted || fs::equivalent(model.path, file, error)) return model.name;
  }
  return std::nullopt;
} catch (const Error&) {  // there is no models folder, or none that can be read
  return std::nullopt;
}

std::string report_name(const fs::path& file) {
  return listed_name(file).value_or(fs::path(shown_name(file)).filename().string());
}

std::string converted_from(const fs::path& file) {
  const std::string stem = file.stem().string();
  const auto at = stem.rfind('-');  // before the identity of the version
  const bool is = at != stem.npos && stem.size() - at == 1 + kIdentityDigits &&
                  stem.find_first_not_of("0123456789abcdef", at + 1) == stem.npos;
  return is && file.extension() == ".leq" ? stem.substr(0, at) + ".gguf" : "";
}

fs::path kept_file(const std::string& place, const std::string& tag) {
  return models_folder() /
         (replace_all(place, "/", kBetween) + std::string(kBetween) + tag + ".leq");
}

std::vector<KeptModel> models_named(const std::string& name) {
  if (name.empty() || !find_models_folder()) return {};
  const std::string whole = whole_name(name);
  std::vector<KeptModel> found;
  NameMatch best = NameMatch::untagged;
  for (KeptModel& model : listed_models()) {
    const NameMatch own = match_name(name, whole, model.name, model.path);
    if (own > best) found.clear();
    best = std::max(own, best);
    if (own == best) found.push_back(std::move(model));
  }
  std::error_code error;
  std::ranges::stable_sort(found, std::greater(), [&](const KeptModel& model) {
    return fs::last_write_time(model.path, error);
  });
  return found;
}

std::optional<KeptModel> find_kept(const std::string& name) {
  const std::vector<KeptModel> found = models_named(name);
  return found.empty() ? std::nullopt : std::optional(found.front());
}

std::string path_of_model(const std::string& name) {
  std::error_code error;
  if (fs::exists(name, error)) return name;
  const auto kept = find_kept(name);
  return kept ? kept->path.string() : name;
}

}  // namespace leq
