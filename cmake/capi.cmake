# The C API (src/capi/leq.h): libleq.so.N, where N is the ABI version. It contains the whole library and exports only
# leq_*. The static library leq_capi, for tests and the Python extension, is part of all builds; the shared one needs
# position-independent code (LEQ_SHARED).

set(LEQ_ABI_VERSION 1)
file(GLOB capi_sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/src/capi/*.cpp)
add_library(leq_capi STATIC ${capi_sources})
target_include_directories(leq_capi INTERFACE ${PROJECT_SOURCE_DIR}/src/capi)
target_link_libraries(leq_capi PUBLIC leq_requests leq PRIVATE leq_flags)
target_compile_options(leq_capi PRIVATE "${leq_once_flags}")
target_precompile_headers(leq_capi REUSE_FROM leq_once)
leq_compile_by_folder(leq_capi)

if(LEQ_SHARED)
  set(map ${PROJECT_SOURCE_DIR}/src/capi/leq.map)
  file(CONFIGURE OUTPUT ${PROJECT_BINARY_DIR}/generated/capi/nothing.c CONTENT "")
  add_library(leq_c SHARED ${PROJECT_BINARY_DIR}/generated/capi/nothing.c)
  set_target_properties(leq_c PROPERTIES OUTPUT_NAME leq LINKER_LANGUAGE CXX LINK_DEPENDS ${map}
    VERSION ${LEQ_ABI_VERSION}.${PROJECT_VERSION} SOVERSION ${LEQ_ABI_VERSION})
  target_include_directories(leq_c INTERFACE $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/src/capi>
    $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
  target_link_libraries(leq_c PRIVATE "-Wl,--whole-archive" leq_capi "-Wl,--no-whole-archive"
    "-Wl,--version-script=${map}" "-Wl,--no-undefined" "-Wl,--gc-sections" "-Wl,--as-needed")
endif()
