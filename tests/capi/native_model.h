// Generates a reply with the library's C++ classes, for comparison with the C API.
#pragma once

#include "capi/owned_handles.h"
#include "engine/generator.h"
#include "runtime/make_backend.h"
#include "sampling/settings.h"

namespace leq::test {

inline constexpr std::string_view kPrompt = "Once upon a time";

// Generates a reply like leq-run.
class Native {
 public:
  explicit Native(RunLimits limits = {.context = 1024, .output_tokens = 17})
      : model_(story_path(), {}),
        backend_(make_backend({.device = "cpu", .threads = 1})),
        session_(model_, *backend_, resolve_limits(limits, model_.config())) {}

  const Model& model() const { return model_; }
  Session& session() { return session_; }
  std::vector<Token> encode(std::string_view text) const {
    return model_.tokenizer().encode(text, {.add_bos = model_.tokenizer().add_bos()});
  }
  FinishedReply reply(std::string_view prompt, std::uint64_t seed, std::int64_t most) {
    SamplingSettings sampling = choose_sampling({}, model_.generation().sampling).settings;
    sampling.seed = seed;
    Generator generator(session_, model_.tokenizer(), {.sampling = sampling});
    const auto tokens = encode(prompt);
    EngineRequest request{.prompt = tokens};
    request.stop.end_tokens = model_.end_tokens();
    request.stop.max_tokens = most;
    return generator.generate(request);
  }

 private:
  Model model_;
  std::unique_ptr<Backend> backend_;
  Session session_;
};

inline leq_generate_options seeded(const char* settings, std::int64_t most) {
  auto options = sized<leq_generate_options>();
  options.settings = settings;
  options.max_tokens = most;
  return options;
}

}  // namespace leq::test
