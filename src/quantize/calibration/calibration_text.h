// The parts of the text that calibration runs on where the user gives none.
#pragma once

#include <string_view>

namespace leq {

std::string_view calibration_prose();     // stories, letters, dialogue, lists, numbers, code
std::string_view calibration_articles();  // as an encyclopaedia has them
std::string_view calibration_stories();   // as a small model tells them

}  // namespace leq
