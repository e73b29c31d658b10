# System libraries that libleq is linked with. This file is installed for find_package(leq).

find_package(Threads REQUIRED)
find_package(OpenSSL REQUIRED COMPONENTS Crypto)

function(leq_system_library name header library package)
  if(TARGET ${name})
    return()
  endif()
  find_path(${name}_INCLUDE ${header})
  find_library(${name}_LIBRARY ${library})
  if(NOT ${name}_INCLUDE OR NOT ${name}_LIBRARY)
    message(FATAL_ERROR "${library} not found: apt install ${package} (or run `make deps`)")
  endif()
  add_library(${name} INTERFACE IMPORTED GLOBAL)
  target_include_directories(${name} SYSTEM INTERFACE ${${name}_INCLUDE})
  target_link_libraries(${name} INTERFACE ${${name}_LIBRARY})
endfunction()

leq_system_library(leq_xxhash xxhash.h xxhash libxxhash-dev)
leq_system_library(leq_pcre2 pcre2.h pcre2-8 libpcre2-dev)
leq_system_library(leq_utf8proc utf8proc.h utf8proc libutf8proc-dev)
