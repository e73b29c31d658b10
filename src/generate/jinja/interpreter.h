// Runs a template over a conversation.
#pragma once

#include <string_view>
#include <utility>
#include <vector>

#include "generate/jinja/context.h"
#include "generate/jinja/syntax.h"

namespace leq::jinja {

using Variables = std::vector<std::pair<std::string_view, Value>>;

// The whole text. The variables' values live in the context's heap, their names as long as the
// call. Throws Error naming the source, the line and what went wrong: what is not supported, what
// the template itself refuses (raise_exception), and where it takes more than it may.
Text run(const Syntax& syntax, const Variables& variables, Context& context);

}  // namespace leq::jinja
