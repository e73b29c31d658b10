// Prints a markdown table of all types on the trained models: largest logit error, perplexity (also
// the golden one), greedy text. Usage: golden_table MODELS_FOLDER WIKI.TEST.RAW WORK_FOLDER
#include <algorithm>
#include <cmath>
#include <exception>
#include <filesystem>
#include <iostream>

#include "base/file.h"
#include "base/json.h"
#include "base/table.h"
#include "base/text.h"
#include "quantize/run/quantize.h"
#include "eval/perplexity.h"
#include "format/tensor_source.h"
#include "runtime/make_backend.h"

namespace leq {
namespace {

namespace fs = std::filesystem;

struct Variant {
  const char* type;
  KvType kv;
};

struct Engine {
  Engine(const fs::path& file, KvType kv) : model(file, {}), backend(make_backend({"cpu", 0})) {
    RunLimits limits;
    limits.context = std::min<std::int64_t>(model.config().context, 1024);
    limits.output_tokens = kOutputRows;
    limits.key_type = limits.value_type = kv;
    session.emplace(model, *backend, resolve_limits(limits, model.config()));
  }
  Model model;
  std::unique_ptr<Backend> backend;
  std::optional<Session> session;
};

double largest_logit_error(Engine& engine, const Json& prompt, const TensorSource& goldens) {
  const auto ids = prompt.at("ids").get<std::vector<Token>>();
  const auto vocab = static_cast<std::size_t>(engine.model.config().vocab);
  const auto count = std::ssize(ids);
  if (count > kOutputRows) return 0;
  engine.session->cache().clear(0);
  Batch batch;
  batch.add(0, ids.data(), count, Batch::Want::all);
  std::vector<float> got(ids.size() * vocab), want(vocab);
  engine.backend->download(engine.session->transformer().forward(batch, engine.session->cache()),
                           count, got);
  const SourceTensor& tensor = *goldens.find(prompt.at("logits").get<std::string>());
  double worst = 0;
  const auto& rows = prompt.at("rows");
  for (std::size_t r = 0; r < rows.size(); ++r) {
    read_floats(tensor, static_cast<std::int64_t>(r * vocab), want);
    const float* have = got.data() + rows[r].get<std::size_t>() * vocab;
    for (std::size_t v = 0; v < vocab; ++v) {
      worst = std::max(worst, std::abs(static_cast<double>(have[v]) - want[v]));
    }
  }
  return worst;
}

// Returns how many greedy tokens equal the golden's: "all", or the index of the first difference.
std::string greedy(Engine& engine, const Json& prompt) {
  const auto want = prompt.at("greedy_ids").get<std::vector<Token>>();
  engine.session->cache().clear(0);
  auto next = prompt.at("ids").get<std::vector<Token>>();
  for (std::size_t i = 0; i < want.size(); ++i) {
    const auto found = engine.session->feed(0, next);
    std::vector<float> logits(found.begin(), found.end());
    for (const Token end : engine.model.generation().end_tokens) {
      logits[static_cast<std::size_t>(end)] = -INFINITY;
    }
    const auto best = std::max_element(logits.begin(), logits.end()) - logits.begin();
    if (best != want[i]) {
      const bool sure = i < prompt.at("greedy_sure_tokens").get<std::size_t>();
      return std::to_string(i) + (sure ? "" : " (unsure)");
    }
    next = {static_cast<Token>(best)};
  }
  return "all";
}

// Computes hf-stride over the first 40 windows, as the golden files do.
double stride_perplexity(Engine& engine, const std::string& text) {
  ProtocolRequest request;
  request.protocol = "hf-stride";
  request.chunks = 40;
  const ProtocolSettings settings = resolve_protocol(request, engine.model.config().context);
  const auto tokens = encode_text(engine.model.tokenizer(), text);
  const auto windows = plan_windows(settings, std::ssize(tokens));
  ThreadPool pool(0);
  return measure_perplexity(*engine.session, pool,
                            {.tokens = tokens, .windows = windows, .protocol = settings.protocol})
      .ppl;
}

// Returns the golden hf-stride perplexity. Folders "NAME-outliers..." have the function of NAME.
double golden_perplexity(const fs::path& folder) {
  const std::string name = folder.filename().string();
  const fs::path base = folder.parent_path() / name.substr(0, name.rfind("-outliers"));
  const Json golden = parse_json(read_file(base / "golden.json", 1 << 24), "golden.json");
  for (const auto& entry : golden.at("perplexity")) {
    if (entry.at("protocol") == "hf-stride") return entry.at("ppl").get<double>();
  }
  return std::nan("");
}

void add_row(Table& table, const fs::path& folder, const Variant& variant, const std::string& wiki,
             const fs::path& work) {
  const std::string name = folder.filename().string();
  const fs::path file = work / (name + "-" + variant.type + ".leq");
  QuantizeOptions options;
  options.type = variant.type;
  const auto result = quantize_checkpoint(folder, file, options);
  const Json golden = parse_json(read_file(folder / "golden.json", 1 << 24), "golden.json");
  const auto tensors = open_safetensors(folder / "golden.safetensors");
  Engine engine(file, variant.kv);
  double error = 0;
  std::vector<std::string> texts;
  for (const auto& prompt : golden.at("prompts")) {
    error = std::max(error, largest_logit_error(engine, prompt, *tensors));
    if (!prompt.contains("greedy_ids")) continue;
    texts.push_back(greedy(engine, prompt));
  }
  const double want = golden_perplexity(folder);
  const double ppl = stride_perplexity(engine, wiki);
  table.add({{"model", name},
             {"type", variant.type},
             {"KV", std::string(kv_type_name(variant.kv))},
             {"bits/weight", {result.bits_per_weight, 2}},
             {"max logit error", {error, 5}},
             {"PPL hf-stride", {ppl, 4}},
             {"golden (f32)", {want, 4}},
             {"change", fixed(100 * (ppl / want - 1), 3) + " %"},
             {"greedy: first other token", join(texts)}});
  std::cerr << name << ' ' << variant.type << ' ' << kv_type_name(variant.kv) << ": PPL "
            << fixed(ppl, 4) << '\n';
}

int run(const fs::path& models, const fs::path& wiki, const fs::path& work) {
  const EvaluationText text = read_evaluation_text(wiki, Join::hf);
  Table table;
  for (const char* name : {"storyteller", "storyteller-outliers", "gpt2-tiny", "gpt2-tiny-outliers",
                           "mistral-tiny", "qwen2-tiny", "qwen2-tiny-kbias", "qwen3-tiny"}) {
    std::vector<Variant> variants = {{"f32", KvType::f32},
                                     {"f16", KvType::f16},
                                     {"int8", KvType::f16},
                                     {"int8-g128", KvType::f16},
                                     {"int4-g128", KvType::f16}};
    if (std::string_view(name).starts_with("qwen2")) {
      variants.insert(variants.begin() + 1, {{"f32", KvType::f16}, {"f32", KvType::int8}});
    }
    for (const Variant& variant : variants) add_row(table, models / name, variant, text.text, work);
  }
  std::cout << table.markdown();
  return 0;
}

}  // namespace
}  // namespace leq

int main(int argc, char** argv) {
  if (argc != 4) {
    std::cerr << "usage: golden_table MODELS_FOLDER WIKI.TEST.RAW WORK_FOLDER\n";
    return 1;
  }
  try {
    return leq::run(argv[1], argv[2], argv[3]);
  } catch (const std::exception& error) {
    std::cerr << "golden_table: " << error.what() << '\n';
    return 1;
  }
}
