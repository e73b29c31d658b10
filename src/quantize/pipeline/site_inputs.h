// The inputs of a layer's linears as calibration names them, by their place in linear_sites.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "model/linear_sites.h"

namespace leq {

// By how errors name it: "layers.3.qkv".
std::string input_name(std::int64_t layer, const LinearSite& site);
// The linears that read it and are quantized: {"q", "k", "v"}.
std::vector<std::string> parts_of(const LinearSite& site);
// Which site a linear of the layer belongs to: that of "k" is 0. Throws Error where there is none.
std::size_t site_of(std::span<const LinearSite> sites, std::string_view part);
// Sites whose inputs are there at one time, each list in order: those of one block together.
std::vector<std::vector<std::size_t>> stages_of(std::span<const LinearSite> sites);
// All of `sites`: 0, 1, ...
std::vector<std::size_t> all_sites(std::span<const LinearSite> sites);

}  // namespace leq
