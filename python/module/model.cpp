// Binds models: properties, tokens, conversations as text.
#include "calls.h"

namespace leq_python {
namespace {

nb::list list_of(const leq_token* tokens, std::size_t count) {
  nb::list list;
  for (std::size_t i = 0; i < count; ++i) list.append(tokens[i]);
  return list;
}

nb::dict info(const Model& model) {
  auto found = sized<leq_model_info>();
  run([&](leq_error* error) { return leq_model_get_info(model.get(), &found, error); });
  nb::dict info;
  info["layers"] = found.layers;
  info["context"] = found.context;
  info["vocab"] = found.vocab;
  info["width"] = found.width;
  info["parameters"] = found.parameters;
  info["file_bytes"] = found.file_bytes;
  info["bits_per_weight"] = found.bits_per_weight;
  info["bos"] = found.bos;
  info["eos"] = found.eos;
  info["has_tokenizer"] = found.has_tokenizer != 0;
  info["adds_bos"] = found.adds_bos != 0;
  info["has_chat_template"] = found.has_chat_template != 0;
  info["pooling"] = found.pooling == nullptr ? nb::object(nb::none()) : nb::str(found.pooling);
  info["embedding_end"] = found.embedding_end;
  info["normalizes"] = found.normalizes != 0;
  return info;
}

nb::str inspect(const Model& model) {
  char* json = nullptr;
  run([&](leq_error* error) { return leq_inspect(model.get(), &json, error); });
  const Block<char> block(json);
  return nb::str(json);
}

nb::list tokenize(const Model& model, nb::bytes text, std::uint32_t flags) {
  leq_token* tokens = nullptr;
  std::size_t count = 0;
  run([&](leq_error* error) {
    return leq_tokenize(model.get(), text.c_str(), text.size(), flags, &tokens, &count, error);
  });
  const Block<leq_token> block(tokens);
  return list_of(tokens, count);
}

nb::bytes detokenize(const Model& model, const Tokens& tokens, bool with_special) {
  char* text = nullptr;
  std::size_t bytes = 0;
  run([&](leq_error* error) {
    return leq_detokenize(model.get(), tokens.data(), tokens.size(), with_special, &text, &bytes,
                          error);
  });
  const Block<char> block(text);
  return nb::bytes(text, bytes);
}

nb::tuple apply_chat_template(const Model& model, nb::bytes request) {
  char* text = nullptr;
  leq_token* tokens = nullptr;
  std::size_t bytes = 0, count = 0;
  run([&](leq_error* error) {
    return leq_apply_chat_template(model.get(), request.c_str(), request.size(), &text, &bytes,
                                   &tokens, &count, error);
  });
  const Block<char> text_block(text);
  const Block<leq_token> token_block(tokens);
  return nb::make_tuple(nb::bytes(text, bytes), list_of(tokens, count));
}

nb::str describe(const Model& model, const std::optional<std::string>& model_type,
                 std::int64_t context) {
  char* json = nullptr;
  run([&](leq_error* error) {
    return leq_describe(model.get(), or_null(model_type), context, &json, error);
  });
  const Block<char> block(json);
  return nb::str(json);
}

template <class T>
using Numbers = nb::ndarray<T, nb::c_contig, nb::device::cpu>;

void tensor_floats(const Model& model, const std::string& name, Numbers<float> out) {
  run([&](leq_error* error) {
    return leq_tensor_floats(model.get(), name.c_str(), out.data(), out.size(), error);
  });
}

void tensor_codes(const Model& model, const std::string& name, Numbers<std::uint8_t> codes,
                  Numbers<float> scales, std::optional<Numbers<std::uint8_t>> zeros) {
  if (zeros && zeros->size() != scales.size()) {
    throw Failed{LEQ_MISUSE, "zeros: expected as many as scales", ""};
  }
  run([&](leq_error* error) {
    return leq_tensor_codes(model.get(), name.c_str(), codes.data(), codes.size(), scales.data(),
                            zeros ? zeros->data() : nullptr, scales.size(), error);
  });
}

// A read-only array over the file's memory, which keeps the model open.
nb::object table(nb::handle self, const std::string& name) {
  const auto& model = nb::cast<const Model&>(self);
  const void* bytes = nullptr;
  std::size_t size = 0;
  run([&](leq_error* error) { return leq_table(model.get(), name.c_str(), &bytes, &size, error); });
  return nb::cast(nb::ndarray<nb::numpy, const std::uint8_t, nb::ndim<1>>(bytes, {size}, self));
}

using Row = nb::ndarray<const float, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

leq_token sample(const Model& model, const Row& row, const Tokens& context, std::uint32_t index,
                 const std::string& settings) {
  leq_token token = -1;
  run([&](leq_error* error) {
    return leq_sample(model.get(), row.data(), row.size(), context.data(), context.size(), index,
                      settings.c_str(), &token, error);
  });
  return token;
}

}  // namespace

Model::Model(nb::bytes path, nb::object bytes, int load, bool lock, std::optional<nb::bytes> cache,
             nb::object progress) {
  ProgressSink sink = {{}, progress, nb::none()};
  auto options = sized<leq_open_options>();
  options.load = load;
  options.lock = lock ? 1 : 0;
  options.cache = cache ? cache->c_str() : nullptr;
  options.on_progress = ProgressSink::on_progress;
  options.user = &sink;
  if (bytes.is_none()) {
    const char* name = path.c_str();
    run_watched(sink.watcher,
                [&](leq_error* error) { return leq_open(name, &options, &handle_, error); });
    return;
  }
  const auto held = nb::cast<nb::bytes>(bytes);
  run([&](leq_error* error) {
    return leq_open_memory(held.c_str(), held.size(), &options, &handle_, error);
  });
}

Grammar::Grammar(nb::bytes text, const std::string& kind, bool strict) {
  run([&](leq_error* error) {
    return kind == "gbnf"
               ? leq_grammar_from_gbnf(text.c_str(), text.size(), &handle_, error)
               : leq_grammar_from_schema(text.c_str(), text.size(), strict, &handle_, error);
  });
}

void bind_model(nb::module_& module) {
  nb::class_<Cancel>(module, "Cancel")
      .def(nb::init<>())
      .def("request", [](const Cancel& cancel) { leq_cancel_request(cancel.get()); })
      .def("reset", [](const Cancel& cancel) { leq_cancel_reset(cancel.get()); });
  nb::class_<Grammar>(module, "Grammar")
      .def(nb::init<nb::bytes, const std::string&, bool>(), nb::arg("text"), nb::arg("kind"),
           nb::arg("strict") = false);
  nb::class_<Model>(module, "Model")
      .def(nb::init<nb::bytes, nb::object, int, bool, std::optional<nb::bytes>, nb::object>(),
           nb::arg("path"), nb::arg("bytes").none() = nb::none(), nb::arg("load") = 0,
           nb::arg("lock") = false, nb::arg("cache").none() = nb::none(),
           nb::arg("progress").none() = nb::none())
      .def("info", &info)
      .def("inspect", &inspect)
      .def("verify",
           [](const Model& model) {
             run([&](leq_error* error) { return leq_verify(model.get(), error); });
           })
      .def("describe", &describe, nb::arg("model_type").none() = nb::none(), nb::arg("context") = 0)
      .def("tensor_floats", &tensor_floats, nb::arg("name"), nb::arg("out"))
      .def("tensor_codes", &tensor_codes, nb::arg("name"), nb::arg("codes"), nb::arg("scales"),
           nb::arg("zeros").none() = nb::none())
      .def("table", &table, nb::arg("name"))
      .def("tokenize", &tokenize, nb::arg("text"), nb::arg("flags") = 0)
      .def("detokenize", &detokenize, nb::arg("tokens"), nb::arg("with_special") = false)
      .def("apply_chat_template", &apply_chat_template, nb::arg("request"))
      .def("sample", &sample, nb::arg("row"), nb::arg("context"), nb::arg("index"),
           nb::arg("settings"));
}

}  // namespace leq_python
