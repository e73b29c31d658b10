// Binds sessions: replies, requests as JSON, embeddings, logits.
#include <algorithm>

#include "calls.h"

namespace leq_python {
namespace {

struct SessionSettings {
  int threads = 0;
  std::int64_t context = 0, sequence_context = 0;
  int sequences = 0, batch_tokens = 0, logit_rows = 0;
  std::optional<std::string> key_type, value_type, device, speculate, pooling;
};

leq_session_options options_of(const SessionSettings& settings) {
  auto options = sized<leq_session_options>();
  options.threads = settings.threads;
  options.context = settings.context;
  options.sequence_context = settings.sequence_context;
  options.sequences = settings.sequences;
  options.batch_tokens = settings.batch_tokens;
  options.logit_rows = settings.logit_rows;
  options.key_type = or_null(settings.key_type);
  options.value_type = or_null(settings.value_type);
  options.device = or_null(settings.device);
  options.speculate = or_null(settings.speculate);
  options.pooling = or_null(settings.pooling);
  return options;
}

class Session : public Handle<leq_session, leq_session_close> {
 public:
  Session(const Model& model, const SessionSettings& settings) {
    const leq_session_options options = options_of(settings);
    run([&](leq_error* error) { return leq_session_new(model.get(), &options, &handle_, error); });
  }
};

nb::bytes bytes_of(const char* text, std::size_t size) { return nb::bytes(text, size); }

nb::dict dict_of(const leq_reply& reply) {
  nb::dict dict;
  nb::list tokens;
  for (std::size_t i = 0; i < reply.token_count; ++i) tokens.append(reply.tokens[i]);
  dict["text"] = bytes_of(reply.text, reply.text_bytes);
  dict["tokens"] = tokens;
  dict["stop"] = reply.stop;
  dict["stop_string"] = nb::str(reply.stop_string);
  dict["failure"] = nb::str(reply.failure);
  dict["cached_tokens"] = reply.cached_tokens;
  dict["fed_tokens"] = reply.fed_tokens;
  dict["prompt_seconds"] = reply.prompt_seconds;
  dict["reply_seconds"] = reply.reply_seconds;
  dict["seed"] = reply.seed;
  dict["receipt"] = reply.receipt == nullptr ? nb::object(nb::none()) : nb::str(reply.receipt);
  if (reply.logprobs == nullptr) return dict;
  nb::list logprobs, tops;
  for (std::size_t i = 0; i < reply.logprob_count; ++i) {
    logprobs.append(reply.logprobs[i]);
    nb::dict top;
    for (std::size_t j = 0; j < reply.top_count; ++j) {
      const std::size_t at = i * reply.top_count + j;
      if (reply.top_ids[at] >= 0) top[nb::int_(reply.top_ids[at])] = reply.top_logprobs[at];
    }
    tops.append(top);
  }
  dict["logprobs"] = logprobs;
  dict["top_logprobs"] = tops;
  return dict;
}

struct FreeReplies {
  void operator()(leq_replies* replies) const { leq_replies_free(replies); }
};

// The on_piece argument of a call: a callable of (reply, text, tokens, logprobs), or None.
struct PieceSink {
  Watcher watcher;
  nb::handle callable;

  static std::int32_t on_piece(void* user, const leq_piece* piece) {
    auto& sink = *static_cast<PieceSink*>(user);
    return sink.watcher.look([&] {
      if (piece == nullptr || sink.callable.is_none()) return false;
      nb::list tokens, logprobs;
      for (std::size_t i = 0; i < piece->token_count; ++i) {
        tokens.append(piece->tokens[i]);
        if (piece->logprobs != nullptr) logprobs.append(piece->logprobs[i]);
      }
      return nb::cast<bool>(
          sink.callable(piece->reply, bytes_of(piece->text, piece->text_bytes), tokens, logprobs));
    });
  }
};

nb::list generate(const Session& session, const std::vector<Tokens>& prompts,
                  const std::string& settings, std::int64_t max_tokens, int logprobs, bool receipt,
                  const Grammar* grammar, const Cancel* cancel, nb::object on_piece) {
  std::vector<const leq_token*> pointers;
  std::vector<std::size_t> counts;
  for (const Tokens& prompt : prompts) {
    pointers.push_back(prompt.data());
    counts.push_back(prompt.size());
  }
  PieceSink sink = {{}, on_piece};
  auto options = sized<leq_generate_options>();
  options.settings = settings.c_str();
  options.max_tokens = max_tokens;
  options.logprobs = logprobs;
  options.receipts = receipt ? 1 : 0;
  options.grammar = grammar == nullptr ? nullptr : grammar->get();
  options.cancel = cancel == nullptr ? nullptr : cancel->get();
  options.on_piece = PieceSink::on_piece;
  options.user = &sink;
  leq_replies* made = nullptr;
  std::unique_ptr<leq_replies, FreeReplies> replies;
  run_watched(sink.watcher, [&](leq_error* error) {
    const leq_status status = leq_generate(session.get(), pointers.data(), counts.data(),
                                           prompts.size(), &options, &made, error);
    replies.reset(made);
    return status;
  });
  nb::list list;
  for (std::size_t i = 0; i < leq_replies_count(made); ++i) {
    auto reply = sized<leq_reply>();
    (void)leq_replies_at(made, i, &reply, nullptr);
    list.append(dict_of(reply));
  }
  return list;
}

struct EventSink {
  Watcher watcher;
  nb::handle callable;

  static std::int32_t on_event(void* user, const char* json, std::size_t bytes) {
    auto& sink = *static_cast<EventSink*>(user);
    return sink.watcher.look([&] {
      if (json == nullptr || sink.callable.is_none()) return false;
      return nb::cast<bool>(sink.callable(bytes_of(json, bytes)));
    });
  }
};

nb::object respond(const Session& session, const std::string& form, nb::bytes request,
                   const Cancel* cancel, nb::object on_event) {
  EventSink sink = {{}, on_event};
  auto options = sized<leq_request_options>();
  options.cancel = cancel == nullptr ? nullptr : cancel->get();
  options.on_event = EventSink::on_event;
  options.user = &sink;
  char* reply = nullptr;
  const char* text = request.c_str();
  const std::size_t bytes = request.size();
  run_watched(sink.watcher, [&](leq_error* error) {
    return form == "chat" ? leq_chat_completion(session.get(), text, bytes, &options, &reply, error)
                          : leq_completion(session.get(), text, bytes, &options, &reply, error);
  });
  if (reply == nullptr) return nb::none();
  const Block<char> block(reply);
  return bytes_of(reply, std::strlen(reply));
}

using Numbers = nb::ndarray<nb::numpy, float, nb::ndim<1>>;

// `rows`: 1, or the number of tokens if each has a vector.
Numbers embed(const Session& session, const Tokens& tokens, std::size_t width, std::size_t rows) {
  auto numbers = std::make_unique<float[]>(rows * width);
  run([&](leq_error* error) {
    return leq_embed(session.get(), tokens.data(), tokens.size(), numbers.get(), width, error);
  });
  float* data = numbers.release();
  const nb::capsule owner(data, [](void* block) noexcept { delete[] static_cast<float*>(block); });
  return Numbers(data, {rows * width}, owner);
}

using Logits = nb::ndarray<nb::numpy, const float, nb::ndim<2>>;

// The array references the memory block that the library filled, without a copy.
nb::object logits_of(leq_logits* made) {
  const nb::capsule owner(
      made, [](void* block) noexcept { leq_logits_free(static_cast<leq_logits*>(block)); });
  return nb::cast(
      Logits(leq_logits_data(made), {leq_logits_rows(made), leq_logits_columns(made)}, owner));
}

nb::object feed(const Session& session, const Tokens& tokens, int which) {
  leq_logits* made = nullptr;
  run([&](leq_error* error) {
    return leq_feed(session.get(), tokens.data(), tokens.size(), which, &made, error);
  });
  return made == nullptr ? nb::none() : logits_of(made);
}

nb::ndarray<nb::numpy, float> array_of(std::unique_ptr<float[]> numbers,
                                       std::initializer_list<std::size_t> shape) {
  float* data = numbers.release();
  const nb::capsule owner(data, [](void* block) noexcept { delete[] static_cast<float*>(block); });
  return {data, shape, owner};
}

nb::object embed_tokens(const Session& session, const Tokens& tokens, std::size_t width) {
  auto hidden = std::make_unique<float[]>(tokens.size() * width);
  run([&](leq_error* error) {
    return leq_embed_tokens(session.get(), tokens.data(), tokens.size(), hidden.get(), width,
                            error);
  });
  return nb::cast(array_of(std::move(hidden), {tokens.size(), width}));
}

using Hidden = nb::ndarray<float, nb::ndim<2>, nb::c_contig, nb::device::cpu>;

// The inputs of a layer's sites, in the order in which they are read.
struct SiteInputs {
  struct Input {
    std::string site;
    std::unique_ptr<float[]> rows;
    std::size_t count, width;
  };
  std::vector<Input> inputs;

  static void on_input(void* user, const char* site, const float* rows, std::size_t count,
                       std::size_t width) {
    auto copy = std::make_unique<float[]>(count * width);
    std::copy_n(rows, count * width, copy.get());
    static_cast<SiteInputs*>(user)->inputs.push_back({site, std::move(copy), count, width});
  }
};

// Runs a layer in place; a list of (site, rows) if `wants_inputs`, otherwise an empty one.
nb::list run_layer(const Session& session, std::int64_t layer, Hidden hidden, bool wants_inputs) {
  SiteInputs seen;
  float* numbers = hidden.data();
  const std::size_t count = hidden.shape(0), width = hidden.shape(1);
  run([&](leq_error* error) {
    return leq_run_layer(session.get(), layer, numbers, count, width,
                         wants_inputs ? SiteInputs::on_input : nullptr, &seen, error);
  });
  nb::list list;
  for (SiteInputs::Input& input : seen.inputs) {
    list.append(nb::make_tuple(
        input.site, nb::cast(array_of(std::move(input.rows), {input.count, input.width}))));
  }
  return list;
}

nb::object run_head(const Session& session, Hidden hidden) {
  leq_logits* made = nullptr;
  const float* numbers = hidden.data();
  const std::size_t count = hidden.shape(0), width = hidden.shape(1);
  run([&](leq_error* error) {
    return leq_run_head(session.get(), numbers, count, width, &made, error);
  });
  return logits_of(made);
}

std::size_t rewind(const Session& session, std::size_t position) {
  std::size_t left = 0;
  run([&](leq_error* error) { return leq_rewind(session.get(), position, &left, error); });
  return left;
}

std::size_t save_state(const Session& session, const Tokens& tokens, nb::bytes path) {
  std::size_t kept = 0;
  run([&](leq_error* error) {
    return leq_save_state(session.get(), tokens.data(), tokens.size(), path.c_str(), &kept, error);
  });
  return kept;
}

std::size_t load_state(const Session& session, nb::bytes path) {
  std::size_t kept = 0;
  run([&](leq_error* error) { return leq_load_state(session.get(), path.c_str(), &kept, error); });
  return kept;
}

nb::dict check_receipt(const Session& session, nb::bytes receipt) {
  auto found = sized<leq_receipt_check>();
  run([&](leq_error* error) {
    return leq_check_receipt(session.get(), receipt.c_str(), receipt.size(), &found, error);
  });
  nb::dict result;
  result["same"] = found.same != 0;
  result["place"] = found.place;
  result["logits"] = found.logits != 0;
  result["found"] = found.found;
  result["expected"] = found.expected;
  return result;
}

nb::dict plan_memory(nb::bytes path, const SessionSettings& settings) {
  const leq_session_options options = options_of(settings);
  auto found = sized<leq_memory_plan>();
  run([&](leq_error* error) { return leq_plan_memory(path.c_str(), &options, &found, error); });
  nb::dict plan;
  plan["context"] = found.context;
  plan["weight_bytes"] = found.weight_bytes;
  plan["kv_bytes"] = found.kv_bytes;
  plan["scratch_bytes"] = found.scratch_bytes;
  plan["total_bytes"] = found.total_bytes;
  plan["available_bytes"] = found.available_bytes;
  return plan;
}

}  // namespace

void bind_session(nb::module_& module) {
  nb::class_<SessionSettings>(module, "SessionSettings")
      .def(nb::init<>())
      .def_rw("threads", &SessionSettings::threads)
      .def_rw("context", &SessionSettings::context)
      .def_rw("sequence_context", &SessionSettings::sequence_context)
      .def_rw("sequences", &SessionSettings::sequences)
      .def_rw("batch_tokens", &SessionSettings::batch_tokens)
      .def_rw("logit_rows", &SessionSettings::logit_rows)
      .def_rw("speculate", &SessionSettings::speculate, nb::arg().none())
      .def_rw("pooling", &SessionSettings::pooling, nb::arg().none())
      .def_rw("key_type", &SessionSettings::key_type, nb::arg().none())
      .def_rw("value_type", &SessionSettings::value_type, nb::arg().none())
      .def_rw("device", &SessionSettings::device, nb::arg().none());
  nb::class_<Session>(module, "Session")
      .def(nb::init<const Model&, const SessionSettings&>(), nb::arg("model"), nb::arg("settings"))
      .def("generate", &generate, nb::arg("prompts"), nb::arg("settings"), nb::arg("max_tokens"),
           nb::arg("logprobs") = 0, nb::arg("receipt") = false,
           nb::arg("grammar").none() = nb::none(), nb::arg("cancel").none() = nb::none(),
           nb::arg("on_piece").none() = nb::none())
      .def("respond", &respond, nb::arg("form"), nb::arg("request"),
           nb::arg("cancel").none() = nb::none(), nb::arg("on_event").none() = nb::none())
      .def("embed", &embed, nb::arg("tokens"), nb::arg("width"), nb::arg("rows"))
      .def("feed", &feed, nb::arg("tokens"), nb::arg("which"))
      .def("embed_tokens", &embed_tokens, nb::arg("tokens"), nb::arg("width"))
      .def("run_layer", &run_layer, nb::arg("layer"), nb::arg("hidden").noconvert(),
           nb::arg("wants_inputs"))
      .def("run_head", &run_head, nb::arg("hidden").noconvert())
      .def("position", [](const Session& session) { return leq_position(session.get()); })
      .def("rewind", &rewind, nb::arg("position"))
      .def("save_state", &save_state, nb::arg("tokens"), nb::arg("path"))
      .def("load_state", &load_state, nb::arg("path"))
      .def("check_receipt", &check_receipt, nb::arg("receipt"));
  module.def("plan_memory", &plan_memory, nb::arg("path"), nb::arg("settings"));
}

}  // namespace leq_python
