# Operating system and processor family of the build. The system's source is src/base/SYSTEM/system.cpp. A family's
# sources are in folders of its name: src/base/FAMILY, src/backend/cpu/kernels/FAMILY,
# src/quantize/linear_algebra/FAMILY. `generic` has only the portable kernels.

if(CMAKE_SYSTEM_PROCESSOR MATCHES "^(x86_64|AMD64|amd64)$")
  set(family x86)
elseif(CMAKE_SYSTEM_PROCESSOR MATCHES "^(aarch64|arm64|ARM64)$")
  set(family arm)
else()
  set(family generic)
endif()
set(LEQ_PROCESSOR ${family} CACHE STRING "Processor family: x86 | arm | generic")
if(APPLE)
  set(LEQ_SYSTEM macos)
else()
  set(LEQ_SYSTEM linux)
endif()
