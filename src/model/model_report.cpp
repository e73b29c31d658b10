#include "model/model_report.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <map>

#include "base/json.h"
#include "base/table.h"
#include "base/text.h"
#include "format/leq_layout.h"

namespace leq {
namespace {

std::string hex(std::uint64_t value) {
  std::array<char, 17> text{};
  std::snprintf(text.data(), text.size(), "%016llx", static_cast<unsigned long long>(value));
  return text.data();
}

std::int64_t numbers_in(const StoredTensor& tensor) {
  return tensor.view.rows * tensor.view.columns;
}

double bits_each(std::uint64_t bytes, std::int64_t numbers) {
  return static_cast<double>(bytes) * 8.0 / static_cast<double>(numbers);
}

// Sums over the tensors of one scheme.
struct Total {
  std::int64_t tensors = 0;
  std::int64_t numbers = 0;
  std::uint64_t bytes = 0;
};

std::map<std::string, Total> totals_by_scheme(const Model& model) {
  std::map<std::string, Total> totals;
  for (const StoredTensor& tensor : model.file().tensors()) {
    Total& total = totals[scheme_name(tensor.view.scheme)];
    ++total.tensors;
    total.numbers += numbers_in(tensor);
    total.bytes += tensor.bytes();
  }
  return totals;
}

// Strings are printed unchanged, numbers with the digits of an f32, everything else as JSON.
std::string plain(const Json& value) {
  if (value.is_number_float()) {
    std::array<char, 32> text{};
    std::snprintf(text.data(), text.size(), "%.7g", value.get<double>());
    return text.data();
  }
  return printable(value.is_string() ? value.get<std::string>() : value.dump(), 400);
}

// Makes JSON safe for a terminal: escapes control characters that JSON allows, such as \u009b.
std::string terminal_json(std::string_view json) {
  std::string out;
  for (std::size_t i = 0; i < json.size();) {
    const std::size_t length = std::max<std::size_t>(utf8_length(json.substr(i)), 1);
    const std::string_view character = json.substr(i, length);
    if (character == "\n" || printable(character) == character) {
      out += character;
    } else {
      std::array<char, 16> text{};
      std::snprintf(text.data(), text.size(), "\\u%04x",
                    static_cast<unsigned>(decode_utf8(character)));
      out += text.data();
    }
    i += length;
  }
  return out;
}

// Lines "  key  value" whose values are aligned.
std::string listing(const Json& object) {
  std::size_t width = 0;
  for (const auto& [key, value] : object.items()) width = std::max(width, key.size());
  std::string text;
  for (const auto& [key, value] : object.items()) {
    text += "  " + printable(key) + std::string(width - key.size() + 2, ' ') + plain(value) + '\n';
  }
  return text;
}

// A text such as "row", "tensor 0.0123" or "online safe".
std::string act_text(const StoredTensor& tensor) {
  std::string text(act_name(tensor.view.act));
  if (has_stored_scale(tensor.view.act)) text.append(" ").append(plain(tensor.act_scale));
  if (has_moving_scale(tensor.view.act)) {
    text.append(" ").append(online_mode_name(tensor.online_mode));
  }
  return text;
}

// For example "Q4_K, off by 0.31 %" (error relative to the weights' norm), or "Q8_0, exact".
std::string source_text(const StoredTensor& tensor) {
  if (tensor.source.empty()) return "";
  const std::string type = printable(tensor.source);
  if (tensor.error == 0) return type + ", exact";
  return type + ", off by " + fixed(100 * std::sqrt(tensor.error), 3) + " %";
}

bool has_sources(const Model& model) {
  return std::ranges::any_of(model.file().tensors(),
                             [](const StoredTensor& tensor) { return !tensor.source.empty(); });
}

// The name without its numbers: "layers.*.q".
std::string name_in_all_layers(const std::string& name) {
  std::string out;
  for (const std::string_view part : split(name, ".")) {
    out += (out.empty() ? "" : ".") + (parse_int(part) ? "*" : std::string(part));
  }
  return out;
}

// Tensors of all layers that differ in their numbers alone are one row.
std::string group_table(const Model& model) {
  struct Group {
    Row row;
    std::int64_t tensors = 0;
    std::uint64_t bytes = 0;
    double error = 0;  // the largest
    bool measured = false;
  };
  std::vector<std::string> order;
  std::map<std::string, Group> groups;
  for (const StoredTensor& tensor : model.file().tensors()) {
    Row row = {{"tensor", printable(name_in_all_layers(tensor.name))},
               {"shape", shape_text(tensor.shape)},
               {"scheme", scheme_name(tensor.view.scheme)}};
    if (has_sources(model)) row.push_back({"source", printable(tensor.source)});
    row.push_back({"act", std::string(act_name(tensor.view.act))});
    std::string key;
    for (const auto& [column, cell] : row) key += std::get<std::string>(cell.value) + ' ';
    const auto [at, added] = groups.try_emplace(key);
    if (added) order.push_back(key);
    Group& group = at->second;
    group.row = std::move(row);
    ++group.tensors;
    group.bytes += tensor.bytes();
    group.error = std::max(group.error, tensor.error);
    // An outline, which has no content, has no checksums either.
    group.measured |= !tensor.view.scheme.is_float() && tensor.planes.front().xxh3 != 0;
  }
  Table table;
  for (const std::string& key : order) {
    Group& group = groups.at(key);
    group.row.push_back({"tensors", group.tensors});
    group.row.push_back({"bytes", with_commas(static_cast<std::int64_t>(group.bytes))});
    group.row.push_back(
        {"error, %", group.measured ? Cell(100 * std::sqrt(group.error), 3) : Cell()});
    table.add(group.row);
  }
  return table.text();
}

std::string tensor_table(const Model& model) {
  Table table;
  for (const StoredTensor& tensor : model.file().tensors()) {
    const bool exact = tensor.view.scheme.is_float();
    Row row = {{"tensor", printable(tensor.name)},
               {"shape", shape_text(tensor.shape)},
               {"scheme", scheme_name(tensor.view.scheme)}};
    if (has_sources(model)) row.push_back({"source", source_text(tensor)});
    row.push_back({"act", act_text(tensor)});
    row.push_back({"bytes", with_commas(static_cast<std::int64_t>(tensor.bytes()))});
    row.push_back({"error, %", exact ? Cell() : Cell(100 * std::sqrt(tensor.error), 3)});
    row.push_back({"xxh3 of codes", hex(tensor.planes.front().xxh3)});
    table.add(row);
  }
  return table.text();
}

std::string total_table(const Model& model) {
  Table table;
  Total all;
  const auto row = [&](const std::string& name, const Total& total) {
    table.add({{"scheme", name},
               {"tensors", total.tensors},
               {"numbers", with_commas(total.numbers)},
               {"bytes", with_commas(static_cast<std::int64_t>(total.bytes))},
               {"bits each", Cell(bits_each(total.bytes, total.numbers), 3)}});
  };
  for (const auto& [name, total] : totals_by_scheme(model)) {
    row(name, total);
    all.tensors += total.tensors;
    all.numbers += total.numbers;
    all.bytes += total.bytes;
  }
  row("all", all);
  return table.text();
}

Json readable_config(const ModelConfig& config) {
  Json json = config_to_json(config);
  const Json* scaling = json.find_given("rope_scaling");
  if (scaling != nullptr && scaling->at("type") == "none") json["rope_scaling"] = "none";
  if (json.contains("windows") && json["windows"].size() == 0) json["windows"] = "none";
  return json;
}

std::string template_summary(const Model& model) {
  if (model.chat_template().empty()) return "none";
  return with_commas(static_cast<std::int64_t>(model.chat_template().size())) + " bytes";
}

Json tensor_json(const StoredTensor& tensor) {
  Json planes = Json::object();
  for (const StoredPlane& plane : tensor.planes) {
    planes[plane.name] = {
        {"offset", plane.offset}, {"bytes", plane.bytes}, {"xxh3", hex(plane.xxh3)}};
  }
  Json json = {{"name", tensor.name},
               {"shape", tensor.shape},
               {"scheme", scheme_name(tensor.view.scheme)},
               {"act", act_name(tensor.view.act)},
               {"bytes", tensor.bytes()},
               {"method", tensor.method},
               {"error", tensor.error},
               {"planes", std::move(planes)}};
  if (!tensor.source.empty()) json["source"] = tensor.source;
  if (has_stored_scale(tensor.view.act)) json["act_scale"] = tensor.act_scale;
  if (has_moving_scale(tensor.view.act)) json["online"] = online_mode_name(tensor.online_mode);
  return json;
}

Json tokenizer_json(const Model& model) {
  if (!model.has_tokenizer()) return nullptr;
  const Tokenizer& tokenizer = model.tokenizer();
  const auto id_or_null = [](Token id) { return id == kNoToken ? Json() : Json(id); };
  return {{"summary", tokenizer.summary()},
          {"size", tokenizer.size()},
          {"bos", id_or_null(tokenizer.bos())},
          {"eos", id_or_null(tokenizer.eos())},
          {"add_bos", tokenizer.add_bos()}};
}

const Json& section(const Model& model, const char* key) {
  static const Json none = Json::object();
  const auto found = model.file().metadata().find(key);
  return found == model.file().metadata().end() ? none : *found;
}

}  // namespace

std::string inspect_text(const Model& model, bool all) {
  const LeqReader& file = model.file();
  std::string text = file.name() + ": " + human_bytes(file.file_bytes()) + " (" +
                     with_commas(static_cast<std::int64_t>(file.file_bytes())) + " bytes)\n" +
                     describe(model.config()) + '\n' + "type " + printable(model.type()) + ", " +
                     with_commas(model.parameters()) + " parameters, " +
                     fixed(model.bits_per_weight(), 3) + " bits per weight\n";
  if (all) text += "\nconfig\n" + listing(readable_config(model.config()));
  text += "\ntokenizer\n  " + (model.has_tokenizer() ? model.tokenizer().summary() : "none") +
          "\n  chat template  " + template_summary(model) + '\n';
  text += "\ngeneration\n" + listing(generation_to_json(model.generation()));
  if (model.file().metadata().contains("embedding")) {
    text += "\nembedding\n" + listing(section(model, "embedding"));
  }
  if (model.kv_evidence()) text += "\nKV cache\n" + listing(section(model, "kv_cache"));
  text += "\nprovenance\n" + listing(section(model, "provenance"));
  text += '\n' + (all ? tensor_table(model) : group_table(model)) + '\n' + total_table(model);
  return text;
}

std::string inspect_json(const Model& model) {
  const LeqReader& file = model.file();
  Json tensors = Json::array();
  for (const StoredTensor& tensor : file.tensors()) tensors.push_back(tensor_json(tensor));
  Json totals = Json::object();
  for (const auto& [name, total] : totals_by_scheme(model)) {
    totals[name] = {{"tensors", total.tensors},
                    {"numbers", total.numbers},
                    {"bytes", total.bytes},
                    {"bits_each", bits_each(total.bytes, total.numbers)}};
  }
  const Json json = {
      {"file", file.name()},
      {"file_bytes", file.file_bytes()},
      {"format", std::to_string(kLeqMajor) + "." + std::to_string(file.minor_version())},
      {"description", describe(model.config())},
      {"type", model.type()},
      {"parameters", model.parameters()},
      {"bits_per_weight", model.bits_per_weight()},
      {"config", config_to_json(model.config())},
      {"tokenizer", tokenizer_json(model)},
      {"chat_template", model.chat_template()},
      {"generation", generation_to_json(model.generation())},
      {"embedding", embedding_to_json(model.embedding())},
      {"kv_cache", section(model, "kv_cache")},
      {"provenance", section(model, "provenance")},
      {"totals", std::move(totals)},
      {"tensors", std::move(tensors)}};
  return terminal_json(json.dump_any(2)) + '\n';
}

}  // namespace leq
