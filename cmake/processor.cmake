# The family of the processor that the build is for. Folders of this name hold what only it has:
# src/base/FAMILY and src/backend/cpu/kernels/FAMILY. `generic` runs anywhere, with the portable kernels.

if(CMAKE_SYSTEM_PROCESSOR MATCHES "^(x86_64|AMD64|amd64)$")
  set(family x86)
elseif(CMAKE_SYSTEM_PROCESSOR MATCHES "^(aarch64|arm64|ARM64)$")
  set(family arm)
else()
  set(family generic)
endif()
set(LEQ_PROCESSOR ${family} CACHE STRING "Processor family: x86 | arm | generic")
