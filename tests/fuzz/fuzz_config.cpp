// Any bytes as config.json: they give a configuration that passes its checks, or an Error.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/error.h"
#include "base/json.h"
#include "convert/hf_import.h"
#include "model/rope.h"

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
