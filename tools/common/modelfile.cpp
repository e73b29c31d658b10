#include "tools/common/modelfile.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <iostream>
#include <system_error>

#include "base/ascii.h"
#include "base/error.h"
#include "base/file.h"
#include "base/text.h"

namespace leq {
namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t kMaxBytes = 1 << 20;
constexpr std::string_view kQuotes = "\"\"\"";
constexpr const char* kEnding = ".modelfile";
constexpr std::string_view kOneDevice =
    "a model runs on one device as a whole: -dev cuda, or cuda:1, at the start";

// Ollama's names that are not those of sampling settings.
struct ParameterName {
  std::string_view name;
  std::string_view option;  // empty: there is none
  std::string_view advice = {};
};
constexpr std::array kParameterNames = {
    ParameterName{"num_ctx", "ctx-size"},
    ParameterName{"num_predict", "n-predict"},
    ParameterName{"stop", "reverse-prompt"},
    ParameterName{"seed", "seed"},
    ParameterName{"num_thread", "threads"},
    ParameterName{"num_batch", "batch-size"},
    ParameterName{"mirostat_eta", "mirostat-lr"},
    ParameterName{"mirostat_tau", "mirostat-ent"},
    ParameterName{"num_gpu", "", kOneDevice},
    ParameterName{"main_gpu", "", kOneDevice},
    ParameterName{"low_vram", "", "--vram SIZE, at the start, caps a GPU's memory"},
    ParameterName{"f16_kv", "", "-ctk and -ctv, at the start, choose the KV cache's types"},
    ParameterName{"use_mmap", "", "--mmap or --no-mmap, at the start"},
    ParameterName{"use_mlock", "", "--mlock, at the start"},
    ParameterName{"numa", "", "--numa, at the start"},
    ParameterName{"num_keep", "",
                  "a full context leaves out the oldest turns and keeps the system prompt"},
    ParameterName{"num_gqa", "", "the model's file has it"},
    ParameterName{"rope_frequency_base", "", "the model's file has it"},
    ParameterName{"rope_frequency_scale", "", "the model's file has it"},
    ParameterName{"tfs_z", "", "there is no tail-free sampling here: min_p or typical_p"},
    ParameterName{"penalize_newline", "", "penalties count every token"},
    ParameterName{"draft_num_predict", "", "--draft-max, at the start"},
};

const ParameterName* find_name(std::string_view name) {
  const auto* found = std::ranges::find(kParameterNames, name, &ParameterName::name);
  return found == kParameterNames.end() ? nullptr : found;
}

// Reads the instructions one by one.
class Reader {
 public:
  Reader(std::string_view text, const std::string& source)
      : lines_(split(text, "\n")), source_(source) {}

  Modelfile read() {
    while (at_ < lines_.size()) {
      const std::string_view line = trim(lines_[at_++]);
      if (line.empty() || line.front() == '#') continue;
      const auto [word, rest] = cut(line);
      take(ascii_upper(word), rest);
    }
    require(!file_.from.empty(), source_, ": expected a line FROM MODEL, found none");
    return std::move(file_);
  }

 private:
  using Cut = std::pair<std::string_view, std::string_view>;
  static Cut cut(std::string_view line) {
    const std::size_t space = std::min(line.find_first_of(" \t"), line.size());
    return {line.substr(0, space), trim(line.substr(space))};
  }
  std::string place() const { return source_ + ":" + std::to_string(at_); }

  void take(const std::string& word, std::string_view rest) {
    const std::string where = place();
    const std::string value = word == "PARAMETER" ? "" : text(rest);
    if (word == "FROM") {
      require(!value.empty() && file_.from.empty(), where,
              ": expected one FROM with a model or a path");
      file_.from = value;
    } else if (word == "SYSTEM") {
      file_.system = value;
    } else if (word == "PARAMETER") {
      parameter(rest, where);
    } else if (word == "TEMPLATE") {
      file_.notes.push_back(where +
                            ": TEMPLATE is not taken: the model's own chat template is used, and "
                            "--chat-template NAME takes a known one");
    } else if (word == "MESSAGE") {
      file_.notes.push_back(where + ": MESSAGE is not taken: --chat NAME keeps a conversation");
    } else {
      require(word != "ADAPTER", where,
              ": ADAPTER: there are no adapters here: merge it into the checkpoint (peft's "
              "merge_and_unload), and name that in FROM");
      require(word == "LICENSE" || word == "REQUIRES", where, ": unknown instruction '",
              printable(word), "': expected FROM, SYSTEM, PARAMETER, TEMPLATE or LICENSE");
    }
  }

  void parameter(std::string_view rest, const std::string& where) {
    const auto [name, given] = cut(rest);
    require(!name.empty() && !given.empty(), where, ": expected PARAMETER NAME VALUE");
    const std::string value = text(given);
    try {
      (void)option_of_parameter(name);
      file_.parameters.emplace_back(name, value);
      file_.places.push_back(where);
    } catch (const Error& error) {
      const std::string line = where + ": PARAMETER " + std::string(error.what());
      if (find_name(name) == nullptr) fail(line);
      file_.notes.push_back(line);
    }
  }

  // A value: in three quotation marks, which may stand lines apart, in one, or in none.
  std::string text(std::string_view rest) {
    const std::string where = place();
    if (!rest.starts_with(kQuotes)) {
      const bool quoted = rest.size() > 1 && rest.front() == '"' && rest.back() == '"';
      return std::string(quoted ? rest.substr(1, rest.size() - 2) : rest);
    }
    const std::string_view whole = lines_[at_ - 1];  // with the blanks at its end
    std::string all(
        whole.substr(static_cast<std::size_t>(rest.data() - whole.data()) + kQuotes.size()));
    std::size_t end = 0, line = 0;
    while ((end = all.find(kQuotes, line)) == std::string::npos) {
      require(at_ < lines_.size(), where, ": \"\"\" begins a text that has no end");
      line = all.size() + 1;
      all += '\n' + std::string(lines_[at_++]);
    }
    require(trim(std::string_view(all).substr(end + kQuotes.size())).empty(), place(),
            ": expected the end of the line after \"\"\"");
    all.resize(end);
    return all;
  }

  std::vector<std::string_view> lines_;
  const std::string& source_;
  std::size_t at_ = 0;
  Modelfile file_;
};

// A value as it is read back: in the first of these quotes that allow that.
std::string quoted(std::string_view word, const std::string& value,
                   const std::array<std::string_view, 3>& all_quotes) {
  for (const std::string_view quotes : all_quotes) {
    const std::string written = std::string(quotes) + value + std::string(quotes);
    try {
      const Modelfile read = read_modelfile("SYSTEM " + written + "\nFROM a", "");
      if (read.system == value && read.from == "a") return written;
    } catch (const Error&) {  // takes a part of the value for the end
    }
  }
  fail(word, ": a Modelfile cannot hold the text ", printable(value));
}

std::string quoted_value(const std::pair<std::string, std::string>& parameter) {
  const std::string_view first = parameter.first == "stop" ? "\"" : "";
  return quoted(parameter.first, parameter.second, {first, first.empty() ? "\"" : "", kQuotes});
}

}  // namespace

std::string option_of_parameter(std::string_view name) {
  if (const ParameterName* known = find_name(name)) {
    require(!known->option.empty(), name, ": ", known->advice);
    return std::string(known->option);
  }
  if (const SamplingParameter* parameter = find_parameter(name)) return parameter_word(*parameter);
  std::vector<std::string> names;
  for (const ParameterName& known : kParameterNames) {
    if (!known.option.empty()) names.emplace_back(known.name);
  }
  for (const SamplingParameter& known : kSamplingParameters) names.emplace_back(known.name);
  const auto nearest = nearest_word(std::string(name), names);
  fail(printable(name), ": no parameter of this name",
       nearest ? "; did you mean " + *nearest + "?" : ": expected one of " + join(names));
}

std::string name_of_parameter(const SamplingParameter& parameter) {
  const auto* known =
      std::ranges::find(kParameterNames, parameter_word(parameter), &ParameterName::option);
  return std::string(known == kParameterNames.end() ? parameter.name : known->name);
}

Modelfile read_modelfile(std::string_view text, const std::string& source) {
  return Reader(text, source).read();
}

Modelfile load_modelfile(const fs::path& path) {
  return read_modelfile(read_text_file(path, kMaxBytes), path.string());
}

std::string modelfile_text(const Modelfile& file) {
  std::string text = "FROM " + quoted("FROM", file.from, {"", "\"", kQuotes}) + '\n';
  if (!file.system.empty()) {
    text += "SYSTEM " + quoted("SYSTEM", file.system, {kQuotes, "", "\""}) + '\n';
  }
  for (const auto& one : file.parameters) {
    text += "PARAMETER " + one.first + ' ' + quoted_value(one) + '\n';
  }
  return text;
}

std::string parameters_text(const Modelfile& file) {
  constexpr std::size_t kColumn = 30;
  std::string text;
  for (const auto& one : file.parameters) {
    std::string name = one.first;
    name.resize(std::max(kColumn, name.size()), ' ');
    text += name + ' ' + quoted_value(one) + '\n';
  }
  return text;
}

std::vector<std::pair<std::string, std::string>> options_of(const Modelfile& file) {
  // -sys and -r replace escapes, which a Modelfile does not have.
  const auto literal = [](const std::string& text) { return replace_all(text, "\\", "\\\\"); };
  std::vector<std::pair<std::string, std::string>> options;
  if (!file.system.empty()) options.emplace_back("system-prompt", literal(file.system));
  for (const auto& [name, value] : file.parameters) {
    options.emplace_back(option_of_parameter(name), name == "stop" ? literal(value) : value);
  }
  return options;
}

std::vector<KeptModel> created_models() {
  std::vector<KeptModel> models;
  if (!find_models_folder()) return models;
  std::error_code error;
  for (fs::directory_iterator it(models_folder(), error), end; !error && it != end;
       it.increment(error)) {
    if (it->path().extension() != kEnding) continue;
    models.push_back({it->path().stem().string(), it->path()});
  }
  std::ranges::sort(models, {}, &KeptModel::name);
  return models;
}

fs::path created_path(const std::string& given) {
  const std::string name(without_latest(given));
  const bool valid = !name.empty() && name.size() <= 64 && name.front() != '.' &&
                     name.front() != '-' && std::ranges::all_of(name, [](unsigned char c) {
                       return std::isalnum(c) != 0 || c == '-' || c == '_' || c == '.' || c == ':';
                     });
  require(valid && !name.ends_with(".leq") && !name.ends_with(".gguf"), "'", printable(name),
          "' cannot be the name of a model: expected letters, digits, -, _, . and :");
  return models_folder() / (name + kEnding);
}

std::optional<Modelfile> find_created(const std::string& name) {
  for (const KeptModel& model : created_models()) {
    if (model.name == without_latest(name)) return load_modelfile(model.path);
  }
  return std::nullopt;
}

std::optional<Modelfile> settings_named(const std::string& name) {
  std::error_code error;
  return fs::exists(name, error) ? std::nullopt : find_created(name);
}

std::vector<std::string> set_missing(const Modelfile& file, Options& options) {
  std::vector<std::string> left_out;
  std::vector<std::string> set;  // options that this sets, of which `stop` may have several values
  for (const auto& [option, value] : options_of(file)) {
    if (!options.declares(option)) {
      left_out.push_back(option);
      continue;
    }
    const bool again = std::ranges::find(set, option) != set.end();
    const bool by_file = option == "system-prompt" && options.declares("system-prompt-file") &&
                         options.given("system-prompt-file");
    if (by_file || (options.given(option) && !again)) continue;
    options.add_text(option, value, again);
    set.push_back(option);
  }
  return left_out;
}

std::string follow_created(const std::string& name, Options& options) {
  const auto file = settings_named(name);
  if (!file) return name;
  std::error_code error;
  require(fs::exists(file->from, error) || find_kept(file->from) || is_on_hub(file->from), "'",
          printable(name), "': stands for '", printable(file->from, 4096),
          "', of which there is no model or file");
  const std::vector<std::string> left_out = set_missing(*file, options);
  if (!left_out.empty()) {
    std::cerr << name << ": without its " << join(left_out)
              << ", which this command does not take\n";
  }
  return file->from;
}

}  // namespace leq
