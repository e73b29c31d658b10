# libleq_server: src/server, a separate library because only the server needs TLS. The files of its page are compiled
# into it.

file(GLOB server_sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/src/server/*.cpp)
# What answers a request's JSON without HTTP, which the C API has too (cmake/capi.cmake).
set(request_sources ${server_sources})
list(FILTER request_sources INCLUDE REGEX "/(api_(error|fields|model)|call_(format|settings)|chat_request\
|foreign_chat|generation|generation_call|grammar_store|tool_choice|reply_writer\
|(messages|openai|responses)_writer|(messages|responses)_request)\\.cpp$")
list(REMOVE_ITEM server_sources ${request_sources})
foreach(part frame:page.html style:page.css script:store.js script:math.js script:markdown.js script:page.js)
  string(REGEX MATCH "^(.*):(.*)$" _ ${part})
  set(name page_${CMAKE_MATCH_1})
  set(file ${PROJECT_SOURCE_DIR}/src/server/page/${CMAKE_MATCH_2})
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${file})
  file(READ ${file} text)
  string(APPEND ${name} "${text}")
endforeach()
configure_file(src/server/page_texts.cpp.in generated/server/page_texts.cpp @ONLY)

find_package(OpenSSL REQUIRED COMPONENTS SSL Crypto)
add_library(leq_requests STATIC ${request_sources})
target_link_libraries(leq_requests PUBLIC leq PRIVATE Threads::Threads leq_flags)
target_precompile_headers(leq_requests REUSE_FROM leq_objects)
leq_compile_by_folder(leq_requests)

add_library(leq_server STATIC ${server_sources} ${PROJECT_BINARY_DIR}/generated/server/page_texts.cpp)
target_link_libraries(leq_server PUBLIC leq_requests leq PRIVATE OpenSSL::SSL Threads::Threads leq_flags)
target_precompile_headers(leq_server REUSE_FROM leq_objects)
leq_compile_by_folder(leq_server)
