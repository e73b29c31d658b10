// Reports on standard error which operation a rank was in when SIGTERM ended it: mpirun ends all
// processes at once when one has died.
#pragma once

#include <cstdint>
#include <string_view>

namespace leq {

// Installs the SIGTERM handler, unless the process has one already.
void report_place_on_signal(int rank, int size);

// Marks the operation in which this rank waits, its site and the model's step, until destroyed. The
// texts must live as long.
class ReportedPlace {
 public:
  ReportedPlace(std::string_view operation, std::string_view site, std::int64_t step);
  ~ReportedPlace();
  ReportedPlace(const ReportedPlace&) = delete;
  ReportedPlace& operator=(const ReportedPlace&) = delete;
};

}  // namespace leq
