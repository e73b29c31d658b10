# The CPU kernels: one file for each kernel and instruction set, each compiled with just the flags of
# its set; chosen at run time (src/backend/cpu/kernel_levels.h). What belongs to one processor family
# lies in a folder of its own, beside what it is a version of (cmake/processor.cmake).

# leq_processor_sources(ROOM FOLDERS...): adds FOLDER/FAMILY/*.cpp of each folder to the room.
function(leq_processor_sources room)
  foreach(folder IN LISTS ARGN)
    file(GLOB sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/src/${folder}/${LEQ_PROCESSOR}/*.cpp)
    target_sources(leq_${room} PRIVATE ${sources})
    set_property(GLOBAL APPEND PROPERTY leq_processor_sources ${sources})
  endforeach()
endfunction()

leq_processor_sources(base base)
leq_processor_sources(backend backend/cpu backend/cpu/matmul backend/cpu/attention backend/cpu/rows)
leq_processor_sources(quantize quantize/linear_algebra)
leq_processor_sources(eval eval/limits)

# leq_kernel_flags(NAME FLAGS...): of the files that end in _NAME.cpp
function(leq_kernel_flags name)
  get_property(sources GLOBAL PROPERTY leq_processor_sources)
  list(FILTER sources INCLUDE REGEX "_${name}\\.cpp$")
  set_source_files_properties(${sources} PROPERTIES COMPILE_OPTIONS "${ARGN}")
endfunction()

if(LEQ_PROCESSOR STREQUAL "x86")
  leq_kernel_flags(v3 -march=x86-64-v3 -O3)
  leq_kernel_flags(avx2 -march=x86-64-v3 -O3)
  # g++ 12's own AVX-512 header reads a value that it leaves undefined on purpose: no warning for it.
  leq_kernel_flags(avx512vnni -march=x86-64-v4 -mavx512vnni -mprefer-vector-width=512 -O3
    -Wno-uninitialized -Wno-maybe-uninitialized)
  leq_kernel_flags(avx512amx -march=x86-64-v4 -mavx512vnni -mamx-tile -mamx-int8
    -mprefer-vector-width=512 -O3 -Wno-uninitialized -Wno-maybe-uninitialized)
elseif(LEQ_PROCESSOR STREQUAL "arm")
  # Without this scheduler g++ 12 keeps the accumulators in registers; with it, it moves loads up
  # until they do not fit.
  leq_kernel_flags(neon -O3 -fno-schedule-insns)
  leq_kernel_flags(dotprod -march=armv8.2-a+dotprod -O3 -fno-schedule-insns)
endif()
