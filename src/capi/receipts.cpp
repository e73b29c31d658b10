#include "capi/receipts.h"

#include <filesystem>

#include "base/version.h"
#include "capi/handles.h"
#include "engine/receipt.h"

namespace leq::capi {
namespace {

constexpr const char* kSource = "the receipt";

ReceiptOwner owner_of(LiveSession& session) {
  const RunLimits& limits = session.session().limits();
  return {session.model().file().fingerprint(), limits.key_type, limits.value_type};
}

void require_same_owner(LiveSession& session, const Receipt& receipt) {
  const RunLimits& limits = session.session().limits();
  require(receipt.owner.model == session.model().file().fingerprint(), kSource,
          ": is of another model, '", receipt.model, "', not of ", session.model().file().name());
  require(receipt.owner == owner_of(session) && receipt.kv_sinks == limits.kv_sinks &&
              receipt.kv_recent == limits.kv_recent && receipt.kv_layers == limits.kv_layers,
          kSource, ": was made with other KV types than the session's");
  const auto tokens = std::ssize(receipt.prompt) + std::ssize(receipt.tokens);
  if (tokens <= session.context()) return;
  throw StatusError(LEQ_CONTEXT_FULL, std::string(kSource) + ": " + std::to_string(tokens) +
                                          " tokens do not fit a context of " +
                                          std::to_string(session.context()));
}

leq_receipt_check check(LiveSession& session, std::string_view text) {
  const Receipt receipt = parse_receipt(text, kSource);
  require_same_owner(session, receipt);
  std::optional<ReceiptDifference> difference;
  session.with_tokens([&](std::vector<Token>& fed) {
    session.session().state().drop(0);
    fed.clear();
    difference = check_receipt(session.session(), session.model().tokenizer(), receipt, kSource);
    session.session().state().drop(0);
  });
  leq_receipt_check result = {};
  result.same = difference ? 0 : 1;
  result.found = result.expected = kNoToken;
  if (!difference) return result;
  result.place = difference->place;
  result.logits = difference->logits ? 1 : 0;
  result.found = difference->written;
  result.expected = difference->expected;
  return result;
}

}  // namespace

void require_receipts(LiveSession& session) {
  require(session.session().transformer().online().empty(), ErrorKind::bad_setting,
          "receipts: this model's activations remember how a prompt was fed (act online), so that "
          "its replies cannot be generated again");
}

std::string receipt_of(LiveSession& session, const DrawSettings& settings,
                       std::span<const Token> prompt, const EngineReply& reply,
                       const std::vector<std::uint64_t>& digests) {
  const RunLimits& limits = session.session().limits();
  return receipt_text(
      {.model = std::filesystem::path(session.model().file().name()).filename().string(),
       .version = kVersion,
       .owner = owner_of(session),
       .kv_sinks = limits.kv_sinks,
       .kv_recent = limits.kv_recent,
       .kv_layers = limits.kv_layers,
       .prompt = {prompt.begin(), prompt.end()},
       .sampling = settings.sampling,
       .banned = settings.banned,
       .end_tokens = settings.stop.end_tokens,
       .tokens = reply.tokens,
       .ended = reply.stopped == StopReason::end_token,
       .digests = digests});
}

}  // namespace leq::capi

extern "C" {

leq_status leq_check_receipt(leq_session* session, const char* receipt, size_t bytes,
                             leq_receipt_check* result, leq_error* error) {
  using namespace leq::capi;
  return guarded(error, [&] {
    require_use(result != nullptr, "result is NULL");
    check_struct_size(result->size, "leq_receipt_check");
    give(check(session_of(session), text_argument(receipt, bytes, "receipt")), result,
         "leq_receipt_check");
  });
}

}  // extern "C"
