# libleq_server: src/server, a separate library because only the server needs TLS. The files of its page are compiled
# into it.

file(GLOB server_sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/src/server/*.cpp)
# leq_requests: answers to JSON requests without HTTP, which the C API also uses (cmake/capi.cmake).
set(request_sources ${server_sources})
list(FILTER request_sources INCLUDE REGEX "/(dialects|fields|generation|grammar_store|messages|ollama|openai|request|responses)\\.cpp$")
list(REMOVE_ITEM server_sources ${request_sources})
foreach(part frame:page.html style:page.css script:store.js script:math.js script:markdown.js script:page.js)
  string(REGEX MATCH "^(.*):(.*)$" _ ${part})
  set(name page_${CMAKE_MATCH_1})
  set(file ${PROJECT_SOURCE_DIR}/web/${CMAKE_MATCH_2})
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${file})
  file(READ ${file} text)
  string(APPEND ${name} "${text}")
endforeach()
file(CONFIGURE OUTPUT ${PROJECT_BINARY_DIR}/generated/server/page_texts.h @ONLY CONTENT
[[// Made by cmake/server.cmake from the files in web.
#pragma once

#include <string_view>

namespace leq {

inline constexpr std::string_view kPageFrame = R"leq_text(@page_frame@)leq_text";
inline constexpr std::string_view kPageStyle = R"leq_text(@page_style@)leq_text";
inline constexpr std::string_view kPageScript = R"leq_text(@page_script@)leq_text";

}  // namespace leq
]])

find_package(OpenSSL REQUIRED COMPONENTS SSL Crypto)
add_library(leq_requests STATIC ${request_sources})
target_link_libraries(leq_requests PUBLIC leq PRIVATE Threads::Threads leq_flags)
target_precompile_headers(leq_requests REUSE_FROM leq_objects)
leq_compile_by_folder(leq_requests)

add_library(leq_server STATIC ${server_sources})
target_link_libraries(leq_server PUBLIC leq_requests leq PRIVATE OpenSSL::SSL Threads::Threads leq_flags)
target_precompile_headers(leq_server REUSE_FROM leq_objects)
leq_compile_by_folder(leq_server)
