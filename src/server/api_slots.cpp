// Saves the texts of slots to files and restores them, compatible with llama-server. A slot is only
// the last text generated in it: the text's KV pages are in the cache that all requests share.
#include <filesystem>
#include <utility>

#include "base/error.h"
#include "base/json.h"
#include "base/stopwatch.h"
#include "base/text.h"
#include "server/api_error.h"
#include "server/api_fields.h"
#include "server/model_api.h"

namespace leq {
namespace {

std::string file_name_of(JsonNode body) {
  const auto name = body ? text_field(body, "filename") : std::nullopt;
  if (!name) field_error("filename", "the name of a file");
  return *name;
}

}  // namespace

std::size_t ModelApi::slot_of(const HttpRequest& request) const {
  const auto slot =
      parse_int(std::string_view(request.path).substr(std::string_view("/slots/").size()));
  if (!slot || *slot < 0 || *slot >= limits_.sequences) {
    throw ApiError(404,
                   request.path + ": there are slots 0 to " + std::to_string(limits_.sequences - 1),
                   "not_found");
  }
  return static_cast<std::size_t>(*slot);
}

void ModelApi::slot_action(HttpExchange& exchange, JsonNode body) const {
  if (!hosted_.slot_files()) {
    throw ApiError(501, "slots are saved nowhere: start the server with a folder for them",
                   "not_supported");
  }
  const HttpRequest& request = exchange.request();
  const std::size_t slot = slot_of(request);
  const std::string action = request.query_value("action");
  if (action == "save") return send_json(exchange, save_slot(slot, file_name_of(body)));
  if (action == "restore") return send_json(exchange, restore_slot(slot, file_name_of(body)));
  if (action == "erase") return send_json(exchange, erase_slot(slot));
  field_error("action", "expected ?action=save, restore or erase");
}

Json ModelApi::save_slot(std::size_t slot, const std::string& name) const {
  const Stopwatch watch;
  (void)hosted_.slot_files()->file(name);  // throws on an invalid name before any work
  SavedPrefix prefix;
  engine_.with_idle_sequence(
      [&](Engine& engine) { prefix = engine.save_prefix(engine_.slot_texts()[slot]); });
  const std::size_t tokens = prefix.tokens.size();
  if (tokens == 0) throw ApiError(400, "slot " + std::to_string(slot) + " is empty", "slot_empty");
  const std::uint64_t bytes = hosted_.slot_files()->write(name, prefix);
  return {{"id_slot", slot},
          {"filename", name},
          {"n_saved", tokens},
          {"n_written", bytes},
          {"timings", {{"save_ms", 1e3 * watch.seconds()}}}};
}

Json ModelApi::restore_slot(std::size_t slot, const std::string& name) const {
  const Stopwatch watch;
  const SavedPrefix prefix = hosted_.slot_files()->read(name);
  bool fits = false;
  engine_.with_idle_sequence([&](Engine& engine) {
    fits = engine.load_prefix(prefix, name);
    if (fits) engine_.slot_texts()[slot] = prefix.tokens;
  });
  if (!fits) {
    throw ApiError(503,
                   name + ": its " + std::to_string(prefix.tokens.size()) +
                       " tokens do not fit beside the replies in work",
                   "no_room");
  }
  return {{"id_slot", slot},
          {"filename", name},
          {"n_restored", prefix.tokens.size()},
          {"n_read", std::filesystem::file_size(hosted_.slot_files()->file(name))},
          {"timings", {{"restore_ms", 1e3 * watch.seconds()}}}};
}

Json ModelApi::erase_slot(std::size_t slot) const {
  std::size_t tokens = 0;
  engine_.between_steps([&](Engine& engine) {
    const std::vector<Token> text = std::exchange(engine_.slot_texts()[slot], {});
    (void)engine.erase_prompt(text);
    tokens = text.size();
  });
  return {{"id_slot", slot}, {"n_erased", tokens}};
}

}  // namespace leq
