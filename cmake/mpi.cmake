# libleq-mpi.so: ranks as MPI processes (src/ranks/mpi). Only processes started by mpirun load it; the tools are not
# linked with it and do not need MPI.
find_package(MPI COMPONENTS C QUIET)
if(NOT MPI_C_FOUND OR CMAKE_CROSSCOMPILING OR LEQ_SANITIZE OR LEQ_STATIC)
  return()
endif()
add_library(leq_mpi MODULE src/ranks/mpi/mpi_calls.cpp)
target_include_directories(leq_mpi PRIVATE ${PROJECT_SOURCE_DIR}/src)
# Without MPI's former C++ interface, which would need another library.
target_compile_definitions(leq_mpi PRIVATE OMPI_SKIP_MPICXX MPICH_SKIP_MPICXX)
target_link_libraries(leq_mpi PRIVATE MPI::MPI_C leq_flags)
set_target_properties(leq_mpi PROPERTIES OUTPUT_NAME leq-mpi
  LIBRARY_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR})
install(TARGETS leq_mpi LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}/leq COMPONENT mpi)
