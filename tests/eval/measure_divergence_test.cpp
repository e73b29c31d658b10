// Measures KL of trained models: with a base file, with both models at once, by weight type.
#include "eval/divergence.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "convert/gguf_models.h"
#include "convert/hf_import.h"
#include "convert/import.h"
#include "eval/report.h"
#include "models_fixture.h"
#include "runtime/make_backend.h"
#include "shared_data.h"
#include "temporary_folder.h"

namespace leq {
namespace {

// Runs one model on a few windows of the storyteller's held-out text.
class Runner {
 public:
  Runner(const std::filesystem::path& folder, const std::string& type, KvType kv,
         const std::filesystem::path& text_of = {}, std::int64_t output_tokens = kOutputRows)
      : model_(test::quantized(folder, type), {}),
        backend_(make_backend({.device = "cpu", .threads = 2})) {
    ProtocolRequest request;
    request.join = "none";
    request.window = 128;
    request.chunks = 4;
    report_.settings = resolve_protocol(request, model_.config().context);
    const EvaluationText text =
        read_evaluation_text((text_of.empty() ? folder : text_of) / "heldout.txt", Join::none);
    tokens_ = encode_text(model_.tokenizer(), text.text);
    windows_ = plan_windows(report_.settings, std::ssize(tokens_));
    report_.tokens = std::ssize(tokens_);
    report_.windows = std::ssize(windows_);
    for (const Window& window : windows_) report_.scored += window.scored();
    report_.vocab = model_.config().vocab;
    report_.text_sha256 = text.text_sha256;
    RunLimits limits;
    limits.context = 128;
    limits.output_tokens = output_tokens;
    limits.key_type = limits.value_type = kv;
    session_ =
        std::make_unique<Session>(model_, *backend_, resolve_limits(limits, model_.config()));
  }

  Session& session() { return *session_; }
  PerplexityRun run() const { return {.tokens = tokens_, .windows = windows_}; }
  DivergenceKey key() const { return divergence_key(report_, token_hash(tokens_, kNoToken)); }

 private:
  Model model_;
  std::unique_ptr<Backend> backend_;
  PerplexityReport report_;
  std::vector<Token> tokens_;
  std::vector<Window> windows_;
  std::unique_ptr<Session> session_;
};

TEST(MeasureDivergence, FileAndSideBySideAgreeAndOrderTypes) {
  LEQ_SHARED_OR_SKIP(folder, "models/storyteller");
  LEQ_SHARED_OR_SKIP(text, "models/storyteller/heldout.txt");
  const test::TemporaryFolder temporary;
  const auto path = temporary.path() / "base.kl";
  ThreadPool pool(2);
  Runner f32(folder, "f32", KvType::f32);
  const WrittenBase written =
      write_divergence_base(f32.session(), pool, f32.run(), path, f32.key());
  EXPECT_EQ(written.result.ppl, measure_perplexity(f32.session(), pool, f32.run()).ppl);
  EXPECT_EQ(written.file_bytes, std::filesystem::file_size(path));
  const DivergenceBaseReader base(path);

  const auto through_file = [&](Runner& runner) {
    return measure_divergence(runner.session(), pool, runner.run(), base, runner.key())
        .summarize(Protocol::hf);
  };
  const DivergenceResult self = through_file(f32);
  EXPECT_LE(self.kl_mean.value, 1e-6);
  EXPECT_LE(self.kl_p999.value, 1e-6);
  EXPECT_EQ(self.same_top1.value, 1.0);
  EXPECT_EQ(self.ppl.value, written.result.ppl);
  EXPECT_EQ(self.ppl_base.value, written.result.ppl);

  double before = 1e-5;
  for (const std::string type : {"int8", "int4-g128"}) {
    Runner other(folder, type, KvType::f32);
    const Divergence beside = measure_divergence(f32.session(), other.session(), pool, f32.run());
    const DivergenceResult exact = beside.summarize(Protocol::hf);
    const DivergenceResult found = through_file(other);
    EXPECT_NEAR(found.kl_mean.value, exact.kl_mean.value, 1e-6) << type;  // documented bound: 1e-5
    EXPECT_EQ(found.ppl.value, exact.ppl.value);
    EXPECT_EQ(found.same_top1.value, exact.same_top1.value);
    EXPECT_EQ(beside.window_kl().size(), 4u);
    EXPECT_GT(exact.kl_mean.value, 10 * before) << type;
    EXPECT_LT(exact.same_top1.value, 1.0);
    before = exact.kl_mean.value;
  }
  EXPECT_LT(before, 0.1);

  // Here only the KV cache is quantized.
  Runner cache(folder, "f32", KvType::int8);
  const DivergenceResult kv = through_file(cache);
  EXPECT_GT(kv.kl_mean.value, 1e-7);
  EXPECT_LT(kv.kl_mean.value, 1e-3);
}

TEST(MeasurePerplexity, MayEndBeforeAnyForwardPass) {
  LEQ_SHARED_OR_SKIP(folder, "models/storyteller");
  LEQ_SHARED_OR_SKIP(text, "models/storyteller/heldout.txt");
  ThreadPool pool(2);
  Runner runner(folder, "f32", KvType::f32, {}, /*output_tokens=*/50);
  PerplexityRun run = runner.run();
  int passes = 0, windows = 0;
  run.before_forward = [&] { ++passes; };
  run.progress = [&](std::int64_t, double) { ++windows; };
  measure_perplexity(runner.session(), pool, run);
  EXPECT_EQ(windows, 4);
  EXPECT_EQ(passes, 4 * 3);  // 127 rows, 50 at once
  passes = windows = 0;
  run.before_forward = [&] { require(++passes < 5, ErrorKind::interrupted, "enough"); };
  EXPECT_THROW(measure_perplexity(runner.session(), pool, run), Error);
  EXPECT_EQ(passes, 5);
  EXPECT_EQ(windows, 1);
}

// A file on its own, fed another's tokens.
class OpenFile {
 public:
  explicit OpenFile(const std::filesystem::path& path)
      : model_(path, {}), backend_(make_backend({.device = "cpu", .threads = 2})) {
    RunLimits limits;
    limits.context = 128;
    limits.output_tokens = kOutputRows;
    limits.key_type = limits.value_type = KvType::f32;
    session_ =
        std::make_unique<Session>(model_, *backend_, resolve_limits(limits, model_.config()));
  }
  Session& session() { return *session_; }

 private:
  Model model_;
  std::unique_ptr<Backend> backend_;
  std::unique_ptr<Session> session_;
};

// A trained model as a Q8_0 GGUF file. Inputs in groups of 32 columns, the default, add a few times
// the loss of the codes (inputs have heavier tails than weights); groups of 128 columns add more.
TEST(MeasureDivergence, OfKeptQ8CodesIsThatOfTheFile) {
  LEQ_SHARED_OR_SKIP(folder, "models/storyteller");
  const test::TemporaryFolder temporary;
  ThreadPool pool(2);
  Runner f32(folder, "f32", KvType::f32);
  test::GgufWriter writer;
  const ImportedModel trained = import_hf(folder);
  test::add_config(writer, trained.config, "llama");
  test::add_letters(writer);
  test::add_tensors(writer, trained, true, test::WriteAs::q8_0);
  const ImportedModel gguf = import_checkpoint(temporary.write("q8_0.gguf", writer.bytes()));
  const auto kl_with = [&](ActChoice act) {
    QuantizeOptions options;
    options.threads = 2;
    options.act = act;
    keep_types(gguf, options);
    const auto path = temporary / (std::string(act_choice_name(act)) + ".leq");
    quantize_imported(gguf, path, options);
    OpenFile file(path);
    return measure_divergence(f32.session(), file.session(), pool, f32.run())
        .summarize(Protocol::hf)
        .kl_mean.value;
  };
  const double codes = kl_with(ActChoice::none), kept = kl_with(ActChoice::automatic),
               coarse = kl_with(ActChoice::g128);
  EXPECT_GT(codes, 0);
  EXPECT_LT(kept, 4 * codes);
  EXPECT_GT(coarse, 1.5 * kept);
}

// Hybrids and models with experts are measured like other models.
TEST(MeasureDivergence, OfHybridsAndExpertsThroughTheFile) {
  LEQ_SHARED_OR_SKIP(text, "models/storyteller");
  const test::TemporaryFolder temporary;
  ThreadPool pool(2);
  for (const std::string name : {"qwen35-tiny", "qwen3moe-tiny"}) {
    SCOPED_TRACE(name);
    LEQ_SHARED_OR_SKIP(folder, "models/" + name);
    const auto path = temporary.path() / name;
    Runner f32(folder, "f32", KvType::f32, text);
    write_divergence_base(f32.session(), pool, f32.run(), path, f32.key());
    const DivergenceBaseReader base(path);
    double before = 1e-6;
    for (const std::string type : {"f32", "int8", "int4-g64"}) {
      Runner other(folder, type, KvType::f32, text);
      const DivergenceResult exact =
          measure_divergence(f32.session(), other.session(), pool, f32.run())
              .summarize(Protocol::hf);
      const DivergenceResult found =
          measure_divergence(other.session(), pool, other.run(), base, other.key())
              .summarize(Protocol::hf);
      EXPECT_NEAR(found.kl_mean.value, exact.kl_mean.value, 1e-6) << type;
      EXPECT_EQ(found.ppl.value, exact.ppl.value);
      if (type == "f32") {
        EXPECT_EQ(exact.kl_mean.value, 0);
      } else {
        EXPECT_GT(exact.kl_mean.value, 5 * before) << type;
        before = exact.kl_mean.value;
      }
    }
    EXPECT_LT(before, 0.1);
  }
}

// Keys of this model have biases that are far larger than the rest of the key. Four-bit codes with
// one scale per token would have to span the biases, with a KL above 0.1 (docs/kv-cache.md).
TEST(MeasureDivergence, LargeKeyBiasesSpoilNoType) {
  LEQ_SHARED_OR_SKIP(biased, "models/qwen2-tiny-kbias");
  LEQ_SHARED_OR_SKIP(text, "models/storyteller");
  const test::TemporaryFolder temporary;
  const auto path = temporary.path() / "base.kl";
  ThreadPool pool(2);
  Runner exact(biased, "f32", KvType::f32, text);
  write_divergence_base(exact.session(), pool, exact.run(), path, exact.key());
  const DivergenceBaseReader base(path);
  const auto kl = [&](KvType kv) {
    Runner runner(biased, "f32", kv, text);
    return measure_divergence(runner.session(), pool, runner.run(), base, runner.key())
        .summarize(Protocol::hf)
        .kl_mean.value;
  };
  for (const KvType type : {KvType::int4, KvType::int8, KvType::simq4}) {
    EXPECT_LT(kl(type), 0.01) << kv_type_name(type);
  }
}

}  // namespace
}  // namespace leq
