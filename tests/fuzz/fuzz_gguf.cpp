// Any bytes as a GGUF file: reads metadata, tensors and their numbers, configuration and tokenizer.
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>

#include "base/error.h"
#include "convert/gguf_import.h"
#include "convert/gguf_tokenizer.h"
#include "format/gguf_source.h"
#include "format/gguf_writer.h"
#include "fuzz/seeded.h"
#include "tokenizer/tokenizer.h"

namespace {

using leq::test::GgufWriter;

// Creates a tokenizer and a tensor of each type, or everything that a llama without layers needs.
std::string example(const char* kind) {
  GgufWriter writer;
  writer.text("general.architecture", "llama");
  writer.text("tokenizer.ggml.model", kind);
  writer.text("tokenizer.ggml.pre", "smollm");
  writer.texts("tokenizer.ggml.tokens",
               {"<unk>", "</s>", "a", "b", "ab", "\xe2\x96\x81", "<0x41>", "</s>"});
  writer.list<std::int32_t>("tokenizer.ggml.token_type", leq::test::kI32, {2, 3, 1, 1, 1, 1, 6, 3});
  writer.list<float>("tokenizer.ggml.scores", leq::test::kF32, {0, 0, -1, -2, -0.5f, -3, 0, 0});
  writer.texts("tokenizer.ggml.merges", {"a b"});
  writer.u32("tokenizer.ggml.eos_token_id", 1);
  writer.f32("general.sampling.temp", 0.5f);
  for (const char* key : {"block_count", "embedding_length", "feed_forward_length",
                          "context_length", "attention.head_count"}) {
    writer.u32("llama." + std::string(key), 1);
  }
  writer.f32("llama.attention.layer_norm_rms_epsilon", 1e-5f);
  writer.f32("rope.freq_base", 10000);
  for (const leq::GgufType& type : leq::gguf_types()) {
    writer.tensor(std::string(type.name), {static_cast<std::uint64_t>(type.elements)}, type.id,
                  std::string(static_cast<std::size_t>(type.bytes), '\x21'));
  }
  writer.tensor("token_embd.weight", {1, 8}, 0, std::string(32, '\0'));
  return writer.bytes();
}

// The configuration of a model of another architecture, with the keys that only it has.
struct Own {
  const char* key;
  std::vector<std::int32_t> numbers;  // one: no list
};
struct Architecture {
  const char* name;
  std::vector<Own> own;
};
std::string example(const Architecture& of) {
  GgufWriter writer;
  const std::string prefix = std::string(of.name) + ".";
  writer.text("general.architecture", of.name);
  writer.f32(prefix + "attention.layer_norm_rms_epsilon", 1e-5f);
  for (const char* key : {"block_count", "attention.head_count"}) writer.u32(prefix + key, 2);
  for (const char* key : {"embedding_length", "context_length"}) writer.u32(prefix + key, 16);
  for (const auto& [key, numbers] : of.own) {
    if (numbers.size() == 1) {
      writer.add(prefix + key, leq::test::kI32, leq::test::raw(numbers[0]));
    } else {
      writer.list(prefix + key, leq::test::kI32, numbers);
    }
  }
  writer.tensor("token_embd.weight", {16, 7}, 0, std::string(448, '\0'));
  return writer.bytes();
}

std::vector<std::string> examples() {
  std::vector<std::string> texts = {example("gpt2"), example("llama")};
  const Own window = {"attention.sliding_window", {8}}, hidden = {"feed_forward_length", {16}},
            experts = {"expert_count", {4}}, used = {"expert_used_count", {2}},
            expert_hidden = {"expert_feed_forward_length", {8}};
  const Own pattern = {"attention.sliding_window_pattern", {1, 0}};
  for (const Architecture& one : std::vector<Architecture>{
           {"gemma3", {window, hidden, {"attention.sliding_window_pattern", {2}}}},
           {"gemma4",
            {window,
             pattern,
             {"feed_forward_length", {16, 32}},
             {"attention.key_length", {16}},
             {"attention.key_length_swa", {8}},
             {"attention.value_length_swa", {8}},
             {"attention.head_count_kv", {2, 1}},
             {"attention.shared_kv_layers", {1}}}},
           {"gpt-oss", {window, experts, used, expert_hidden}},
           {"qwen3moe", {hidden, experts, used, expert_hidden, {"nextn_predict_layers", {1}}}},
           {"qwen35",
            {hidden,
             {"ssm.time_step_rank", {4}},
             {"ssm.inner_size", {16}},
             {"ssm.group_count", {2}},
             {"ssm.state_size", {8}},
             {"ssm.conv_kernel", {4}},
             {"attention.head_count_kv", {0, 2}},
             {"full_attention_interval", {2}}}},
           {"lfm2", {hidden, {"shortconv.l_cache", {3}}, {"attention.head_count_kv", {0, 2}}}},
           {"phi3", {window, hidden, {"rope.dimension_count", {8}}}}}) {
    texts.push_back(example(one));
  }
  return texts;
}

void use(const std::string& path) {
  const leq::GgufSource source(path);
  for (const leq::SourceTensor& tensor : source.tensors()) {
    if (source.find(tensor.name) != &tensor) std::abort();
    try {
      std::int64_t count = 1;
      for (const std::int64_t size : tensor.shape) count *= size;
      std::vector<float> values(static_cast<std::size_t>(std::min<std::int64_t>(count, 4096)));
      source.read(tensor, 0, values);
      leq::ChosenCodes codes;
      if (const auto scheme = source.own_scheme(tensor))
        source.read_codes(tensor, *scheme, 0, 1, codes);
    } catch (const leq::Error&) {
    }
  }
  try {
    const leq::TokenizerSpec spec = leq::read_gguf_tokenizer(source.metadata());
    const leq::Tokenizer tokenizer(spec);
    (void)tokenizer.decode(tokenizer.encode("Hello ab <unk> 12\n\xff", {}), true);
    (void)leq::read_gguf_template(source.metadata());
    (void)leq::read_gguf_generation(source.metadata(), spec);
  } catch (const leq::Error&) {
  }
  (void)leq::import_gguf(path);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const int descriptor = ::memfd_create("fuzz", MFD_CLOEXEC);
  if (::write(descriptor, data, size) != static_cast<ssize_t>(size)) std::abort();
  try {
    use("/proc/self/fd/" + std::to_string(descriptor));
  } catch (const leq::Error&) {
  }
  ::close(descriptor);
  return 0;
}
