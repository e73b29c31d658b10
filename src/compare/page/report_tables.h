// The tables of a report, made from results, shared by the page, the CSV files and the JSON.
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

// The paper's own tables, measured on this model (paper_tables.cpp); empty if a method is absent.
ReportTable matrix_table(const Json& results);      // Table 3, SmoothQuant beside GPTQ and AWQ
ReportTable eight_bits_table(const Json& results);  // Table 4, perplexities of 8 bits
ReportTable answers_table(const Json& results);     // each table and figure: what is found here

// The paper's own numbers, each row marked "reported": Tables 1 to 5.
std::vector<ReportTable> reported_tables();

// All tables above and the others that have rows.
std::vector<ReportTable> report_tables(const Json& results);

}  // namespace leq
