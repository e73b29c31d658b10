# The CPU kernels: one file for each kernel and instruction set, each compiled with just the flags of
# its set; chosen at run time (src/backend/cpu/kernels.h).

file(GLOB cpu_sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/src/backend/cpu/*.cpp)
target_sources(leq_backend PRIVATE ${cpu_sources})
if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
  file(GLOB v3_sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/src/backend/cpu/x86/*_v3.cpp)
  file(GLOB avx2_sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/src/backend/cpu/x86/*_avx2.cpp)
  file(GLOB vnni_sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/src/backend/cpu/x86/*_avx512vnni.cpp)
  set_source_files_properties(${v3_sources} ${avx2_sources} PROPERTIES
    COMPILE_OPTIONS "-march=x86-64-v3;-O3")
  # g++ 12's own AVX-512 header reads a value that it leaves undefined on purpose: no warning for it.
  set_source_files_properties(${vnni_sources} PROPERTIES COMPILE_OPTIONS
    "-march=x86-64-v4;-mavx512vnni;-mprefer-vector-width=512;-O3;-Wno-uninitialized;-Wno-maybe-uninitialized")
  target_sources(leq_backend PRIVATE ${v3_sources} ${avx2_sources} ${vnni_sources})
endif()
