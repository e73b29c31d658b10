// Reads lines from a terminal, with editing and history.
#pragma once

#include <memory>

#include "tools/run/line_reader.h"

namespace leq::run {

// Uses libedit, which draws on standard error, because standard output is only for replies. Pasted
// text is inserted as one text with its newlines and sent with the next Enter.
std::unique_ptr<LineReader> make_terminal_reader(bool colored);

}  // namespace leq::run
