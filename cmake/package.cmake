# cpack -G DEB: one package of tools, libraries and headers. What it depends on is read from the programs.
set(CPACK_PACKAGE_NAME leq)
set(CPACK_PACKAGE_VENDOR "The leq developers")
set(CPACK_PACKAGE_CONTACT "The leq developers <leq@localhost>")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "runs quantized language models on your own machine")
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_STRIP_FILES ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SECTION science)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
# libleq.so.1 is the package's own.
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS_PRIVATE_DIRS ${PROJECT_BINARY_DIR})
set(CPACK_DEBIAN_PACKAGE_RECOMMENDS "libopenmpi3")
set(CPACK_DEBIAN_PACKAGE_CONTROL_STRICT_PERMISSION ON)
file(CONFIGURE OUTPUT ${PROJECT_BINARY_DIR}/generated/package/triggers
  CONTENT "activate-noawait ldconfig\n")
set(CPACK_DEBIAN_PACKAGE_CONTROL_EXTRA ${PROJECT_BINARY_DIR}/generated/package/triggers)
include(CPack)
