// Low-level evaluation: feeding tokens, reading logits, sampling; and receipts, which are checked
// by feeding a reply again.
#include <algorithm>
#include <filesystem>

#include "base/version.h"
#include "capi/internal.h"
#include "engine/receipt.h"
#include "sampling/sampler.h"

namespace leq::capi {
namespace {

constexpr std::int32_t kSequence = 0;

void check_feed(const leq_session& session, std::span<const Token> tokens, std::size_t fed) {
  require_use(!tokens.empty(), "count is 0");
  const std::int64_t vocab = session.model().config().vocab;
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    require(tokens[i] >= 0 && tokens[i] < vocab, "tokens[", i, "] ", tokens[i],
            ": expected an id from 0 to ", vocab - 1);
  }
  if (static_cast<std::int64_t>(tokens.size() + fed) <= session.context()) return;
  throw StatusError(LEQ_CONTEXT_FULL, std::to_string(tokens.size()) + " tokens after " +
                                          std::to_string(fed) + " do not fit a context of " +
                                          std::to_string(session.context()));
}

// Feeds tokens in steps and appends the requested rows of logits to `numbers`.
void feed_steps(Session& session, std::span<const Token> tokens, std::int32_t which,
                std::vector<float>& numbers) {
  const RunLimits& limits = session.limits();
  Transformer& transformer = session.transformer();
  const bool all = which == LEQ_ALL_LOGITS;
  const auto step = static_cast<std::size_t>(
      all ? std::min(limits.batch_tokens, limits.output_tokens) : limits.batch_tokens);
  Batch batch;
  for (std::size_t first = 0; first < tokens.size(); first += step) {
    const std::size_t count = std::min(step, tokens.size() - first);
    const bool last = first + count == tokens.size() && which == LEQ_LAST_LOGITS;
    batch.clear();
    batch.add(kSequence, tokens.data() + first, static_cast<std::int64_t>(count),
              all    ? Batch::Want::all
              : last ? Batch::Want::last
                     : Batch::Want::none);
    const Rows& logits = transformer.forward(batch, session.state());
    if (batch.outputs.empty()) continue;
    const std::size_t rows = batch.outputs.size(), begin = numbers.size();
    numbers.resize(begin + rows * static_cast<std::size_t>(transformer.config().vocab));
    transformer.backend().download(logits, static_cast<std::int64_t>(rows),
                                   std::span(numbers).subspan(begin));
  }
}

// Truncates the sequence and `fed` to `position`, or to an earlier position if the cache cannot be
// truncated there; the caller then feeds the tokens in between again.
void cut(Session& session, std::vector<Token>& fed, std::size_t position) {
  const auto left = session.state().restore(kSequence, static_cast<std::int64_t>(position));
  fed.resize(static_cast<std::size_t>(left));
}

std::unique_ptr<leq_logits> feed(leq_session& session, std::span<const Token> tokens,
                                 std::int32_t which) {
  auto logits = std::make_unique<leq_logits>();
  logits->columns = static_cast<std::size_t>(session.model().config().vocab);
  session.with_tokens([&](std::vector<Token>& fed) {
    check_feed(session, tokens, fed.size());
    const std::size_t before = fed.size();
    fed.reserve(before + tokens.size());
    try {
      feed_steps(session.session(), tokens, which, logits->numbers);
    } catch (...) {
      cut(session.session(), fed, before);
      throw;
    }
    fed.insert(fed.end(), tokens.begin(), tokens.end());
  });
  logits->rows = logits->numbers.size() / logits->columns;
  return logits;
}

Token draw(const OpenModel& model, std::span<const float> row, std::span<const Token> context,
           std::uint32_t index, const char* settings) {
  const ApiModel api = model.api(1);
  if (row.size() != api.vocabulary) {
    misuse("columns " + std::to_string(row.size()) + ": expected the model's vocabulary, " +
           std::to_string(api.vocabulary));
  }
  const DrawSettings wanted = read_settings(settings, api);
  require(wanted.has_seed || wanted.sampling.temperature == 0, marked_field("seed"),
          ": expected a number in the settings, as the temperature is not 0");
  std::vector<Token> banned = ids_without_token(api.tokenizer, api.vocabulary);
  banned.insert(banned.end(), wanted.banned.begin(), wanted.banned.end());
  Sampler sampler(wanted.sampling, api.vocabulary, banned, api.tokenizer);
  HostSampler host;
  const Token token = host.draw(row, sampler.request(context, {.index = index}));
  require(token >= 0, "no token can be drawn: all are banned, or a logit is not finite");
  return token;
}

constexpr const char* kSource = "the receipt";

ReceiptOwner owner_of(leq_session& session) {
  const RunLimits& limits = session.session().limits();
  return {session.model().file().fingerprint(), limits.key_type, limits.value_type};
}

void require_same_owner(leq_session& session, const Receipt& receipt) {
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

leq_receipt_check check(leq_session& session, std::string_view text) {
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

void require_receipts(leq_session& session) {
  require(session.session().transformer().online().empty(), ErrorKind::bad_setting,
          "receipts: this model's activations remember how a prompt was fed (act online), so that "
          "its replies cannot be generated again");
}

std::string receipt_of(leq_session& session, const DrawSettings& settings,
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

using namespace leq;
using namespace leq::capi;

extern "C" {

leq_status leq_feed(leq_session* session, const leq_token* tokens, size_t count, int32_t which,
                    leq_logits** logits, leq_error* error) {
  if (logits != nullptr) *logits = nullptr;
  return guarded(error, [&] {
    require_use(which >= LEQ_LAST_LOGITS && which <= LEQ_NO_LOGITS, "which: an unknown value");
    require_use(logits != nullptr || which == LEQ_NO_LOGITS, "logits is NULL");
    auto made = feed(session_of(session), tokens_argument(tokens, count), which);
    if (which != LEQ_NO_LOGITS) *logits = made.release();
  });
}

size_t leq_position(const leq_session* session) {
  return is_valid(session) ? session->position() : 0;
}

leq_status leq_rewind(leq_session* session, size_t position, size_t* left, leq_error* error) {
  if (left != nullptr) *left = 0;
  return guarded(error, [&] {
    leq_session& live = session_of(session);
    live.with_tokens([&](std::vector<Token>& fed) {
      if (position > fed.size()) {
        misuse("position " + std::to_string(position) + ": " + std::to_string(fed.size()) +
               " tokens were fed");
      }
      cut(live.session(), fed, position);
      if (left != nullptr) *left = fed.size();
    });
  });
}

leq_status leq_sample(const leq_model* model, const float* row, size_t columns,
                      const leq_token* context, size_t count, uint32_t index, const char* settings,
                      leq_token* token, leq_error* error) {
  if (token != nullptr) *token = kNoToken;
  return guarded(error, [&] {
    require_use(row != nullptr && token != nullptr, "row or token is NULL");
    const OpenModel& opened = model_of(model);
    *token = draw(opened, {row, columns}, tokens_argument(context, count), index, settings);
  });
}

const float* leq_logits_data(const leq_logits* logits) {
  return is_valid(logits) ? logits->numbers.data() : nullptr;
}
size_t leq_logits_rows(const leq_logits* logits) { return is_valid(logits) ? logits->rows : 0; }
size_t leq_logits_columns(const leq_logits* logits) {
  return is_valid(logits) ? logits->columns : 0;
}
void leq_logits_free(leq_logits* logits) { close_handle(logits); }

leq_status leq_check_receipt(leq_session* session, const char* receipt, size_t bytes,
                             leq_receipt_check* result, leq_error* error) {
  return guarded(error, [&] {
    require_use(result != nullptr, "result is NULL");
    check_struct_size(result->size, "leq_receipt_check");
    give(check(session_of(session), text_argument(receipt, bytes, "receipt")), result,
         "leq_receipt_check");
  });
}

}  // extern "C"
