// The flags of leq-server as a table, and what the server is to be started with.
#pragma once

#include "server/server.h"
#include "tools/common/options.h"

namespace leq::server_tool {

ToolSpec server_tool_spec();

// Without what depends on the model: sampling and the engine. Throws Error where values contradict
// each other, and where a file of keys cannot be read.
ServerOptions read_server_options(const Options& options);

}  // namespace leq::server_tool
