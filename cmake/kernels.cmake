# The CPU kernels: one file for each kernel and instruction set, each compiled with just the flags of
# its set; chosen at run time (src/backend/cpu/kernel_levels.h). What belongs to one processor family
# lies in a folder of its own (cmake/processor.cmake).

file(GLOB processor_sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/src/base/${LEQ_PROCESSOR}/*.cpp)
target_sources(leq_base PRIVATE ${processor_sources})

set(cpu ${PROJECT_SOURCE_DIR}/src/backend/cpu)
file(GLOB cpu_sources CONFIGURE_DEPENDS ${cpu}/*.cpp ${cpu}/${LEQ_PROCESSOR}/*.cpp)
target_sources(leq_backend PRIVATE ${cpu_sources})

set(algebra ${PROJECT_SOURCE_DIR}/src/quantize/linear_algebra)
file(GLOB algebra_sources CONFIGURE_DEPENDS ${algebra}/${LEQ_PROCESSOR}/*.cpp)
target_sources(leq_quantize PRIVATE ${algebra_sources})

# leq_kernel_flags(NAME FLAGS...): of the files that end in _NAME.cpp
function(leq_kernel_flags name)
  file(GLOB sources CONFIGURE_DEPENDS ${cpu}/${LEQ_PROCESSOR}/*_${name}.cpp
    ${algebra}/${LEQ_PROCESSOR}/*_${name}.cpp)
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
