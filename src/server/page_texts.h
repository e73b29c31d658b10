// The three files of web, compiled in by CMake (cmake/server.cmake).
#pragma once

#include <string_view>

namespace leq {

std::string_view page_frame_text();
std::string_view page_style_text();
std::string_view page_script_text();

}  // namespace leq
