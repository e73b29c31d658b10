#include <filesystem>
#include <utility>

#include "base/version.h"
#include "capi/internal.h"
#include "engine/receipt.h"
#include "server/api_error.h"
#include "server/api_fields.h"
#include "server/generation.h"

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

namespace leq::capi {

// Requests in the JSON of the OpenAI API, answered as by leq-server but without a server.

namespace {

constexpr std::string_view kData = "data: ";
constexpr std::string_view kDone = "[DONE]";

// Passes a reply or the events of a stream to the caller of a C function.
class CallExchange : public HttpExchange {
 public:
  explicit CallExchange(const leq_request_options& options) : options_(options) {}

  const HttpRequest& request() const override { return request_; }
  void reply(const HttpReply& reply) override { reply_ = reply.body; }
  bool begin_stream(const HttpReply&) override { return client_is_there(); }
  bool write(std::string_view piece) override {
    held_ += piece;
    for (std::size_t end; (end = held_.find("\n\n")) != std::string::npos;) {
      send(std::string_view(held_).substr(0, end));
      held_.erase(0, end + 2);
    }
    return client_is_there();
  }
  bool end_stream() override { return !ended_; }
  bool client_is_there() override {
    ended_ = ended_ || is_cancelled(options_.cancel) || call(nullptr, 0);
    return !ended_;
  }

  const std::string& reply() const { return reply_; }
  bool ended_by_caller() const { return ended_; }

 private:
  void send(std::string_view event) {
    if (ended_ || !event.starts_with(kData)) return;
    event.remove_prefix(kData.size());
    if (event != kDone) ended_ = call(std::string(event).c_str(), event.size());
  }
  bool call(const char* json, std::size_t bytes) {
    return options_.on_event != nullptr && options_.on_event(options_.user, json, bytes) != 0;
  }

  const leq_request_options& options_;
  HttpRequest request_;
  std::string held_, reply_;
  bool ended_ = false;
};

// The reply's JSON; nullopt for a stream.
std::optional<std::string> answer(LiveSession& session, CallStyle style, std::string_view request,
                                  const leq_request_options& options) {
  check_cancel(options.cancel);
  const ApiModel api = session.opened().api(session.session().limits().sequences);
  require(!is_chat(style) || api.chat != nullptr, api.name, ": ", api.chat_error);
  const Json tree = parse_request_object(request);
  GenerationCall call = read_generation_call(style, tree, api);
  const bool streams = call.stream;
  require_use(!streams || options.on_event != nullptr, "a stream needs on_event");
  CallExchange exchange(options);
  const auto interrupted = [&] {
    require(!exchange.ended_by_caller(), ErrorKind::interrupted, "the caller ended the reply");
  };
  try {
    session.with_engine([&](EngineThread& engine) {
      answer_generation(exchange, std::move(call), api, engine, {});
    });
  } catch (const Error&) {
    interrupted();
    throw;
  }
  interrupted();
  if (streams) return std::nullopt;
  return exchange.reply();
}

leq_status respond(leq_session* session, CallStyle style, const char* request, std::size_t bytes,
                   const leq_request_options* options, char** reply, leq_error* error) {
  if (reply != nullptr) *reply = nullptr;
  return guarded(error, [&] {
    require_use(reply != nullptr, "reply is NULL");
    const auto known = options_of(options, "leq_request_options");
    const auto text =
        answer(session_of(session), style, text_argument(request, bytes, "request"), known);
    if (text) *reply = new_text(*text);
  });
}

}  // namespace
}  // namespace leq::capi

extern "C" {

leq_status leq_chat_completion(leq_session* session, const char* request, size_t bytes,
                               const leq_request_options* options, char** reply, leq_error* error) {
  return leq::capi::respond(session, leq::CallStyle::chat, request, bytes, options, reply, error);
}

leq_status leq_completion(leq_session* session, const char* request, size_t bytes,
                          const leq_request_options* options, char** reply, leq_error* error) {
  return leq::capi::respond(session, leq::CallStyle::text, request, bytes, options, reply, error);
}

}  // extern "C"
