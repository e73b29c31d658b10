# Installation of the library beside the tools: libleq.a, its headers (without those of the CPU kernels, the server and
# the tools), and the files of find_package(leq) with the target leq::leq. With LEQ_SHARED also libleq-cpp.so
# (leq::leq_shared) and the C API: leq.h, libleq.so (leq::leq_c) and leq.pc for pkg-config.
include(CMakePackageConfigHelpers)

set(LEQ_WITH_CUDA FALSE)
if(TARGET leq_cuda)
  set(LEQ_WITH_CUDA TRUE)
endif()
set(libraries leq)
if(LEQ_SHARED)
  list(APPEND libraries leq_shared leq_c)
  install(FILES src/capi/leq.h DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} COMPONENT dev)
  # At installation, because `cmake --install --prefix` may change the prefix.
  install(CODE "set(PROJECT_VERSION ${PROJECT_VERSION})
    set(CMAKE_INSTALL_LIBDIR ${CMAKE_INSTALL_LIBDIR})
    set(CMAKE_INSTALL_INCLUDEDIR ${CMAKE_INSTALL_INCLUDEDIR})
    configure_file(${PROJECT_SOURCE_DIR}/cmake/leq.pc.in ${PROJECT_BINARY_DIR}/leq.pc @ONLY)" COMPONENT dev)
  install(FILES ${PROJECT_BINARY_DIR}/leq.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig COMPONENT dev)
endif()
set(package ${CMAKE_INSTALL_LIBDIR}/cmake/leq)
install(TARGETS ${libraries} EXPORT leqTargets LIBRARY NAMELINK_COMPONENT dev ARCHIVE COMPONENT dev)
install(EXPORT leqTargets NAMESPACE leq:: DESTINATION ${package} COMPONENT dev)

set(headers ${CMAKE_INSTALL_INCLUDEDIR}/leq)
install(DIRECTORY src/ DESTINATION ${headers} COMPONENT dev FILES_MATCHING PATTERN "*.h"
  PATTERN cpu EXCLUDE PATTERN x86 EXCLUDE PATTERN arm EXCLUDE PATTERN generic EXCLUDE PATTERN server EXCLUDE PATTERN capi EXCLUDE
  PATTERN hub EXCLUDE)
install(DIRECTORY families DESTINATION ${headers} COMPONENT dev FILES_MATCHING PATTERN "*.h")
install(FILES ${PROJECT_BINARY_DIR}/generated/base/version.h DESTINATION ${headers}/base
  COMPONENT dev)

configure_package_config_file(cmake/leqConfig.cmake.in ${PROJECT_BINARY_DIR}/leqConfig.cmake
  INSTALL_DESTINATION ${package})
write_basic_package_version_file(${PROJECT_BINARY_DIR}/leqConfigVersion.cmake
  COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/leqConfig.cmake ${PROJECT_BINARY_DIR}/leqConfigVersion.cmake
  cmake/libraries.cmake DESTINATION ${package} COMPONENT dev)

install(FILES LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR} RENAME copyright)
install(FILES README.md CHANGELOG.md DESTINATION ${CMAKE_INSTALL_DOCDIR})
install(DIRECTORY docs DESTINATION ${CMAKE_INSTALL_DOCDIR} FILES_MATCHING PATTERN "*.md")
if(LEQ_SERVICE)
  configure_file(packaging/systemd/leq-server.service generated/package/leq-server.service @ONLY)
  install(FILES ${PROJECT_BINARY_DIR}/generated/package/leq-server.service DESTINATION lib/systemd/system)
  install(FILES packaging/systemd/server.conf DESTINATION /etc/leq)
endif()
