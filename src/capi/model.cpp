// Models, and functions without a session: properties, tokens, chat rendering, memory plans.
#include "base/version.h"
#include "capi/handles.h"
#include "engine/draft_model.h"
#include "format/loaded_file.h"
#include "model/model_report.h"
#include "server/api_fields.h"

namespace leq::capi {
namespace {

leq_model_info info_of(const Model& model) {
  leq_model_info info = {};
  const ModelConfig& config = model.config();
  info.layers = static_cast<int32_t>(config.layer_count());
  info.context = config.context;
  info.vocab = config.vocab;
  info.width = config.width;
  info.parameters = model.parameters();
  info.file_bytes = model.file().file_bytes();
  info.bits_per_weight = model.bits_per_weight();
  info.bos = info.eos = kNoToken;
  info.has_tokenizer = model.has_tokenizer() ? 1 : 0;
  info.has_chat_template = model.chat_template().empty() ? 0 : 1;
  if (!model.has_tokenizer()) return info;
  info.bos = model.tokenizer().bos();
  info.eos = model.tokenizer().eos();
  info.adds_bos = model.tokenizer().add_bos() ? 1 : 0;
  return info;
}

std::vector<Token> tokens_of(const Tokenizer& tokenizer, std::string_view text,
                             std::uint32_t flags) {
  require_use((flags & ~std::uint32_t{LEQ_PLAIN | LEQ_NO_BOS}) == 0, "flags: an unknown one");
  EncodeOptions options;
  options.parse_special = (flags & LEQ_PLAIN) == 0;
  options.add_bos = tokenizer.add_bos() && (flags & LEQ_NO_BOS) == 0;
  return tokenizer.encode(text, options);
}

void check_ids(const Tokenizer& tokenizer, std::span<const Token> tokens) {
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    require(tokens[i] >= 0 && static_cast<std::size_t>(tokens[i]) < tokenizer.size(), "tokens[", i,
            "] ", tokens[i], ": expected an id from 0 to ", tokenizer.size() - 1);
  }
}

std::vector<TextPart> rendered(const OpenModel& model, std::string_view request) {
  const ApiModel api = model.api(1);
  require(api.chat != nullptr, api.name, ": ", api.chat_error);
  const Json tree = parse_request_object(request);
  return render_chat(tree, api);
}

leq_memory_plan memory_plan(const char* path, const leq_session_options& options) {
  const Model model(path, {.mode = LoadMode::map});
  const SessionRequest request = session_request(options, model);
  const auto [limits, plan] = plan_runtime(model, request.limits, request.device);
  leq_memory_plan result = {};
  result.context = limits.context;
  result.weight_bytes = plan.weight_bytes;
  MemoryPlan head;
  if (request.drafts_by_mtp) head = plan_mtp(model, limits, *make_layout(request.device));
  result.kv_bytes = plan.kv_bytes + plan.state_bytes + head.kv_bytes + head.state_bytes;
  result.scratch_bytes = plan.scratch_bytes + head.scratch_bytes;
  result.total_bytes = plan.total() + head.total();
  if (request.device.device == "cpu") result.available_bytes = available_memory().value_or(0);
  return result;
}

}  // namespace
}  // namespace leq::capi

using namespace leq;
using namespace leq::capi;

extern "C" {

const char* leq_version(void) { return kVersion; }

leq_status leq_model_get_info(const leq_model* model, leq_model_info* info, leq_error* error) {
  return guarded(error, [&] {
    require_use(info != nullptr, "info is NULL");
    give(info_of(model_of(model).file()), info, "leq_model_info");
  });
}

leq_status leq_inspect(const leq_model* model, char** json, leq_error* error) {
  if (json != nullptr) *json = nullptr;
  return guarded(error, [&] {
    require_use(json != nullptr, "json is NULL");
    *json = new_text(inspect_json(model_of(model).file()));
  });
}

leq_status leq_verify(const leq_model* model, leq_error* error) {
  return guarded(
      error, [&] { model_of(model).file().file().verify([](std::uint64_t, std::uint64_t) {}); });
}

leq_status leq_tokenize(const leq_model* model, const char* text, size_t bytes, uint32_t flags,
                        leq_token** tokens, size_t* count, leq_error* error) {
  if (tokens != nullptr) *tokens = nullptr;
  if (count != nullptr) *count = 0;
  return guarded(error, [&] {
    require_use(tokens != nullptr && count != nullptr, "tokens or count is NULL");
    const Tokenizer& tokenizer = model_of(model).file().tokenizer();
    const auto ids = tokens_of(tokenizer, text_argument(text, bytes, "text"), flags);
    *tokens = new_tokens(ids);
    *count = ids.size();
  });
}

leq_status leq_detokenize(const leq_model* model, const leq_token* tokens, size_t count,
                          int32_t with_special, char** text, size_t* bytes, leq_error* error) {
  if (text != nullptr) *text = nullptr;
  if (bytes != nullptr) *bytes = 0;
  return guarded(error, [&] {
    require_use(text != nullptr && bytes != nullptr, "text or bytes is NULL");
    const Tokenizer& tokenizer = model_of(model).file().tokenizer();
    const auto ids = tokens_argument(tokens, count);
    check_ids(tokenizer, ids);
    const std::string decoded = tokenizer.decode(ids, with_special != 0);
    *text = new_text(decoded);
    *bytes = decoded.size();
  });
}

leq_status leq_apply_chat_template(const leq_model* model, const char* request, size_t bytes,
                                   char** text, size_t* text_bytes, leq_token** tokens,
                                   size_t* count, leq_error* error) {
  if (text != nullptr) *text = nullptr;
  if (text_bytes != nullptr) *text_bytes = 0;
  if (tokens != nullptr) *tokens = nullptr;
  if (count != nullptr) *count = 0;
  return guarded(error, [&] {
    require_use((text == nullptr) == (text_bytes == nullptr), "text without text_bytes");
    require_use((tokens == nullptr) == (count == nullptr), "tokens without count");
    const OpenModel& opened = model_of(model);
    const auto parts = rendered(opened, text_argument(request, bytes, "request"));
    const std::string whole = text != nullptr ? joined(parts) : std::string();
    std::vector<Token> ids;
    if (tokens != nullptr) ids = opened.file().tokenizer().encode_parts(parts);
    leq_token* block = tokens != nullptr ? new_tokens(ids) : nullptr;
    if (text != nullptr) {
      try {
        *text = new_text(whole);
      } catch (...) {
        leq_free(block);
        throw;
      }
      *text_bytes = whole.size();
    }
    if (tokens == nullptr) return;
    *tokens = block;
    *count = ids.size();
  });
}

leq_status leq_plan_memory(const char* path, const leq_session_options* options,
                           leq_memory_plan* plan, leq_error* error) {
  return guarded(error, [&] {
    require_use(path != nullptr, "path is NULL");
    require_use(plan != nullptr, "plan is NULL");
    const leq_session_options known = options_of(options, "leq_session_options");
    give(memory_plan(path, known), plan, "leq_memory_plan");
  });
}

leq_cancel* leq_cancel_new(void) { return new (std::nothrow) leq_cancel; }

void leq_cancel_request(leq_cancel* cancel) {
  if (cancel != nullptr) cancel->requested.store(true, std::memory_order_relaxed);
}

void leq_cancel_reset(leq_cancel* cancel) {
  if (cancel != nullptr) cancel->requested.store(false, std::memory_order_relaxed);
}

void leq_cancel_free(leq_cancel* cancel) {
  if (cancel != nullptr && cancel->kind == HandleKind::cancel) delete cancel;
}

leq_status leq_grammar_from_gbnf(const char* text, size_t bytes, leq_grammar** grammar,
                                 leq_error* error) {
  if (grammar != nullptr) *grammar = nullptr;
  return guarded(error, [&] {
    require_use(grammar != nullptr, "grammar is NULL");
    *grammar =
        new leq_grammar(Grammar::from_gbnf(text_argument(text, bytes, "text"), "the grammar"));
  });
}

leq_status leq_grammar_from_schema(const char* text, size_t bytes, int32_t strict,
                                   leq_grammar** grammar, leq_error* error) {
  if (grammar != nullptr) *grammar = nullptr;
  return guarded(error, [&] {
    require_use(grammar != nullptr, "grammar is NULL");
    SchemaNotes notes;
    *grammar = new leq_grammar(Grammar::from_json_schema(
        text_argument(text, bytes, "text"), "the schema", strict != 0 ? nullptr : &notes));
  });
}

void leq_grammar_free(leq_grammar* grammar) {
  if (grammar != nullptr && grammar->kind == HandleKind::grammar) delete grammar;
}

}  // extern "C"
