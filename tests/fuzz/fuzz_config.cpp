// Any bytes as config.json: they give a configuration that passes its checks, or an Error.
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/json.h"
#include "convert/hf_import.h"
#include "families/family.h"
#include "fuzz/seeded.h"
#include "model/rope.h"

namespace {

// A small model of a family, with every key that its table names.
leq::Json model_of(const leq::Family& family) {
  leq::Json json = {{"model_type", family.model_type}, {"layer_types", nullptr}};
  const auto set = [&](const char* key, const leq::Json& value) {
    if (key != nullptr) json[key] = value;
  };
  const leq::ConfigKeys& keys = family.keys;
  for (const auto& [key, value] : {std::pair(keys.width, 64),
                                   {keys.layers, 2},
                                   {keys.heads, 4},
                                   {keys.kv_heads, 2},
                                   {keys.head_dim, 16},
                                   {keys.hidden, 64},
                                   {keys.vocab, 99},
                                   {keys.context, 128}}) {
    set(key, value);
  }
  set(keys.norm_eps, 1e-5);
  set("sliding_window", 8);
  if (family.experts) {
    set(family.experts->experts, 4);
    set(family.experts->active, 2);
    set(family.experts->hidden, 32);
    set(family.experts->shared_hidden, 32);
  }
  if (const leq::DeltaKeys* delta = family.delta) {
    for (const char* key : {delta->key_heads, delta->value_heads, delta->key_dim, delta->value_dim,
                            delta->taps, delta->interval}) {
      set(key, 2);
    }
  }
  return json;
}

std::vector<std::string> examples() {
  std::vector<std::string> texts;
  for (const leq::Family* family : leq::families()) texts.push_back(model_of(*family).dump());
  const leq::Json llama = model_of(*leq::find_family("llama"));
  for (const char* more :
       {R"({"rope_scaling":{"rope_type":"yarn","factor":4,"original_max_position_embeddings":32}})",
        R"({"rope_parameters":{"rope_type":"llama3","factor":8,"low_freq_factor":1,)"
        R"("high_freq_factor":4,"original_max_position_embeddings":32,"rope_theta":1e5}})",
        R"({"model_type":"phi3","original_max_position_embeddings":64,"rope_scaling":{"type":)"
        R"("longrope","short_factor":[1,1,1,1,1,1,1,1],"long_factor":[1,2,3,4,5,6,7,8]}})",
        R"({"quantization_config":{"quant_method":"gptq","bits":4,"group_size":32}})",
        R"({"quantization_config":{"quant_method":"fp8","weight_block_size":[128,128]}})",
        R"({"quantization_config":{"quant_method":"compressed-tensors","format":"pack-quantized",)"
        R"("config_groups":{"a":{"weights":{"num_bits":4,"type":"int","group_size":32}}}}})",
        R"({"layer_types":["full_attention","sliding_attention"]})"}) {
    leq::Json json = llama;
    json.update(leq::parse_json(more, "example"));
    texts.push_back(json.dump());
  }
  texts.push_back(R"({"model_type":"mistral3","text_config":)" + llama.dump() + "}");
  return texts;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  try {
    const std::string_view text(reinterpret_cast<const char*>(data), size);
    const leq::ModelConfig config = leq::import_hf_config(text, "config.json");
    leq::check_config(config, "config.json");
    leq::config_from_json(leq::config_to_json(config), "again");
    for (const leq::RopeConfig& rope : config.ropes()) {
      leq::rope_frequencies(config, rope, config.context);
    }
  } catch (const leq::Error&) {
    // refusing the input is valid
  }
  return 0;
}
