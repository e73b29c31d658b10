#include "hostile/samples.h"

#include <cstring>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <utility>

#include "convert/gguf_models.h"
#include "convert/hf_import.h"
#include "convert/packed_folder.h"
#include "hostile/child.h"
#include "hostile/folder_state.h"
#include "reference/random_checkpoint.h"
#include "tokenizer/protobuf_writer.h"

namespace leq::hostile {
namespace {

namespace fs = std::filesystem;
using Ordered = nlohmann::ordered_json;

constexpr const char* kChatMl =
    "{% for message in messages %}{{'<|im_start|>' + message['role'] + '\\n' + message['content'] "
    "+ '<|im_end|>' + '\\n'}}{% endfor %}{% if add_generation_prompt %}{{ "
    "'<|im_start|>assistant\\n' }}{% endif %}";

Json llama_config() {
  return {{"architectures", {"LlamaForCausalLM"}},
          {"model_type", "llama"},
          {"hidden_size", 32},
          {"num_hidden_layers", 2},
          {"num_attention_heads", 2},
          {"num_key_value_heads", 1},
          {"head_dim", 16},
          {"intermediate_size", 48},
          {"vocab_size", 97},
          {"max_position_embeddings", 512},
          {"rms_norm_eps", 1e-5},
          {"rope_theta", 10000.0},
          {"rope_scaling", nullptr},
          {"hidden_act", "silu"},
          {"bos_token_id", 94},
          {"eos_token_id", 95},
          {"tie_word_embeddings", false},
          {"torch_dtype", "float32"}};
}

Json gpt2_config() {
  return {{"architectures", {"GPT2LMHeadModel"}},
          {"model_type", "gpt2"},
          {"n_embd", 32},
          {"n_layer", 1},
          {"n_head", 2},
          {"n_positions", 48},
          {"vocab_size", 97},
          {"layer_norm_epsilon", 1e-5},
          {"activation_function", "gelu_new"}};
}

const std::vector<std::string>& special_tokens() {
  static const std::vector<std::string> kTokens = {"<|endoftext|>", "<|im_start|>", "<|im_end|>"};
  return kTokens;
}

std::string generation_config() {
  const Ordered json = {{"bos_token_id", 94},
                        {"eos_token_id", {94, 96}},
                        {"do_sample", true},
                        {"temperature", 0.7},
                        {"top_k", 20},
                        {"top_p", 0.9},
                        {"repetition_penalty", 1.1}};
  return json.dump(2);
}

std::string tokenizer_config(const std::string& chat_template) {
  Ordered decoder = Ordered::object();
  for (std::size_t i = 0; i < special_tokens().size(); ++i) {
    decoder[std::to_string(94 + i)] = {{"content", special_tokens()[i]},
                                       {"special", true},
                                       {"lstrip", false},
                                       {"rstrip", false},
                                       {"single_word", false},
                                       {"normalized", false}};
  }
  Ordered json = {{"tokenizer_class", "Qwen2Tokenizer"},
                  {"add_bos_token", false},
                  {"bos_token", "<|endoftext|>"},
                  {"eos_token", "<|im_end|>"},
                  {"model_max_length", 64},
                  {"added_tokens_decoder", decoder}};
  if (!chat_template.empty()) json["chat_template"] = chat_template;
  return json.dump(2);
}

std::string tokenizer_json() {
  Ordered vocab = Ordered::object();
  for (int i = 0; i < 90; ++i) vocab[std::string(1, static_cast<char>('!' + i))] = i;
  // '{' and '}', which JSON needs and '!' to 'z' lack, replace two rare characters.
  for (const auto& [rare, brace] : {std::pair("%", "{"), std::pair("&", "}")}) {
    vocab[brace] = vocab[rare];
    vocab.erase(rare);
  }
  vocab["Ġ"] = 90;
  vocab["th"] = 91;
  vocab["the"] = 92;
  vocab["Ġthe"] = 93;
  Ordered added = Ordered::array();
  for (std::size_t i = 0; i < special_tokens().size(); ++i) {
    added.push_back({{"id", 94 + i},
                     {"content", special_tokens()[i]},
                     {"special", true},
                     {"single_word", false},
                     {"lstrip", false},
                     {"rstrip", false},
                     {"normalized", false}});
  }
  const Ordered bytes = {{"type", "ByteLevel"},
                         {"add_prefix_space", false},
                         {"trim_offsets", true},
                         {"use_regex", false}};
  const Ordered cut = {{"type", "Split"},
                       {"pattern", {{"Regex", "\\p{N}{1,3}| ?\\p{L}+| ?[^\\s\\p{L}\\p{N}]+|\\s+"}}},
                       {"behavior", "Isolated"},
                       {"invert", false}};
  const Ordered json = {{"version", "1.0"},
                        {"added_tokens", added},
                        {"normalizer", {{"type", "NFC"}}},
                        {"pre_tokenizer", {{"type", "Sequence"}, {"pretokenizers", {cut, bytes}}}},
                        {"post_processor", bytes},
                        {"decoder", bytes},
                        {"model",
                         {{"type", "BPE"},
                          {"dropout", nullptr},
                          {"unk_token", nullptr},
                          {"byte_fallback", false},
                          {"vocab", vocab},
                          {"merges", {"t h", "th e", "Ġ the"}}}}};
  return json.dump(1);
}

std::string sentencepiece_model() {
  test::ProtobufWriter model = test::start_sp_model(2);
  float score = 0;
  for (const char* piece : {"th", "the", "▁the", "▁"}) {
    test::add_sp_piece(model, piece, score -= 1, test::SpType::normal);
  }
  for (char letter = '!'; letter <= 'z'; ++letter) {
    test::add_sp_piece(model, std::string(1, letter), score -= 1, test::SpType::normal);
  }
  return model.out;
}

// Splits model.safetensors into two shards with an index.
void shard(const fs::path& folder) {
  const std::string bytes = read_bytes(folder / "model.safetensors");
  std::uint64_t header_bytes = 0;
  std::memcpy(&header_bytes, bytes.data(), 8);
  const Ordered header = Ordered::parse(bytes.substr(8, header_bytes));
  Ordered headers[2] = {Ordered::object(), Ordered::object()}, map = Ordered::object();
  std::string data[2];
  std::size_t count = 0;
  for (const auto& [name, tensor] : header.items()) {
    const std::size_t part = 2 * count++ < header.size() ? 0 : 1;
    const std::size_t first = tensor["data_offsets"][0], last = tensor["data_offsets"][1];
    Ordered moved = tensor;
    moved["data_offsets"] = {data[part].size(), data[part].size() + last - first};
    data[part] += bytes.substr(8 + header_bytes + first, last - first);
    headers[part][name] = moved;
    map[name] = "model-0000" + std::to_string(part + 1) + "-of-00002.safetensors";
  }
  for (int part = 0; part < 2; ++part) {
    const std::string text = headers[part].dump();
    const std::uint64_t size = text.size();
    write_bytes(folder / ("model-0000" + std::to_string(part + 1) + "-of-00002.safetensors"),
                std::string(reinterpret_cast<const char*>(&size), 8) + text + data[part]);
  }
  const Ordered index = {{"metadata", {{"total_size", data[0].size() + data[1].size()}}},
                         {"weight_map", map}};
  write_bytes(folder / "model.safetensors.index.json", index.dump(1));
  fs::remove(folder / "model.safetensors");
}

void make_checkpoint(const fs::path& folder, const Json& config) {
  test::RandomCheckpoint checkpoint(folder);
  if (config.contains("n_embd")) {
    checkpoint.add_gpt2(config, "transformer.");
  } else {
    checkpoint.add_llama(config, {});
  }
  checkpoint.write(config);
}

std::string text_of(std::size_t words, std::uint32_t seed) {
  std::string text;
  for (std::size_t i = 0; i < words; ++i) {
    text += i % 3 == 0 ? "the" : "";
    for (int letters = 0; letters < 4; ++letters) {
      seed = seed * 1664525u + 1013904223u;
      text += static_cast<char>('a' + (seed >> 24) % 26);
    }
    text += i % 11 == 10 ? "\n" : " ";
  }
  return text;
}

class Maker {
 public:
  Maker(const Tools& tools, const fs::path& folder) : tools_(tools), folder_(folder) {
    fs::create_directories(folder_ / "notes");
  }
  ~Maker() { fs::remove_all(folder_ / "notes"); }
  Maker(const Maker&) = delete;
  Maker& operator=(const Maker&) = delete;

  // Runs a tool and returns its output.
  std::string run(const std::string& tool, const std::vector<std::string>& words,
                  const std::string& input = "") const {
    Command command;
    command.words = {tools_.path(tool)};
    command.words.insert(command.words.end(), words.begin(), words.end());
    command.folder = folder_;
    command.standard_input = input.empty() ? Stdin::nothing : Stdin::text;
    command.input = input;
    return run(command).out;
  }

  // Returns the answer of leq-server to kQuestion.
  std::string answer(const std::vector<std::string>& words) const {
    Command command;
    command.words = {tools_.path("leq-server")};
    command.words.insert(command.words.end(), words.begin(), words.end());
    command.folder = folder_;
    command.end_at = kListening;
    command.questions = {kQuestion};
    return run(command).answers.at(0);
  }

 private:
  Ended run(const Command& command) const {
    Ended ended = run_child(command, {.seconds = 120}, folder_ / "notes");
    if (ended.status != 0) {
      throw std::runtime_error("making the samples: " + shell_text(command) + ": " + ended.err);
    }
    return ended;
  }

  const Tools& tools_;
  const fs::path& folder_;
};

// The certificate and key of a fictitious server, made for these tests.
constexpr const char* kCertificate =
    "-----BEGIN CERTIFICATE-----\n"
    "MIIBfzCCASWgAwIBAgIUVYfWOMv1+36qSGrzScC0k/PDVpswCgYIKoZIzj0EAwIw\n"
    "FDESMBAGA1UEAwwJbG9jYWxob3N0MCAXDTI2MTEyMjE3MTgzMVoYDzIxMjYxMDI5\n"
    "MTcxODMxWjAUMRIwEAYDVQQDDAlsb2NhbGhvc3QwWTATBgcqhkjOPQIBBggqhkjO\n"
    "PQMBBwNCAARm65LWHBsX0sR2IghsylXKtq9ziJb09ivZOEW0NNIkAKfLD43H0UIR\n"
    "emXPm/Ku58rO+DJ9wTNVLbyL+oyo5s6bo1MwUTAdBgNVHQ4EFgQURLaSjqArNxbX\n"
    "qYL1mAXSTkx9ZlcwHwYDVR0jBBgwFoAURLaSjqArNxbXqYL1mAXSTkx9ZlcwDwYD\n"
    "VR0TAQH/BAUwAwEB/zAKBggqhkjOPQQDAgNIADBFAiAjIf4fXn2l1AA3ByJqvEB4\n"
    "qQZs8kkla9nVL/bsV4uFbAIhAKQKK+4CxT8uEVFs0CCrbze1CWrX8Fd2l0EaVhz0\n"
    "HBz/\n"
    "-----END CERTIFICATE-----\n";
constexpr const char* kPrivateKey =
    "-----BEGIN PRIVATE KEY-----\n"
    "MIGHAgEAMBMGByqGSM49AgEGCCqGSM49AwEHBG0wawIBAQQgDGCUZUTRWqAMfxSg\n"
    "v5n89G1wuxYy5kxQqcC2Be7d4XuhRANCAARm65LWHBsX0sR2IghsylXKtq9ziJb0\n"
    "9ivZOEW0NNIkAKfLD43H0UIRemXPm/Ku58rO+DJ9wTNVLbyL+oyo5s6b\n"
    "-----END PRIVATE KEY-----\n";

std::string gguf_of(const fs::path& checkpoint) {
  const ImportedModel model = import_hf(checkpoint);
  test::GgufWriter writer;
  test::add_config(writer, model.config, "llama");
  test::add_letters(writer);
  writer.text("tokenizer.chat_template", kChatMl);
  test::add_tensors(writer, model, true, test::WriteAs::q8_0);
  return writer.bytes();
}

// Creates quantized checkpoints, one folder for each method.
void make_packed(const fs::path& folder) {
  using test::Parts;
  const auto make = [&](const char* name, const Json& quantization, auto parts) {
    test::PackedFolder packed;
    test::add_llama(packed, parts);
    fs::copy(packed.write(test::small_llama(quantization)), folder / name);
  };
  const auto codes = [](int n, int k) { return test::random_integers(n, k, 4, 64, false, 7); };
  make("gptq", {{"quant_method", "gptq"}, {"bits", 4}, {"group_size", 64}},
       [&](int n, int k) { return test::gptq_parts(codes(n, k), true); });
  make("awq", {{"quant_method", "awq"}, {"bits", 4}, {"group_size", 64}, {"zero_point", true}},
       [&](int n, int k) { return test::awq_parts(codes(n, k)); });
  const Json weights = {
      {"num_bits", 4}, {"type", "int"}, {"strategy", "group"}, {"group_size", 64}};
  make("packed",
       {{"quant_method", "compressed-tensors"},
        {"format", "pack-quantized"},
        {"config_groups", {{"group_0", {{"weights", weights}}}}}},
       [&](int n, int k) { return test::pack_quantized_parts(codes(n, k), true); });
  make("fp8", {{"quant_method", "fp8"}, {"weight_block_size", {128, 128}}}, [](int n, int k) {
    std::string bytes;
    for (int i = 0; i < n * k; ++i) bytes += static_cast<char>(i % 251 & 0xbf);
    const std::int64_t rows = (n + 127) / 128, columns = (k + 127) / 128;
    const std::vector<float> scales(static_cast<std::size_t>(rows * columns), 0.03125f);
    Parts parts;
    parts["weight"] = {"F8_E4M3", {n, k}, bytes};
    parts["weight_scale_inv"] = {"F32", {rows, columns}, test::floats_as("F32", scales)};
    return parts;
  });
}

}  // namespace

const std::string kListening = "listening on";
const Question kQuestion = {"/completion",
                            R"({"prompt": "hello the the the", "n_predict": 4, "temperature": 0})"};

const std::vector<std::string>& model_types() {
  static const std::vector<std::string> kTypes = {"f32",       "f16",      "bf16",     "int8",
                                                  "int8-g32",  "int4-g32", "int3-g64", "uint4-g128",
                                                  "uint2-g32", "nf4",      "b1"};
  return kTypes;
}

void make_samples(const Tools& tools, const fs::path& folder) {
  make_checkpoint(folder / "llama", llama_config());
  write_bytes(folder / "llama/generation_config.json", generation_config());
  write_bytes(folder / "llama/tokenizer_config.json", tokenizer_config(kChatMl));
  make_checkpoint(folder / "gpt2", gpt2_config());
  make_checkpoint(folder / "sharded", llama_config());
  shard(folder / "sharded");
  make_checkpoint(folder / "spm", llama_config());
  for (const char* name : {"sharded", "spm"}) {
    fs::remove(folder / name / "vocab.json");
    fs::remove(folder / name / "merges.txt");
  }
  write_bytes(folder / "sharded/generation_config.json", generation_config());
  write_bytes(folder / "sharded/tokenizer.json", tokenizer_json());
  write_bytes(folder / "sharded/tokenizer_config.json", tokenizer_config(""));
  write_bytes(folder / "sharded/chat_template.jinja", kChatMl);
  write_bytes(folder / "spm/tokenizer.model", sentencepiece_model());
  write_bytes(folder / "model.gguf", gguf_of(folder / "llama"));
  make_packed(folder);
  write_bytes(folder / "text.txt", text_of(400, 1));
  write_bytes(folder / "cert.pem", kCertificate);
  write_bytes(folder / "key.pem", kPrivateKey);
  write_bytes(folder / "keys.txt", "first-key\nsecond-key\n");
  write_bytes(
      folder / "list.gbnf",
      "# a list\nroot ::= \"[\" (item (\",\" item){0,3})? \"]\"\nitem ::= [a-z\\x41]+ | \"\\\"\" "
      "[^\"\\n]* \"\\\"\"\n");
  write_bytes(
      folder / "schema.json",
      R"({"type": "object", "properties": {"a": {"type": "integer", "minimum": -3, "maximum": 12},
              "b": {"anyOf": [{"$ref": "#/$defs/s"}, {"enum": [null, 1, "x"]}]}, "c": {"type": "array",
              "items": {"type": "string", "pattern": "^[a-z]{1,3}$"}, "maxItems": 2}},
              "required": ["a"], "$defs": {"s": {"type": "string", "maxLength": 3}}})");
  write_bytes(folder / "other.txt", text_of(400, 2));

  const Maker maker(tools, folder);
  for (const std::string& type : model_types()) {
    std::vector<std::string> words = {"sharded", "-o", type + ".leq", "-t", "1", "--no-gate"};
    if (type == "b1") {
      words.insert(words.end(), {"--method", "billm", "--samples", "1", "--length", "8"});
    } else {
      words.insert(words.end(), {"--type", type});
    }
    maker.run("leq-quantize", words);
  }
  maker.run("leq-quantize",
            {"sharded", "-o", "smooth.leq", "--type", "int8", "--method", "smoothquant",
             "--samples", "1", "--length", "8", "-t", "1", "--no-gate"});
  for (const char* odd : {"gpt2", "spm"}) {
    maker.run("leq-quantize", {odd, "-o", std::string(odd) + ".leq", "--type", "int8", "--method",
                               "absmax", "-t", "1", "--no-gate"});
  }
  maker.run("leq-perplexity", {"-m", "f32.leq", "-f", "text.txt", "--join", "none", "-c", "16",
                               "--chunks", "2", "-t", "1", "--kl-divergence-base", "base.kl"});
  write_bytes(folder / "earlier.json",
              maker.run("leq-perplexity", {"-m", "f32.leq", "-f", "text.txt", "--join", "none",
                                           "-c", "16", "--chunks", "2", "-t", "1", "-o", "json"}));
  maker.run("leq-run", {"-m", "int8.leq", "-cnv", "-n", "2", "--seed", "1", "-t", "1"},
            "hello\n/save chat.json\n/exit\n");
  maker.run("leq-run", {"-m", "int8.leq", "-p", "hello", "-n", "20", "--seed", "1", "-t", "1",
                        "--receipt", "receipt.json"});
  fs::create_directory(folder / "slots");
  maker.run("leq-run", {"-m", "int8.leq", "-p", "hello", "-n", "1", "--seed", "1", "-t", "1",
                        "--prompt-cache", "slots/story.bin"});
  fs::create_directory(folder / "made");
  fs::create_directory(folder / "kept");
  write_bytes(folder / "answer.txt", maker.answer({"-m", "int8.leq", "--port", "0", "-t", "1",
                                                   "--slot-save-path", "kept"}));
}

}  // namespace leq::hostile
