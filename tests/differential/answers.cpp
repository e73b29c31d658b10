// What leq's readers make of given bytes, for differential.py, which compares it with what other
// programs make of them. Reads a case per line, {"kind": "json", "bytes": hex, ...}, and writes
// {"value": ...} or {"refused": message}.
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <functional>
#include <iostream>
#include <map>
#include <string>
#include <string_view>

#include "../chat/test_time.h"
#include "base/bytes.h"
#include "base/error.h"
#include "base/json.h"
#include "base/text.h"
#include "chat/chat_template.h"
#include "convert/hf_tokenizer.h"
#include "format/gguf.h"
#include "format/tensor_source.h"
#include "grammar/automaton.h"
#include "server/http.h"
#include "tokenizer/tokenizer.h"

namespace {

using leq::Json;
using leq::JsonNode;

std::string from_hex(std::string_view hex) {
  std::string bytes;
  for (std::size_t i = 0; i + 1 < hex.size(); i += 2) {
    bytes += static_cast<char>(std::stoi(std::string(hex.substr(i, 2)), nullptr, 16));
  }
  return bytes;
}

std::string to_hex(std::string_view bytes) {
  std::string hex;
  for (const char c : bytes) {
    for (const int shift : {4, 0}) {
      hex += "0123456789abcdef"[static_cast<unsigned char>(c) >> shift & 15];
    }
  }
  return hex;
}

std::string mark_of(std::span<const std::byte> bytes) {
  return leq::sha256_hex(leq::as_text(bytes));
}

// The result of a getter, or null if it refuses the value.
template <class Get>
Json got(const Get& get) {
  try {
    return Json(get());
  } catch (const leq::Error&) {
    return nullptr;
  }
}

Json read_json(const std::string& bytes, JsonNode) { return leq::parse_json(bytes, "input"); }

Json read_safetensors(const std::string& bytes, JsonNode) {
  const int descriptor = ::memfd_create("input", MFD_CLOEXEC);
  if (::write(descriptor, bytes.data(), bytes.size()) != static_cast<ssize_t>(bytes.size())) {
    std::abort();
  }
  Json tensors = Json::array();
  try {
    const auto source = leq::open_safetensors("/proc/self/fd/" + std::to_string(descriptor));
    for (const leq::SourceTensor& tensor : source->tensors()) {
      tensors.push_back(
          Json::array({tensor.name, tensor.file_dtype, tensor.shape, mark_of(tensor.bytes)}));
    }
  } catch (const leq::Error&) {
    ::close(descriptor);
    throw;
  }
  ::close(descriptor);
  return tensors;
}

Json metadata_value(const leq::GgufMetadata& metadata, const std::string& key,
                    const leq::GgufValue& value) {
  using leq::GgufKind;
  const GgufKind kind = value.kind == GgufKind::array ? value.item : value.kind;
  const bool list = value.kind == GgufKind::array;
  switch (kind) {
    case GgufKind::text: {
      Json texts = Json::array();
      if (!list) return to_hex(*metadata.text(key));
      for (const std::string_view text : metadata.texts(key)) texts.push_back(to_hex(text));
      return texts;
    }
    case GgufKind::f32:
    case GgufKind::f64:
      if (!list) return got([&] { return *metadata.number(key); });
      return nullptr;  // only the bytes are compared
    case GgufKind::array:
      return nullptr;
    case GgufKind::boolean:
      if (!list) return *metadata.flag(key);
      [[fallthrough]];
    default:
      if (!list) return got([&] { return *metadata.integer(key); });
      return got([&] { return metadata.integers(key); });
  }
}

Json read_gguf(const std::string& bytes, JsonNode) {
  const leq::GgufFile file =
      leq::parse_gguf(std::as_bytes(std::span(bytes.data(), bytes.size())), "input");
  Json values = Json::object(), tensors = Json::array();
  for (const auto& [key, value] : file.metadata.values()) {
    const bool list = value.kind == leq::GgufKind::array;
    values[to_hex(key)] = Json::array(
        {static_cast<int>(value.kind), list ? Json(static_cast<int>(value.item)) : Json(),
         to_hex(leq::as_text(value.bytes)), metadata_value(file.metadata, key, value)});
  }
  for (const leq::GgufTensor& tensor : file.tensors) {
    tensors.push_back(Json::array({to_hex(tensor.name), tensor.type->name, tensor.shape,
                                   tensor.offset, mark_of(tensor.bytes)}));
  }
  return {{"values", values}, {"tensors", tensors}};
}

Json render(const std::string& bytes, JsonNode given) {
  leq::ChatOptions options = {.bos = "<s>", .eos = "</s>"};
  options.now = leq::test::test_time();
  const auto chat = leq::ChatTemplate::of_model(bytes, "input");
  return leq::joined(chat.render({.messages = given.find("messages"),
                                  .tools = given.find("tools"),
                                  .variables = given.find("variables")},
                                 options));
}

Json read_schema(const std::string& bytes, JsonNode given) {
  leq::SchemaNotes notes;
  const auto grammar = leq::Grammar::from_json_schema(bytes, "input", &notes);
  leq::GrammarAutomaton automaton(grammar);
  Json accepts = Json::array();
  for (const JsonNode document : given.find("documents")) {
    const auto state = automaton.after(automaton.start(), document.text());
    accepts.push_back(state != leq::GrammarAutomaton::kDead && automaton.may_end(state));
  }
  return {{"notes", notes}, {"accepts", accepts}};
}

Json tokenize(const std::string& bytes, JsonNode given) {
  const leq::Tokenizer tokenizer(leq::read_hf_tokenizer(bytes, "input").spec);
  Json encoded = Json::array(), decoded = Json::array();
  for (const JsonNode text : given.find("texts")) {
    const auto ids = tokenizer.encode(text.text(), {});
    encoded.push_back(ids);
    decoded.push_back(to_hex(tokenizer.decode(ids, false)));
  }
  return {{"ids", encoded}, {"decoded", decoded}};
}

// The requests before the first that is malformed or cut off, and how it ends.
Json read_http(const std::string& bytes, JsonNode) {
  Json requests = Json::array();
  std::string_view rest = bytes;
  while (true) {
    leq::HttpReader reader({});
    rest.remove_prefix(reader.push(rest));
    if (reader.fault()) return {{"requests", requests}, {"end", reader.fault()->text}};
    if (!reader.complete()) return {{"requests", requests}, {"end", nullptr}};
    const leq::HttpRequest request = reader.take();
    Json headers = Json::array();
    for (const auto& [name, value] : request.headers) {
      headers.push_back(Json::array({to_hex(name), to_hex(value)}));
    }
    requests.push_back(Json::array({request.method, to_hex(request.path), to_hex(request.query),
                                    headers, to_hex(request.body)}));
  }
}

const std::map<std::string, std::function<Json(const std::string&, JsonNode)>> kReaders = {
    {"json", read_json}, {"safetensors", read_safetensors}, {"gguf", read_gguf},
    {"jinja", render},   {"schema", read_schema},           {"tokenizer", tokenize},
    {"http", read_http}};

}  // namespace

int main() {
  std::string line;
  while (std::getline(std::cin, line)) {
    const Json given = leq::parse_json(line, "stdin");
    std::string answer;
    try {
      const Json value = kReaders.at(given["kind"].text())(from_hex(given["bytes"].text()), given);
      answer = R"({"value":)" + JsonNode(value).dump() + "}";
    } catch (const leq::Error& error) {
      answer = Json({{"refused", error.what()}}).dump_any();
    }
    std::puts(answer.c_str());
  }
  return 0;
}
