#include "hostile/readers.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include "hostile/samples.h"

namespace leq::hostile {

namespace {

using Words = std::vector<std::string>;

Words joined(Words a, const Words& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

const Words kShort = {"--join", "none", "-c", "16", "--chunks", "1", "-t", "1"};

std::vector<Reader> model_readers(const std::string& model) {
  return {
      {.tool = "leq-run",
       .words = {"-m", model, "--raw", "-p", "the", "-n", "2", "--temp", "0", "-t", "1"},
       .reads_all = false},
      {.tool = "leq-run",
       .words = {"-m", model, "-cnv", "-st", "-p", "the", "-n", "2", "-s", "3", "-t", "1",
                 "--no-mmap"},
       .reads_all = false},
      {.tool = "leq-inspect", .words = {model}, .reads_all = false},
      {.tool = "leq-inspect", .words = {model, "--json"}, .reads_all = false},
      {.tool = "leq-inspect", .words = {model, "--verify"}},
      {.tool = "leq-inspect", .words = {model, "--fit", "--verify", "-t", "1"}},
      {.tool = "leq-inspect", .words = {model, "--fit", "-c", "32", "-t", "1"}, .reads_all = false},
      {.tool = "leq-inspect", .words = {model, "--tokenize", "text.txt"}, .reads_all = false},
      {.tool = "leq-perplexity",
       .words = joined({"-m", model, "-f", "text.txt"}, kShort),
       .reads_all = false},
      {.tool = "leq-bench",
       .words = {"-m", model, "-p", "4", "-n", "2", "-r", "1", "-t", "1"},
       .reads_all = false},
      {.tool = "leq-bench", .words = {"-m", model, "--load", "-t", "1"}, .reads_all = false}};
}

Target model_target(const std::string& type, int weight) {
  const std::string file = type + ".leq";
  return {.kind = "leq",
          .copies = {file, "text.txt"},
          .file = file,
          .layout = Layout::leq,
          .readers = model_readers(file),
          .required = {"/tensors/*/shape", "/tensors/*/scheme", "/tensors/*/act",
                       "/tensors/*/planes", "/config/layers", "/config/width", "/config/heads",
                       "/config/kv_heads", "/config/head_dim", "/config/vocab", "/config/hidden",
                       "/leq/requires", "/blobs/*/offset", "/blobs/*/bytes"},
          .also_named = {"the weights may be damaged", "weights or scales are damaged",
                         "the model's context of"},
          .weight = weight};
}

// Returns the commands that read a whole checkpoint folder.
std::vector<Reader> checkpoint_readers(const std::string& folder) {
  const Words start = {folder, "-o", "out.leq", "-t", "1", "--no-gate"};
  const auto quantize = [&](const Words& flags) {
    return Reader{.tool = "leq-quantize",
                  .words = joined(start, flags),
                  .outputs = {"out.leq"},
                  .talk = Talk::before};
  };
  return {quantize({"--type", "f32"}), quantize({"--type", "int8"}),
          quantize({"--type", "int4-g32"}), quantize({"--type", "uint3-g64"}),
          quantize({"--method", "gptq", "--type", "int4-g32", "--samples", "1", "--length", "8"})};
}

const Words kCheckpointFiles = {"config.json",
                                "safetensors",
                                "tokenizer",
                                "vocab.json",
                                "merges.txt",
                                "generation_config.json",
                                "chat_template",
                                "the checkpoint is damaged",
                                "the checkpoint computes numbers that are not finite"};

Target checkpoint_target(const std::string& kind, const std::string& folder,
                         const std::string& file, Layout layout, const Words& required,
                         int weight) {
  return {.kind = kind,
          .copies = {folder},
          .file = folder + "/" + file,
          .layout = layout,
          .readers = checkpoint_readers(folder),
          .required = required,
          .also_named = joined({folder}, kCheckpointFiles),
          .weight = weight};
}

const Words kConfigKeys = {"/hidden_size", "/num_hidden_layers", "/num_attention_heads",
                           "/intermediate_size", "/vocab_size"};

Target tokenizer_target(const std::string& kind, const std::string& folder, const std::string& file,
                        Layout layout, const Words& required, int weight) {
  Target target = checkpoint_target(kind, folder, file, layout, required, weight);
  target.copies.push_back("text.txt");
  target.readers.resize(1);
  for (int i = 0; i < 2; ++i) {
    target.readers.push_back(
        {.tool = "leq-inspect", .words = {folder, "--tokenize", "text.txt"}, .reads_all = false});
  }
  return target;
}

std::vector<Target> make_targets() {
  std::vector<Target> all;
  for (const std::string& type : model_types()) all.push_back(model_target(type, 3));
  for (const auto& [model, weight] : {std::pair("gpt2", 3), std::pair("spm", 4)}) {
    all.push_back(model_target(model, weight));
    // These models have no chat template.
    std::erase_if(all.back().readers, [](const Reader& reader) {
      return std::ranges::find(reader.words, "-cnv") != reader.words.end();
    });
  }
  all.push_back(model_target("smooth", 4));
  all.push_back(
      checkpoint_target("config.json", "llama", "config.json", Layout::json, kConfigKeys, 12));
  all.push_back(checkpoint_target("config.json", "gpt2", "config.json", Layout::json,
                                  {"/n_embd", "/n_layer", "/n_head", "/n_positions", "/vocab_size"},
                                  6));
  all.push_back(checkpoint_target("safetensors", "llama", "model.safetensors", Layout::safetensors,
                                  {"/*/dtype", "/*/shape", "/*/data_offsets"}, 12));
  all.push_back(checkpoint_target("safetensors", "sharded", "model-00002-of-00002.safetensors",
                                  Layout::safetensors, {"/*/dtype", "/*/shape", "/*/data_offsets"},
                                  6));
  all.push_back(checkpoint_target("index.json", "sharded", "model.safetensors.index.json",
                                  Layout::json, {"/weight_map"}, 8));
  all.push_back(checkpoint_target("generation_config.json", "llama", "generation_config.json",
                                  Layout::json, {}, 6));
  all.push_back(
      tokenizer_target("tokenizer.json", "sharded", "tokenizer.json", Layout::json, {}, 14));
  all.push_back(tokenizer_target("tokenizer_config.json", "llama", "tokenizer_config.json",
                                 Layout::json, {}, 6));
  all.push_back(tokenizer_target("vocab.json", "llama", "vocab.json", Layout::json, {}, 6));
  all.push_back(tokenizer_target("merges.txt", "llama", "merges.txt", Layout::text, {}, 4));
  all.push_back(
      tokenizer_target("tokenizer.model", "spm", "tokenizer.model", Layout::bytes, {}, 8));
  for (const char* folder : {"gptq", "awq", "packed", "fp8"}) {
    Target target =
        checkpoint_target("quantized safetensors", folder, "model.safetensors", Layout::safetensors,
                          {"/*/dtype", "/*/shape", "/*/data_offsets"}, 8);
    target.readers.resize(2);
    target.readers.push_back({.tool = "leq-quantize",
                              .words = {folder, "-o", "out.leq", "-t", "1", "--no-gate"},
                              .outputs = {"out.leq"},
                              .talk = Talk::before});
    all.push_back(target);
    target = checkpoint_target("quantization_config", folder, "config.json", Layout::json,
                               kConfigKeys, 3);
    target.readers = all.back().readers;
    all.push_back(target);
  }
  const auto quantize_gguf = [](const Words& flags) {
    return Reader{.tool = "leq-quantize",
                  .words = joined({"model.gguf", "-o", "out.leq", "-t", "1", "--no-gate"}, flags),
                  .outputs = {"out.leq"},
                  .talk = Talk::before};
  };
  all.push_back({.kind = "gguf",
                 .copies = {"model.gguf"},
                 .file = "model.gguf",
                 .readers = {quantize_gguf({}),
                             quantize_gguf({"--type", "int8"}),
                             {.tool = "leq-run",
                              .words = {"-m", "model.gguf", "--no-cache", "--raw", "-p", "the",
                                        "-n", "2", "--temp", "0", "-t", "1"},
                              .talk = Talk::before}},
                 .also_named = {"the checkpoint is damaged",
                                "the checkpoint computes numbers that are not finite"},
                 .weight = 40});
  all.push_back(
      checkpoint_target("chat_template", "sharded", "chat_template.jinja", Layout::text, {}, 4));
  for (const auto& [kind, file, flag] :
       {std::tuple("grammar", "list.gbnf", "--grammar-file"),
        std::tuple("schema", "schema.json", "--json-schema-file")}) {
    all.push_back({.kind = kind,
                   .copies = {"int8.leq", file},
                   .file = file,
                   .layout = std::string(file).ends_with("json") ? Layout::json : Layout::text,
                   .readers = {{.tool = "leq-run",
                                .words = {"-m", "int8.leq", "--raw", "-p", "the", "-n", "3", "-s",
                                          "1", "-t", "1", flag, file}}},
                   .also_named = {"grammar: "},
                   .weight = 4});
  }
  all.push_back({.kind = "kl base",
                 .copies = {"int8.leq", "text.txt", "base.kl"},
                 .file = "base.kl",
                 .readers = {{.tool = "leq-perplexity",
                              .words = {"-m", "int8.leq", "-f", "text.txt", "--join", "none", "-c",
                                        "16", "--chunks", "2", "-t", "1", "--kl-divergence-base",
                                        "base.kl", "--kl-divergence"}}},
                 .weight = 8});
  all.push_back(
      {.kind = "chat",
       .copies = {"int8.leq", "chat.json"},
       .file = "chat.json",
       .layout = Layout::json,
       .readers = {{.tool = "leq-run",
                    .words = {"-m", "int8.leq", "-cnv", "-n", "2", "-s", "1", "-t", "1"},
                    .input = "/load chat.json\n/exit\n",
                    .talk = Talk::around}},
       .required = {"/leq_chat", "/messages", "/settings", "/replies", "/model", "/chat_template"},
       .weight = 8});
  all.push_back({.kind = "receipt",
                 .copies = {"int8.leq", "receipt.json"},
                 .file = "receipt.json",
                 .layout = Layout::json,
                 .readers = {{.tool = "leq-inspect",
                              .words = {"int8.leq", "--check-receipt", "receipt.json", "-t", "1"}}},
                 .required = {"/leq_receipt", "/fingerprint", "/keys", "/values", "/settings",
                              "/prompt", "/tokens", "/ended", "/digests"},
                 .weight = 6});
  all.push_back(
      {.kind = "earlier run",
       .copies = {"int8.leq", "text.txt", "earlier.json"},
       .file = "earlier.json",
       .layout = Layout::json,
       .readers = {{.tool = "leq-perplexity",
                    .words = {"-m", "int8.leq", "-f", "text.txt", "--join", "none", "-c", "16",
                              "--chunks", "2", "-t", "1", "--against", "earlier.json"}}},
       .required = {"/ppl", "/protocol", "/tokens", "/windows", "/window"},
       .weight = 6});
  all.push_back(
      {.kind = "text",
       .copies = {"int8.leq", "sharded", "text.txt"},
       .file = "text.txt",
       .layout = Layout::text,
       .readers = {{.tool = "leq-run",
                    .words = {"-m", "int8.leq", "--raw", "-f", "text.txt", "-n", "1", "-c", "64",
                              "-t", "1"}},
                   {.tool = "leq-perplexity",
                    .words = joined({"-m", "int8.leq", "-f", "text.txt"}, kShort)},
                   {.tool = "leq-inspect", .words = {"int8.leq", "--tokenize", "text.txt"}},
                   {.tool = "leq-quantize",
                    .words = {"sharded", "-o", "out.leq", "--method", "gptq", "--calibration",
                              "text.txt", "--samples", "1", "--length", "8", "-t", "1",
                              "--no-gate"},
                    .outputs = {"out.leq"},
                    .talk = Talk::before},
                   {.tool = "leq-quantize",
                    .words = {"sharded", "-o", "out.leq", "--type", "int8", "--gate", "--heldout",
                              "text.txt", "-t", "1"},
                    .outputs = {"out.leq"},
                    .talk = Talk::before}},
       .also_named = {"the prompt"},
       .weight = 10});
  return all;
}

}  // namespace

const std::vector<Target>& server_targets() {
  const auto reader = [](const Words& flags) {
    return Reader{.tool = "leq-server",
                  .words = joined({"-m", "int8.leq", "--port", "0", "-t", "1"}, flags),
                  .reads_all = false,
                  .talk = Talk::before,
                  .end_at = kListening};
  };
  const auto asked = [](Reader with, const std::vector<Question>& questions) {
    with.questions = questions;
    with.outputs = {"slots/*", "kept/*", "kept.real/*"};
    return with;
  };
  const Words tls = {"--ssl-cert-file", "cert.pem", "--ssl-key-file", "key.pem"};
  static const std::vector<Target> kTargets = {
      {.kind = "api keys",
       .copies = {"int8.leq", "keys.txt"},
       .file = "keys.txt",
       .layout = Layout::text,
       .readers = {reader({"--api-key-file", "keys.txt"})}},
      {.kind = "certificate",
       .copies = {"int8.leq", "cert.pem", "key.pem"},
       .file = "cert.pem",
       .layout = Layout::text,
       .readers = {reader(tls)},
       .also_named = {"key.pem"}},
      {.kind = "private key",
       .copies = {"int8.leq", "cert.pem", "key.pem"},
       .file = "key.pem",
       .layout = Layout::text,
       .readers = {reader(tls)},
       .also_named = {"cert.pem"}},
      {.kind = "saved text",
       .copies = {"int8.leq", "slots", "answer.txt"},
       .file = "slots/story.bin",
       .layout = Layout::prompts,
       .readers = {asked(reader({"--slot-save-path", "slots"}),
                         {{"/slots/0?action=restore", R"({"filename": "story.bin"})"}, kQuestion})},
       .spared = true},
      {.kind = "kept texts",
       .copies = {"int8.leq", "kept", "answer.txt"},
       .file = "kept/texts-*",
       .layout = Layout::prompts,
       .readers = {asked(reader({"--slot-save-path", "kept"}), {kQuestion})},
       .spared = true},
      {.kind = "save folder",
       .copies = {"int8.leq", "kept", "answer.txt"},
       .file = "kept",
       .layout = Layout::folder,
       .readers = {asked(reader({"--slot-save-path", "kept"}), {kQuestion})},
       .also_named = {"--slot-save-path"}}};
  return kTargets;
}

const std::vector<Target>& targets() {
  static const std::vector<Target> kTargets = make_targets();
  return kTargets;
}

}  // namespace leq::hostile
