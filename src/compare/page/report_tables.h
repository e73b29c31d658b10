// The tables of a report, made from results, for the page, the CSV files and the JSON.
#pragma once

#include <string>
#include <vector>

#include "base/json.h"
#include "base/table.h"

namespace leq {

struct ReportTable {
  std::string id;     // file name: "head_to_head"
  std::string title;  // title for readers
  Table table;
};

ReportTable head_to_head_table(const Json& results);

// The paper's own tables, measured on this model (paper_tables.cpp); empty if a method is missing.
ReportTable matrix_table(const Json& results);      // Table 3, SmoothQuant beside GPTQ and AWQ
ReportTable eight_bits_table(const Json& results);  // Table 4, perplexities of 8 bits
ReportTable answers_table(const Json& results);     // what is found for each table and figure

// The paper's own numbers of Tables 1 to 5, each row marked "reported".
std::vector<ReportTable> reported_tables();

// All of the tables above and the other tables, if they have rows.
std::vector<ReportTable> report_tables(const Json& results);

}  // namespace leq
