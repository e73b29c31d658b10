// Runs programs as MPI processes.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "tools/process.h"

namespace leq::test {

// Returns why MPI is unavailable; "" if it is available.
inline std::string no_mpi() {
  if (!std::filesystem::exists("/usr/bin/mpirun")) return "mpirun is not here (openmpi-bin)";
  if (!std::filesystem::exists(LEQ_BINARY_DIR "/libleq-mpi.so")) {
    return "this build has no MPI (libopenmpi-dev)";
  }
  return "";
}

// `more` are additional words for mpirun. `own_folder` is where mpirun keeps its own files, because
// two instances that start at once in the same folder fail.
inline Finished run_by_mpi(const std::string& own_folder, int processes,
                           const std::vector<std::string>& command,
                           const std::vector<std::string>& more = {}) {
  std::vector<std::string> words = {"/usr/bin/mpirun",
                                    "--oversubscribe",
                                    "--allow-run-as-root",
                                    "--mca",
                                    "orte_tmpdir_base",
                                    own_folder,
                                    "-np",
                                    std::to_string(processes)};
  words.insert(words.end(), more.begin(), more.end());
  words.insert(words.end(), command.begin(), command.end());
  return run(words, "");
}

}  // namespace leq::test
