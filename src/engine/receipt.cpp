#include "engine/receipt.h"

#include <algorithm>
#include <utility>

#include "backend/kv_types.h"
#include "base/error.h"
#include "base/file.h"
#include "base/text.h"
#include "engine/engine.h"
#include "format/leq_layout.h"
#include "sampling/settings.h"

namespace leq {
namespace {

constexpr std::int64_t kVersion = 1;
constexpr std::uint64_t kMaxFileBytes = 64ull << 20;
constexpr std::int64_t kMaxRecent = 1 << 20;
// With more rows than this, the time of a step is proportional to the number of its rows.
constexpr std::int64_t kCheckedTokens = 256;

std::uint64_t digest_of(std::string_view text, const char* key, const std::string& source) {
  const auto value = parse_checksum(text);
  require(value.has_value(), source, ": '", key, "': expected 16 hexadecimal digits, found '",
          printable(text), "'");
  return *value;
}

std::vector<Token> tokens_of(const Json& object, const char* key, const std::string& source) {
  std::vector<Token> tokens;
  for (const Json& id : json_member(object, key, Json::Type::array, source)) {
    const bool whole = id.is_number_integer() && id.get<double>() >= 0 && id.get<double>() < 1e9;
    require(whole, source, ": '", key, "': expected token ids, found ", id.dump());
    tokens.push_back(static_cast<Token>(id.get<std::int64_t>()));
  }
  return tokens;
}

KvType kv_type_of(const Json& object, const char* key, const std::string& source) {
  const auto name = json_get<std::string>(object, key, source);
  try {
    return parse_kv_type(name, Setting{"key_type"});
  } catch (const Error&) {
    fail(source, ": '", key, "': expected a KV type (", kv_type_names(", "), "), found '",
         printable(name), "'");
  }
}

Json optional_json(const std::optional<int>& number) { return number ? Json(*number) : Json(); }

// Receipts of older versions do not have the member 'kv_layers'.
std::vector<KvLayerTypes> layers_of(const Json& json, const std::string& source) {
  std::vector<KvLayerTypes> layers;
  if (!json.contains("kv_layers")) return layers;
  for (const Json& one : json_member(json, "kv_layers", Json::Type::array, source)) {
    if (!one.is_string()) json_type_error(json, "kv_layers", source);
    try {
      for (const KvLayerTypes& types : parse_kv_layers(one.text(), Setting{"kv_layers"})) {
        layers.push_back(types);
      }
    } catch (const Error& error) {
      fail(source, ": 'kv_layers': ", error.what());
    }
  }
  return layers;
}

std::optional<int> optional_number(const Json& object, const char* key, std::int64_t most,
                                   const std::string& source) {
  if (object.contains(key) && object.at(key).is_null()) return std::nullopt;
  return static_cast<int>(json_whole(object, key, 0, most, source));
}

void check_ids(std::span<const Token> ids, const char* key, std::int64_t vocabulary,
               const std::string& source) {
  const auto wrong = std::ranges::find_if(ids, [&](Token id) { return id >= vocabulary; });
  require(wrong == ids.end(), source, ": '", key, "': id ", wrong == ids.end() ? 0 : *wrong,
          ", the model has ", vocabulary);
}

// The first index at which the two lists have different tokens or one of them ends.
std::optional<ReceiptDifference> token_difference(const Receipt& receipt,
                                                  const EngineReply& reply) {
  const std::vector<Token>& written = reply.tokens;
  const auto [at, expected] = std::ranges::mismatch(written, receipt.tokens);
  const bool same_end = (reply.stopped == StopReason::end_token) == receipt.ended;
  if (at == written.end() && expected == receipt.tokens.end() && same_end) return std::nullopt;
  return ReceiptDifference{.place = static_cast<std::size_t>(at - written.begin()),
                           .written = at == written.end() ? kNoToken : *at,
                           .expected = expected == receipt.tokens.end() ? kNoToken : *expected};
}

}  // namespace

std::uint64_t logits_digest(std::span<const float> logits) {
  return checksum(std::as_bytes(logits));
}

void LogitDigests::add(std::size_t taken, std::span<const float> logits) {
  const std::size_t vocabulary = logits.size() / std::max<std::size_t>(taken, 1);
  for (std::size_t i = 0; i < taken; ++i, ++tokens_) {
    if (tokens_ % kDigestTokens != 0) continue;
    values_.push_back(logits_digest(logits.subspan(i * vocabulary, vocabulary)));
  }
}

std::string receipt_text(const Receipt& receipt) {
  Json digests = Json::array();
  Json layers = Json::array();
  for (const KvLayerTypes& one : receipt.kv_layers) layers.push_back(kv_layers_text({&one, 1}));
  for (const std::uint64_t digest : receipt.digests) digests.push_back(checksum_text(digest));
  const Json json = {{"leq_receipt", kVersion},
                     {"model", receipt.model},
                     {"version", receipt.version},
                     {"fingerprint", checksum_text(receipt.owner.model)},
                     {"keys", std::string(kv_type_name(receipt.owner.key_type))},
                     {"values", std::string(kv_type_name(receipt.owner.value_type))},
                     {"kv_sinks", optional_json(receipt.kv_sinks)},
                     {"kv_recent", optional_json(receipt.kv_recent)},
                     {"kv_layers", std::move(layers)},
                     {"settings", sampling_to_json(receipt.sampling)},
                     {"banned", receipt.banned},
                     {"end_tokens", receipt.end_tokens},
                     {"prompt", receipt.prompt},
                     {"tokens", receipt.tokens},
                     {"ended", receipt.ended},
                     {"digests", std::move(digests)}};
  return json.dump_any() + "\n";  // the name of a file may be no UTF-8
}

Receipt parse_receipt(std::string_view text, const std::string& source) {
  const Json json = parse_json(text, source);
  require(json.is_object() && json.contains("leq_receipt"), source,
          ": not a receipt: expected an object with the key 'leq_receipt', as ", Setting{"receipt"},
          " writes it");
  const auto version = json_get<std::int64_t>(json, "leq_receipt", source);
  require(version == kVersion, source, ": a receipt of version ", version, ", expected ", kVersion);
  Receipt receipt;
  receipt.model = json_get<std::string>(json, "model", source);
  receipt.version = json_get<std::string>(json, "version", source);
  receipt.owner = {
      digest_of(json_get<std::string>(json, "fingerprint", source), "fingerprint", source),
      kv_type_of(json, "keys", source), kv_type_of(json, "values", source)};
  receipt.kv_sinks = optional_number(json, "kv_sinks", kPageTokens, source);
  receipt.kv_recent = optional_number(json, "kv_recent", kMaxRecent, source);
  receipt.kv_layers = layers_of(json, source);
  receipt.sampling =
      sampling_from_json(json_member(json, "settings", Json::Type::object, source), source);
  receipt.banned = tokens_of(json, "banned", source);
  receipt.end_tokens = tokens_of(json, "end_tokens", source);
  receipt.prompt = tokens_of(json, "prompt", source);
  receipt.tokens = tokens_of(json, "tokens", source);
  receipt.ended = json_get<bool>(json, "ended", source);
  for (const Json& digest : json_member(json, "digests", Json::Type::array, source)) {
    if (!digest.is_string()) json_type_error(json, "digests", source);
    receipt.digests.push_back(digest_of(digest.text(), "digests", source));
  }
  require(!receipt.prompt.empty(), source, ": 'prompt' is empty");
  const std::size_t wanted = (receipt.tokens.size() + kDigestTokens - 1) / kDigestTokens;
  require(receipt.digests.size() == wanted, source, ": 'digests': expected ", wanted, " for ",
          receipt.tokens.size(), " tokens, found ", receipt.digests.size());
  return receipt;
}

void write_receipt(const std::filesystem::path& path, const Receipt& receipt) {
  const std::string text = receipt_text(receipt);
  AtomicFile out(path);
  out.append(std::as_bytes(std::span(text)));
  out.commit();
}

Receipt read_receipt(const std::filesystem::path& path) {
  return parse_receipt(read_file(path, kMaxFileBytes), path.string());
}

RunLimits receipt_limits(const Receipt& receipt, RunLimits limits) {
  const std::int64_t reply = std::ssize(receipt.tokens) + 1;
  limits.sequences = 1;
  limits.context = std::ssize(receipt.prompt) + reply;
  limits.output_tokens = std::min(kCheckedTokens, reply);
  limits.batch_tokens = std::max(limits.batch_tokens, limits.output_tokens);
  limits.key_type = receipt.owner.key_type;
  limits.value_type = receipt.owner.value_type;
  limits.kv_sinks = receipt.kv_sinks;
  limits.kv_recent = receipt.kv_recent;
  limits.kv_layers = receipt.kv_layers;
  return limits;
}

std::optional<ReceiptDifference> check_receipt(Session& session, const Tokenizer& tokenizer,
                                               const Receipt& receipt, const std::string& source,
                                               const std::function<void(std::int64_t)>& progress) {
  const std::int64_t vocabulary = session.transformer().config().vocab;
  check_ids(receipt.banned, "banned", vocabulary, source);
  check_ids(receipt.end_tokens, "end_tokens", vocabulary, source);
  check_ids(receipt.tokens, "tokens", vocabulary, source);
  Engine engine(session, tokenizer, {.reuse_prefixes = false});
  LogitDigests digests;
  std::optional<EngineReply> ended;
  EngineRequest request;
  request.prompt = receipt.prompt;
  request.sampling = receipt.sampling;
  request.banned = receipt.banned;
  request.stop.end_tokens = receipt.end_tokens;
  // Allows one more token than the receipt has, which shows whether the reply ends there.
  request.stop.max_tokens = std::ssize(receipt.tokens) + (receipt.ended ? 1 : 0);
  request.expected = receipt.tokens;
  std::int64_t done = 0;
  request.on_prompt = [&](std::int64_t fed, std::int64_t) { progress(done = fed); };
  request.on_logits = [&](std::span<const Token> taken, std::span<const float> logits) {
    digests.add(taken.size(), logits);
    progress(done += std::ssize(taken));
  };
  request.on_end = [&](const EngineReply& reply) { ended = reply; };
  if (receipt.tokens.empty() && !receipt.ended) return std::nullopt;  // no token was drawn
  engine.submit(std::move(request));
  while (!ended) engine.step();
  if (ended->error) throw *ended->error;
  const auto tokens = token_difference(receipt, *ended);
  const auto [at, expected] = std::ranges::mismatch(digests.values(), receipt.digests);
  const auto first = static_cast<std::size_t>(at - digests.values().begin()) * kDigestTokens;
  const bool others = at != digests.values().end() && expected != receipt.digests.end();
  if (others && (!tokens || first <= tokens->place)) return ReceiptDifference{first, true};
  return tokens;
}

}  // namespace leq
