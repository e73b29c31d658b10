// The four inputs of a block's linears, and which linears read which.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "model/model_config.h"
#include "model/workspace.h"

namespace leq {

inline constexpr std::array<Reader, 4> kBlockReaders = {Reader::qkv, Reader::o, Reader::gate_up,
                                                        Reader::down};

// By how errors name them: "layers.3.qkv".
std::string input_name(std::int64_t layer, Reader reader);
// The linears that read it: {"q", "k", "v"}.
std::vector<std::string> parts_of(Reader reader, const ModelConfig& config);
// What a linear reads: of "k" qkv.
Reader reader_of(std::string_view part);

}  // namespace leq
