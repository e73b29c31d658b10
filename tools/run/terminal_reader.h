// Lines typed on a terminal, with editing and history.
#pragma once

#include <memory>

#include "tools/run/line_reader.h"

namespace leq::run {

// By libedit, which draws on standard error: standard output carries replies alone. What is pasted
// is one text, its newlines included; it is sent with the next Enter.
std::unique_ptr<LineReader> make_terminal_reader();

}  // namespace leq::run
