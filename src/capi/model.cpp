// Errors and arguments of the C API, model files, and functions without a session.
#include <cstdlib>
#include <new>

#include "base/file.h"
#include "base/version.h"
#include "capi/internal.h"
#include "engine/speculation.h"
#include "format/gguf_source.h"
#include "format/loaded_file.h"
#include "model/model_report.h"
#include "quantize/run/quantize.h"

namespace leq::capi {
namespace {

leq_status status_of(const Error& error) {
  if (const auto* own = dynamic_cast<const StatusError*>(&error)) return own->status();
  const auto* api = dynamic_cast<const ApiError*>(&error);
  if (api != nullptr && api->code() == "context_length_exceeded") return LEQ_CONTEXT_FULL;
  constexpr leq_status kByKind[] = {LEQ_BAD_INPUT, LEQ_BAD_SETTING, LEQ_NO_MEMORY, LEQ_NO_DEVICE,
                                    LEQ_IO,        LEQ_INTERRUPTED, LEQ_INTERNAL};
  return kByKind[static_cast<std::size_t>(error.kind())];
}

// Copies as many whole characters as fit, followed by a terminating zero.
void copy_text(std::string_view text, char* to, std::size_t capacity) {
  if (capacity == 0) return;
  std::size_t bytes = std::min(text.size(), capacity - 1);
  while (bytes > 0 && bytes < text.size() && (static_cast<unsigned char>(text[bytes]) >> 6) == 2) {
    --bytes;
  }
  std::memcpy(to, text.data(), bytes);
  to[bytes] = '\0';
}

leq_status fill(leq_error* error, leq_status status, std::string_view setting,
                std::string_view text) {
  if (error == nullptr || error->size < offsetof(leq_error, setting)) return status;
  error->status = status;
  const auto capacity = [&](std::size_t offset, std::size_t most) {
    return error->size > offset ? std::min<std::size_t>(error->size - offset, most) : 0;
  };
  copy_text(setting, error->setting, capacity(offsetof(leq_error, setting), sizeof error->setting));
  copy_text(text, error->text, capacity(offsetof(leq_error, text), sizeof error->text));
  return status;
}

}  // namespace

void misuse(const std::string& text) { throw StatusError(LEQ_MISUSE, text); }

leq_status report(leq_error* error) {
  try {
    throw;
  } catch (const Error& known) {
    try {
      return fill(error, status_of(known), known.setting(), known.what());
    } catch (...) {
      return fill(error, LEQ_NO_MEMORY, "", "out of memory");
    }
  } catch (const std::bad_alloc&) {
    return fill(error, LEQ_NO_MEMORY, "", "out of memory");
  } catch (const std::length_error& error_of_size) {
    return fill(error, LEQ_NO_MEMORY, "", error_of_size.what());
  } catch (const std::exception& other) {
    return fill(error, LEQ_INTERNAL, "", other.what());
  } catch (...) {
    return fill(error, LEQ_INTERNAL, "", "an exception of no known type");
  }
}

void check_struct_size(std::uint32_t size, const char* name) {
  if (size >= sizeof size && size <= kMaxStructBytes) return;
  misuse(std::string(name) + ".size " + std::to_string(size) + ": set it to sizeof(" + name + ")");
}

void check_rest(const void* given, std::size_t known, std::size_t size, const char* name) {
  const auto* bytes = static_cast<const unsigned char*>(given);
  for (std::size_t i = known; i < size; ++i) {
    if (bytes[i] == 0) continue;
    misuse(std::string(name) + ": a member at byte " + std::to_string(i) +
           " is set, which this version does not know");
  }
}

char* new_text(std::string_view text) {
  auto* block = static_cast<char*>(std::malloc(text.size() + 1));
  if (block == nullptr) throw std::bad_alloc();
  if (!text.empty()) std::memcpy(block, text.data(), text.size());
  block[text.size()] = '\0';
  return block;
}

leq_token* new_tokens(std::span<const leq_token> tokens) {
  char* block = new_text({reinterpret_cast<const char*>(tokens.data()), tokens.size_bytes()});
  return reinterpret_cast<leq_token*>(block);
}

constexpr std::size_t kMaxBytes = std::size_t{1} << 40;

std::string_view text_argument(const char* text, std::size_t bytes, const char* name) {
  if (text == nullptr && bytes > 0) misuse(std::string(name) + " is NULL");
  if (bytes > kMaxBytes) misuse(std::string(name) + ": " + std::to_string(bytes) + " bytes");
  return text == nullptr ? std::string_view("") : std::string_view(text, bytes);
}

std::span<const leq_token> tokens_argument(const leq_token* tokens, std::size_t count) {
  require_use(tokens != nullptr || count == 0, "tokens is NULL");
  if (count > kMaxBytes / sizeof(leq_token)) misuse("count " + std::to_string(count));
  return {tokens, count};
}

void check_handle(const Handle* handle, HandleKind kind, const char* name) {
  if (handle == nullptr) misuse(std::string(name) + " is NULL");
  if (handle->kind == kind) return;
  misuse(std::string(name) + (handle->kind == HandleKind::closed
                                  ? " was closed"
                                  : " is a handle of another kind, or none"));
}

// Opens models from files, GGUF files and memory.

namespace {

LoadOptions load_options(const leq_open_options& options) {
  constexpr LoadMode kModes[] = {LoadMode::automatic, LoadMode::map, LoadMode::read};
  require_use(options.load >= 0 && options.load < std::ssize(kModes),
              "leq_open_options.load: expected LEQ_LOAD_AUTOMATIC, _MAP or _READ");
  LoadOptions load;
  load.mode = kModes[options.load];
  load.lock = options.lock != 0;
  return load;
}

std::shared_ptr<const OpenModel> open_gguf(const char* path, const leq_open_options& options) {
  bool stopped = false;
  ConversionEvents events;
  events.stop = [&] { return stopped; };
  events.progress = [&](std::int64_t done, std::int64_t total) {
    if (options.on_progress == nullptr) return;
    stopped = options.on_progress(options.user, "convert", done, total) != 0 || stopped;
  };
  const LoadOptions load = load_options(options);
  if (options.cache != nullptr && options.cache[0] == '\0') {
    const NamelessFile converted = convert_in_memory(path, events);
    return std::make_shared<const OpenModel>(converted.path(), load);
  }
  const auto cache =
      options.cache == nullptr ? conversion_cache() : std::filesystem::path(options.cache);
  return std::make_shared<const OpenModel>(convert_in_cache(path, cache, events).string(), load);
}

std::shared_ptr<const OpenModel> open_path(const char* path, const leq_open_options& options) {
  if (begins_as_gguf_file(path)) return open_gguf(path, options);
  return std::make_shared<const OpenModel>(path, load_options(options));
}

// Models, and functions without a session: properties, tokens, chat rendering, memory plans.

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
  const EmbeddingRules& embedding = model.embedding();
  if (embedding.pooling) info.pooling = pooling_name(*embedding.pooling).data();
  info.embedding_end = embedding.end;
  info.normalizes = embedding.normalize ? 1 : 0;
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
  return render_chat(CallStyle::chat, tree, api);
}

leq_memory_plan memory_plan(const char* path, const leq_session_options& options) {
  const Model model(path, {.mode = LoadMode::map, .weights = false});
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

uint32_t leq_abi_version(void) { return LEQ_ABI_VERSION; }

void leq_free(void* block) { std::free(block); }

const char* leq_status_name(leq_status status) {
  constexpr const char* kNames[] = {"ok",        "bad_input",   "bad_setting", "no_memory",
                                    "no_device", "io",          "interrupted", "internal",
                                    "misuse",    "context_full"};
  return status >= 0 && status < static_cast<leq_status>(std::size(kNames)) ? kNames[status]
                                                                            : "unknown";
}

leq_status leq_open(const char* path, const leq_open_options* options, leq_model** model,
                    leq_error* error) {
  if (model != nullptr) *model = nullptr;
  return guarded(error, [&] {
    require_use(path != nullptr, "path is NULL");
    require_use(model != nullptr, "model is NULL");
    *model = new leq_model(open_path(path, options_of(options, "leq_open_options")));
  });
}

leq_status leq_open_memory(const void* bytes, size_t size, const leq_open_options* options,
                           leq_model** model, leq_error* error) {
  if (model != nullptr) *model = nullptr;
  return guarded(error, [&] {
    require_use(bytes != nullptr, "bytes is NULL");
    require_use(model != nullptr, "model is NULL");
    const LoadOptions load = load_options(options_of(options, "leq_open_options"));
    const auto text = text_argument(static_cast<const char*>(bytes), size, "bytes");
    const NamelessFile copy(std::as_bytes(std::span(text)), "(memory)");
    *model = new leq_model(std::make_shared<const OpenModel>(copy.path(), load));
  });
}

void leq_close(leq_model* model) { close_handle(model); }

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
  clear(tokens, count);
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
  clear(text, bytes);
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
  clear(text, text_bytes, tokens, count);
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

void leq_cancel_free(leq_cancel* cancel) { close_handle(cancel); }

leq_status leq_grammar_from_gbnf(const char* text, size_t bytes, leq_grammar** grammar,
                                 leq_error* error) {
  if (grammar != nullptr) *grammar = nullptr;
  return guarded(error, [&] {
    require_use(grammar != nullptr, "grammar is NULL");
    *grammar = new leq_grammar(Grammar::from_gbnf(text_argument(text, bytes, "text"), "grammar"));
  });
}

leq_status leq_grammar_from_schema(const char* text, size_t bytes, int32_t strict,
                                   leq_grammar** grammar, leq_error* error) {
  if (grammar != nullptr) *grammar = nullptr;
  return guarded(error, [&] {
    require_use(grammar != nullptr, "grammar is NULL");
    SchemaNotes notes;
    *grammar = new leq_grammar(Grammar::from_json_schema(text_argument(text, bytes, "text"),
                                                         "schema", strict != 0 ? nullptr : &notes));
  });
}

void leq_grammar_free(leq_grammar* grammar) { close_handle(grammar); }

}  // extern "C"
