// A receipt of a reply: all inputs that determine the reply, the reply itself, and digests of the
// logits during generation. On the CPU a reply is a pure function of these inputs
// (docs/receipts.md), so that anyone with the model can verify it on any CPU. Verification is as
// fast as reading a prompt, because a step computes many tokens.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "model/session.h"
#include "sampling/settings.h"
#include "tokenizer/tokenizer.h"

namespace leq {

// Digests are made from the logits of every kDigestTokens-th token, starting with the first.
inline constexpr std::size_t kDigestTokens = 16;

// XXH3-64 of the f32 values of one row of logits [V].
std::uint64_t logits_digest(std::span<const float> logits);

// Collects the digests of a reply. Pass it the arguments of EngineRequest::on_logits.
class LogitDigests {
 public:
  // Adds the next `taken` tokens. `logits` [taken][V]: the rows from which they were drawn.
  void add(std::size_t taken, std::span<const float> logits);
  const std::vector<std::uint64_t>& values() const { return values_; }

 private:
  std::size_t tokens_ = 0;
  std::vector<std::uint64_t> values_;
};

// The model file and the types of keys and values that generated a reply.
struct ReceiptOwner {
  std::uint64_t model = 0;  // LeqReader::fingerprint()
  KvType key_type = kUsualKv;
  KvType value_type = kUsualKv;

  bool operator==(const ReceiptOwner&) const = default;
};

struct Receipt {
  std::string model;    // file name of the model, only for display
  std::string version;  // version of leq, only for display
  ReceiptOwner owner;
  // As in RunLimits: positions kept in f16 beside codes, and layers with KV types of their own.
  std::optional<int> kv_sinks = {}, kv_recent = {};
  std::vector<KvLayerTypes> kv_layers = {};
  std::vector<Token> prompt;
  SamplingSettings sampling;           // including the seed
  std::vector<Token> banned;           // token ids that are never drawn
  std::vector<Token> end_tokens;       // token ids that end the reply
  std::vector<Token> tokens;           // the reply, without the end token
  bool ended = false;                  // whether an end token ended the reply
  std::vector<std::uint64_t> digests;  // [ceil(tokens / kDigestTokens)] digests of logits
};

std::string receipt_text(const Receipt& receipt);  // JSON
// Throws Error naming `source`, the member of the JSON, the expected and the actual value.
Receipt parse_receipt(std::string_view text, const std::string& source);

// Replaces the file atomically. Both functions throw Error if the file cannot be accessed.
void write_receipt(const std::filesystem::path& path, const Receipt& receipt);
Receipt read_receipt(const std::filesystem::path& path);

// The first difference between the reply in a receipt and the reply generated again.
struct ReceiptDifference {
  std::size_t place = 0;  // index of the token, or the length of the shorter reply
  bool logits = false;    // tokens are equal, but the logits before this one differ
  Token written = kNoToken, expected = kNoToken;  // kNoToken: the reply ends there

  bool operator==(const ReceiptDifference&) const = default;
};

// Limits of a session for check_receipt: a context for the whole reply, and as many rows of logits
// per step as make verification faster.
RunLimits receipt_limits(const Receipt& receipt, RunLimits limits);

// Verifies a receipt; returns nullopt if the reply is reproduced. `session` must have the receipt's
// model and KV types. `progress` receives the number of prompt and reply tokens done. Throws Error
// naming `source` if an id is outside the model's vocabulary, and as Engine::submit does.
std::optional<ReceiptDifference> check_receipt(
    Session& session, const Tokenizer& tokenizer, const Receipt& receipt, const std::string& source,
    const std::function<void(std::int64_t)>& progress = [](std::int64_t) {});

}  // namespace leq
