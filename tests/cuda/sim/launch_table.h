// Launches so far of the kernels whose names begin so, all instantiations together.
#pragma once

#include <cstdint>
#include <string_view>

std::uint64_t launches_of(std::string_view kernels);
