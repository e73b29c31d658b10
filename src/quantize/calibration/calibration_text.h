// The parts of the text that calibration runs on where the user gives none: files in texts/, which
// are compiled in. Most places and people of the articles are invented; the stories were told by
// the storyteller of examples/.
#pragma once

#include <string_view>

namespace leq {

std::string_view calibration_prose();     // stories, letters, dialogue, lists, numbers, code
std::string_view calibration_articles();  // as an encyclopaedia has them
std::string_view calibration_stories();   // as a small model tells them

}  // namespace leq
