// The tables of a report, made from results: what page, CSV files and JSON hold alike.
#pragma once

#include <string>
#include <vector>

#include "base/json.h"
#include "report/table.h"

namespace leq {

struct ReportTable {
  std::string id;     // of the file: "head_to_head"
  std::string title;  // for people
  Table table;
};

ReportTable head_to_head_table(const Json& results);
ReportTable pairs_table(const Json& results);  // paired tests of all pairs
ReportTable layers_table(const Json& results);
ReportTable weights_table(const Json& results);
ReportTable weight_histogram_table(const Json& results);
ReportTable activations_table(const Json& results);
ReportTable channels_table(const Json& results);
ReportTable activation_histogram_table(const Json& results);
ReportTable hidden_table(const Json& results);  // points on two axes
ReportTable calibration_table(const Json& results);
ReportTable inputs_table(const Json& results);
ReportTable contexts_table(const Json& results);
ReportTable batches_table(const Json& results);
ReportTable ranks_table(const Json& results);
ReportTable parts_table(const Json& results);  // latency by part, Table 5
ReportTable cache_bound_table(const Json& results);
ReportTable fusion_table(const Json& results);
ReportTable bits_table(const Json& results);
ReportTable choices_table(const Json& results);
ReportTable claims_table(const Json& results);

// The paper's own numbers, each row marked "reported": Tables 1, 2 and 5.
std::vector<ReportTable> reported_tables();

// All of the above that have rows.
std::vector<ReportTable> report_tables(const Json& results);

}  // namespace leq
