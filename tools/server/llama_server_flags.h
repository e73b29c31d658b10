// Flags of llama-server that are not options here, in addition to those of all llama.cpp tools.
#pragma once

#include <span>

#include "tools/common/options.h"

namespace leq::server_tool {

std::span<const ForeignOption> llama_server_flags();

}  // namespace leq::server_tool
