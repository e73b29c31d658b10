# libleq: all folders of src and families in one library (tests/layering_test.cpp has the table of their layers), except
# the folders excluded below. The objects are compiled once for libleq.a and, with LEQ_SHARED, libleq-cpp.so.

file(GLOB_RECURSE sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/src/*.cpp
  ${PROJECT_SOURCE_DIR}/families/*.cpp
  ${PROJECT_SOURCE_DIR}/cuda/layout/*.cpp)  # the memory layout on GPUs: all builds plan for it
list(FILTER sources EXCLUDE REGEX "/src/runtime/devices/")  # cuda/CMakeLists.txt chooses
list(FILTER sources EXCLUDE REGEX "/src/server/")            # cmake/server.cmake
list(FILTER sources EXCLUDE REGEX "/src/hub/")               # cmake/hub.cmake
list(FILTER sources EXCLUDE REGEX "/src/ranks/mpi/")          # cmake/mpi.cmake
list(FILTER sources EXCLUDE REGEX "/src/capi/")              # cmake/capi.cmake
set(processor_sources ${sources})
list(FILTER processor_sources INCLUDE REGEX "/${LEQ_PROCESSOR}/[^/]+$")
list(FILTER sources EXCLUDE REGEX "/(linux|macos)/[^/]+$")
list(APPEND sources ${PROJECT_SOURCE_DIR}/src/base/${LEQ_SYSTEM}/system.cpp)
list(FILTER sources EXCLUDE REGEX "/(x86|arm|generic)/[^/]+$")

# Libraries that the objects are compiled and linked with.
set(leq_libraries Threads::Threads OpenSSL::Crypto leq_xxhash leq_pcre2 leq_utf8proc)
include(cmake/folders.cmake)
include(cmake/kernels.cmake)

# leq_objects_of(NAME SOURCES...): an object library; target_compile_options(NAME) gives it its flags.
function(leq_objects_of name)
  add_library(${name} OBJECT ${ARGN})
  target_include_directories(${name} PUBLIC ${PROJECT_SOURCE_DIR}/src ${PROJECT_SOURCE_DIR}
    ${PROJECT_BINARY_DIR}/generated)
  target_link_libraries(${name} PRIVATE leq_flags leq_json ${leq_libraries})
endfunction()

if(LEQ_KERNELS_OF)
  list(TRANSFORM processor_sources REPLACE "^${PROJECT_SOURCE_DIR}/(.*)$"
    "${LEQ_KERNELS_OF}/CMakeFiles/leq_kernels.dir/\\1.o" OUTPUT_VARIABLE objects)
  add_library(leq_kernels OBJECT IMPORTED)
  set_target_properties(leq_kernels PROPERTIES IMPORTED_OBJECTS "${objects}")
else()
  leq_objects_of(leq_kernels ${processor_sources})
endif()
leq_objects_of(leq_numbers ${number_sources})
target_compile_options(leq_numbers PRIVATE "${leq_numbers_flags}")
leq_compile_by_folder(leq_numbers)
leq_objects_of(leq_objects ${sources} ${PROJECT_BINARY_DIR}/generated/quantize/calibration/texts.cpp)
leq_objects_of(leq_once ${once_sources})
target_compile_options(leq_once PRIVATE "${leq_once_flags}")
foreach(name leq_objects leq_once)
  target_precompile_headers(${name} PRIVATE ${PROJECT_SOURCE_DIR}/cmake/standard_headers.h)
  leq_compile_by_folder(${name})
endforeach()

# leq_library(NAME TYPE): a library of all objects.
function(leq_library name type)
  add_library(${name} ${type} $<TARGET_OBJECTS:leq_kernels> $<TARGET_OBJECTS:leq_numbers>
    $<TARGET_OBJECTS:leq_objects> $<TARGET_OBJECTS:leq_once>)
  set_target_properties(${name} PROPERTIES OUTPUT_NAME leq LINKER_LANGUAGE CXX
    VERSION ${PROJECT_VERSION} SOVERSION ${PROJECT_VERSION_MAJOR}.${PROJECT_VERSION_MINOR})
  target_compile_features(${name} INTERFACE cxx_std_20)
  target_include_directories(${name} INTERFACE $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/src>
    $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}> $<BUILD_INTERFACE:${PROJECT_BINARY_DIR}/generated>
    $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}/leq>)
  target_link_libraries(${name} PRIVATE ${leq_libraries})
endfunction()

leq_library(leq STATIC)
if(LEQ_SHARED)
  leq_library(leq_shared SHARED)
  set_target_properties(leq_shared PROPERTIES OUTPUT_NAME leq-cpp)
endif()
