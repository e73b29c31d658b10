# Source files of the CUDA backend, for cuda/CMakeLists.txt and for the separate build of bench/gpu.
file(GLOB leq_cuda_kernels CONFIGURE_DEPENDS ${CMAKE_CURRENT_LIST_DIR}/kernels/*/*.cu)
file(GLOB leq_cuda_host CONFIGURE_DEPENDS ${CMAKE_CURRENT_LIST_DIR}/host/*.cpp)
file(GLOB leq_cuda_device CONFIGURE_DEPENDS ${CMAKE_CURRENT_LIST_DIR}/device/*.cu
  ${CMAKE_CURRENT_LIST_DIR}/device/*.cpp)
file(GLOB leq_cuda_emulator CONFIGURE_DEPENDS ${CMAKE_CURRENT_LIST_DIR}/emulated/*.cpp
  ${CMAKE_CURRENT_LIST_DIR}/sim/*.cpp)
