// Binds measuring and quantizing.
#include "calls.h"

namespace leq_python {
namespace {

struct MeasureSettings {
  int threads = 0;
  std::optional<std::string> protocol, join, key_type, value_type, device;
  std::int64_t window = 0, stride = 0, chunks = 0;
};

leq_perplexity_options options_of(const MeasureSettings& settings, ProgressSink& sink) {
  auto options = sized<leq_perplexity_options>();
  options.threads = settings.threads;
  options.protocol = or_null(settings.protocol);
  options.join = or_null(settings.join);
  options.key_type = or_null(settings.key_type);
  options.value_type = or_null(settings.value_type);
  options.device = or_null(settings.device);
  options.window = settings.window;
  options.stride = settings.stride;
  options.chunks = settings.chunks;
  options.on_progress = ProgressSink::on_progress;
  options.user = &sink;
  return options;
}

nb::dict perplexity(const Model& model, nb::bytes text, const MeasureSettings& settings,
                    nb::object progress) {
  ProgressSink sink = {{}, progress, nb::none()};
  const leq_perplexity_options options = options_of(settings, sink);
  auto found = sized<leq_perplexity_result>();
  run_watched(sink.watcher, [&](leq_error* error) {
    return leq_perplexity(model.get(), text.c_str(), text.size(), &options, &found, error);
  });
  nb::dict result;
  result["ppl"] = found.ppl;
  result["nll"] = found.nll;
  result["stderr"] = found.standard_error;
  result["windows"] = found.windows;
  result["scored"] = found.scored;
  result["tokens"] = found.tokens;
  return result;
}

nb::dict divergence(const Model& base, const Model& model, nb::bytes text,
                    const MeasureSettings& settings, nb::object progress) {
  ProgressSink sink = {{}, progress, nb::none()};
  const leq_perplexity_options options = options_of(settings, sink);
  auto found = sized<leq_divergence_result>();
  run_watched(sink.watcher, [&](leq_error* error) {
    return leq_divergence(base.get(), model.get(), text.c_str(), text.size(), &options, &found,
                          error);
  });
  nb::dict result;
  result["kl_mean"] = found.kl_mean;
  result["kl_mean_stderr"] = found.kl_mean_error;
  result["kl_median"] = found.kl_median;
  result["kl_p99"] = found.kl_p99;
  result["same_top1"] = found.same_top1;
  result["same_top1_stderr"] = found.same_top1_error;
  result["ppl"] = found.ppl;
  result["ppl_base"] = found.ppl_base;
  result["windows"] = found.windows;
  result["scored"] = found.scored;
  return result;
}

struct QuantizeSettings {
  int threads = 0;
  std::optional<std::string> recipe, method, type;
  std::optional<std::string> calibration, act;
  int search_evaluations = 0, search_windows = 0;
  std::int64_t samples = 0, length = 0, seed = 0;
  double target_bpw = 0;
  bool judge = false, restart = false;
};

nb::dict quantize(nb::bytes checkpoint, nb::bytes output, const QuantizeSettings& settings,
                  nb::object progress, nb::object say) {
  ProgressSink sink = {{}, progress, say};
  auto options = sized<leq_quantize_options>();
  options.threads = settings.threads;
  options.recipe = or_null(settings.recipe);
  options.method = or_null(settings.method);
  options.type = or_null(settings.type);
  options.calibration = or_null(settings.calibration);
  options.calibration_bytes = settings.calibration ? settings.calibration->size() : 0;
  options.samples = settings.samples;
  options.length = settings.length;
  options.seed = settings.seed;
  options.judge = settings.judge ? 1 : 0;
  options.restart = settings.restart ? 1 : 0;
  options.target_bpw = settings.target_bpw;
  options.act = or_null(settings.act);
  options.search_evaluations = settings.search_evaluations;
  options.search_windows = settings.search_windows;
  options.on_progress = ProgressSink::on_progress;
  options.on_line = ProgressSink::on_line;
  options.user = &sink;
  auto found = sized<leq_quantize_result>();
  run_watched(sink.watcher, [&](leq_error* error) {
    return leq_quantize(checkpoint.c_str(), output.c_str(), &options, &found, error);
  });
  nb::dict result;
  result["file_bytes"] = found.file_bytes;
  result["parameters"] = found.parameters;
  result["bits_per_weight"] = found.bits_per_weight;
  result["worst_error"] = found.worst_error;
  result["kl"] = found.judged != 0 ? nb::cast(found.kl) : nb::none();
  return result;
}

}  // namespace

void bind_work(nb::module_& module) {
  nb::class_<MeasureSettings>(module, "MeasureSettings")
      .def(nb::init<>())
      .def_rw("threads", &MeasureSettings::threads)
      .def_rw("protocol", &MeasureSettings::protocol, nb::arg().none())
      .def_rw("join", &MeasureSettings::join, nb::arg().none())
      .def_rw("key_type", &MeasureSettings::key_type, nb::arg().none())
      .def_rw("value_type", &MeasureSettings::value_type, nb::arg().none())
      .def_rw("device", &MeasureSettings::device, nb::arg().none())
      .def_rw("window", &MeasureSettings::window)
      .def_rw("stride", &MeasureSettings::stride)
      .def_rw("chunks", &MeasureSettings::chunks);
  nb::class_<QuantizeSettings>(module, "QuantizeSettings")
      .def(nb::init<>())
      .def_rw("threads", &QuantizeSettings::threads)
      .def_rw("recipe", &QuantizeSettings::recipe, nb::arg().none())
      .def_rw("method", &QuantizeSettings::method, nb::arg().none())
      .def_rw("type", &QuantizeSettings::type, nb::arg().none())
      .def_rw("calibration", &QuantizeSettings::calibration, nb::arg().none())
      .def_rw("act", &QuantizeSettings::act, nb::arg().none())
      .def_rw("search_evaluations", &QuantizeSettings::search_evaluations)
      .def_rw("search_windows", &QuantizeSettings::search_windows)
      .def_rw("samples", &QuantizeSettings::samples)
      .def_rw("length", &QuantizeSettings::length)
      .def_rw("seed", &QuantizeSettings::seed)
      .def_rw("target_bpw", &QuantizeSettings::target_bpw)
      .def_rw("judge", &QuantizeSettings::judge)
      .def_rw("restart", &QuantizeSettings::restart);
  module.def("perplexity", &perplexity, nb::arg("model"), nb::arg("text"), nb::arg("settings"),
             nb::arg("progress").none() = nb::none());
  module.def("divergence", &divergence, nb::arg("base"), nb::arg("model"), nb::arg("text"),
             nb::arg("settings"), nb::arg("progress").none() = nb::none());
  module.def("quantize", &quantize, nb::arg("checkpoint"), nb::arg("output"), nb::arg("settings"),
             nb::arg("progress").none() = nb::none(), nb::arg("say").none() = nb::none());
}

}  // namespace leq_python
