// Options of leq-server as a table, and the server's options that they describe.
#pragma once

#include "server/server.h"
#include "tools/common/options.h"

namespace leq::server_tool {

ToolSpec server_tool_spec();

// The options that --models-preset may set for single models.
ToolSpec model_preset_spec();
// Reads the options of replies that do not depend on the model.
void read_replies(const Options& options, HostOptions& host);

// Reads all options except those that depend on the model: sampling and the engine. Throws Error if
// values contradict each other or if a file of keys cannot be read.
ServerOptions read_server_options(const Options& options);

}  // namespace leq::server_tool
