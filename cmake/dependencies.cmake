# System libraries. If one is missing, the configuration stops with the name of its Debian package.

function(leq_require found what package)
  if(NOT ${found})
    message(FATAL_ERROR "${what} not found: apt install ${package} (or run `make deps`)")
  endif()
endfunction()

find_package(OpenSSL COMPONENTS Crypto)
leq_require(OPENSSL_FOUND "OpenSSL's libcrypto" libssl-dev)
include(cmake/libraries.cmake)
leq_system_library(leq_libedit histedit.h edit libedit-dev)
if(LEQ_STATIC)  # libraries that libedit.so is linked with
  foreach(name tinfo bsd md)
    find_library(leq_${name}_LIBRARY ${name} REQUIRED)
    target_link_libraries(leq_libedit INTERFACE ${leq_${name}_LIBRARY})
  endforeach()
endif()

find_path(LEQ_JSON_INCLUDE nlohmann/json.hpp)
leq_require(LEQ_JSON_INCLUDE "nlohmann-json" nlohmann-json3-dev)
add_library(leq_json INTERFACE)
target_include_directories(leq_json SYSTEM INTERFACE ${LEQ_JSON_INCLUDE})

find_path(LEQ_CXXOPTS_INCLUDE cxxopts.hpp)
leq_require(LEQ_CXXOPTS_INCLUDE "cxxopts" libcxxopts-dev)
add_library(leq_cxxopts INTERFACE)
target_include_directories(leq_cxxopts SYSTEM INTERFACE ${LEQ_CXXOPTS_INCLUDE})
