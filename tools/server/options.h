// Options of leq-server as a table, and the server's options that they describe.
#pragma once

#include "server/server.h"
#include "tools/common/options.h"

namespace leq::server_tool {

ToolSpec server_tool_spec();

// Reads all options except those that depend on the model: sampling and the engine. Throws Error if
// values contradict each other or if a file of keys cannot be read.
ServerOptions read_server_options(const Options& options);

}  // namespace leq::server_tool
