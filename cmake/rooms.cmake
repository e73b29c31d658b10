# One static library for each room, with links only to the rooms it may use, and the flags that the
# arithmetic depends on: no fused multiply-add that the source does not write, no fast-math.

# -Wno-restrict: g++ 12 sees overlaps in "text" + std::string at -O3 that are not there.
add_library(leq_flags INTERFACE)
target_compile_options(leq_flags INTERFACE -ffp-contract=off -fno-math-errno -Wall -Wextra -Wshadow
  -Wconversion -Wno-sign-conversion -Wnon-virtual-dtor -Wold-style-cast -Wno-psabi
  -Wno-missing-field-initializers $<$<CXX_COMPILER_ID:GNU>:-Wno-restrict>)
if(LEQ_WERROR)
  target_compile_options(leq_flags INTERFACE -Werror)
endif()
if(LEQ_SANITIZE)
  # g++ 12 with sanitizers doubts its own std::regex.
  target_compile_options(leq_flags INTERFACE -fsanitize=${LEQ_SANITIZE} -fno-omit-frame-pointer
    -fno-sanitize-recover=all -Wno-maybe-uninitialized)
  target_link_options(leq_flags INTERFACE -fsanitize=${LEQ_SANITIZE})
endif()
if(LEQ_FUZZ)
  target_compile_options(leq_flags INTERFACE -fsanitize=fuzzer-no-link)
endif()

# leq_room(NAME FOLDER [PARTS ...] [ROOMS ...] [LIBRARIES ...] [PRIVATE_LIBRARIES ...]): the sources
# of the folder and of its parts, folders in it.
function(leq_room name folder)
  cmake_parse_arguments(ROOM "" "" "PARTS;ROOMS;LIBRARIES;PRIVATE_LIBRARIES" ${ARGN})
  set(patterns ${PROJECT_SOURCE_DIR}/${folder}/*.cpp)
  foreach(part IN LISTS ROOM_PARTS)
    list(APPEND patterns ${PROJECT_SOURCE_DIR}/${folder}/${part}/*.cpp)
  endforeach()
  file(GLOB sources CONFIGURE_DEPENDS ${patterns})
  list(TRANSFORM ROOM_ROOMS PREPEND leq_)
  if(sources)
    add_library(leq_${name} STATIC ${sources})
    set(scope PUBLIC)
    target_link_libraries(leq_${name} PRIVATE ${ROOM_PRIVATE_LIBRARIES} leq_flags)
  else()
    add_library(leq_${name} INTERFACE)
    set(scope INTERFACE)
  endif()
  target_include_directories(leq_${name} ${scope} ${PROJECT_SOURCE_DIR}/src ${PROJECT_SOURCE_DIR}
    ${PROJECT_BINARY_DIR}/generated)
  target_link_libraries(leq_${name} ${scope} ${ROOM_ROOMS} ${ROOM_LIBRARIES})
  # Rooms in which nlohmann-json appears in headers see it through json_fwd.hpp only.
  target_link_libraries(leq_${name} ${scope} leq_json)
endfunction()
