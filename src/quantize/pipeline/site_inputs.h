// The inputs of a layer's linears by their index in linear_sites, as calibration identifies them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "model/linear_sites.h"

namespace leq {

// The input's name in errors: "layers.3.qkv".
std::string input_name(std::int64_t layer, const LinearSite& site);
// The quantized linears that read the input: {"q", "k", "v"}.
std::vector<std::string> parts_of(const LinearSite& site);
// Index of the site of a linear of the layer: 0 for "k". Throws Error where there is none.
std::size_t site_of(std::span<const LinearSite> sites, std::string_view part);
// Groups of sites whose inputs are available together, each list in order: sites of one block.
std::vector<std::vector<std::size_t>> stages_of(std::span<const LinearSite> sites);
// Indices of all `sites`: 0, 1, ...
std::vector<std::size_t> all_sites(std::span<const LinearSite> sites);

}  // namespace leq
