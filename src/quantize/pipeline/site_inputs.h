// The inputs of a layer's linears, which calibration identifies by their index in linear_sites.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "model/linear_sites.h"

namespace leq {

// The input's name in error messages: "layers.3.qkv".
std::string input_name(std::int64_t layer, const LinearSite& site);
// The quantized linears that read the site's input: {"q", "k", "v"}.
std::vector<std::string> parts_of(const LinearSite& site);
// Index of the site that contains a linear of the layer: 0 for "k". Throws Error if there is none.
std::size_t site_of(std::span<const LinearSite> sites, std::string_view part);
// Groups of sites that share a block of inputs, which are available together, in order.
std::vector<std::vector<std::size_t>> stages_of(std::span<const LinearSite> sites);
// Indices of all `sites`: 0, 1, ...
std::vector<std::size_t> all_sites(std::span<const LinearSite> sites);

}  // namespace leq
