// Counts launches of kernels whose names begin with a prefix, summed over instantiations.
#pragma once

#include <cstdint>
#include <string_view>

std::uint64_t launches_of(std::string_view kernels);
