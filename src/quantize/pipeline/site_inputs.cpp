#include "quantize/pipeline/site_inputs.h"

#include <algorithm>
#include <numeric>

#include "base/error.h"
#include "model/tensor_list.h"

namespace leq {

std::string input_name(std::int64_t layer, const LinearSite& site) {
  return layer_tensor(layer, site.name);
}

std::vector<std::string> parts_of(const LinearSite& site) {
  std::vector<std::string> parts;
  for (const LinearSpec& weight : site.coded_weights()) parts.push_back(weight.name);
  return parts;
}

std::size_t site_of(std::span<const LinearSite> sites, std::string_view part) {
  for (std::size_t i = 0; i < sites.size(); ++i) {
    if (std::ranges::find(sites[i].weights, part, &LinearSpec::name) != sites[i].weights.end()) {
      return i;
    }
  }
  fail(ErrorKind::internal, "layer: no linear ", part);
}

std::vector<std::vector<std::size_t>> stages_of(std::span<const LinearSite> sites) {
  std::vector<std::vector<std::size_t>> stages;
  for (std::size_t i = 0; i < sites.size(); ++i) {
    const bool same_block = i > 0 && sites[i].block_name() == sites[i - 1].block_name();
    if (!same_block) stages.emplace_back();
    stages.back().push_back(i);
  }
  return stages;
}

std::vector<std::size_t> all_sites(std::span<const LinearSite> sites) {
  std::vector<std::size_t> all(sites.size());
  std::iota(all.begin(), all.end(), std::size_t{0});
  return all;
}

}  // namespace leq
