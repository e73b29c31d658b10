# leq_hub: src/hub, downloads by libcurl. A separate library because only the tools download. libcurl is loaded at run
# time (src/hub/web_client.h), so that only its headers are needed here; a static program cannot load it.
find_path(LEQ_CURL_INCLUDE curl/curl.h)
set(transport curl)
if(NOT LEQ_CURL_INCLUDE OR LEQ_STATIC)
  set(transport no_curl)
  message(STATUS "leq cannot download models: it is static, or libcurl4-openssl-dev is missing")
endif()
file(GLOB hub_sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/src/hub/*.cpp)
add_library(leq_hub STATIC ${hub_sources} ${PROJECT_SOURCE_DIR}/src/hub/transport/${transport}.cpp)
target_link_libraries(leq_hub PUBLIC leq PRIVATE ${CMAKE_DL_LIBS} leq_flags)
target_compile_options(leq_hub PRIVATE "${leq_once_flags}")
if(transport STREQUAL curl)
  target_include_directories(leq_hub SYSTEM PRIVATE ${LEQ_CURL_INCLUDE})
  target_compile_definitions(leq_hub PRIVATE CURL_DISABLE_DEPRECATION)  # names that libcurl 7.81 has too
endif()
target_precompile_headers(leq_hub REUSE_FROM leq_once)
leq_compile_by_folder(leq_hub)
