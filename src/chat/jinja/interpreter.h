// Runs a compiled template over a conversation.
#pragma once

#include <string_view>
#include <utility>
#include <vector>

#include "chat/jinja/context.h"
#include "chat/jinja/syntax.h"

namespace leq::jinja {

using Variables = std::vector<std::pair<std::string_view, Value>>;

// Returns the whole text. The variables' values are in the context's heap, and their names must
// outlive the call. Throws Error naming the source, the line and the cause: an unsupported feature,
// an error that the template raises (raise_exception), or an exceeded limit.
Text run(const Syntax& syntax, const Variables& variables, Context& context);

}  // namespace leq::jinja
