// A self-contained HTML page: text, figures, tables and style sheet.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "compare/page/report_tables.h"

namespace leq {

std::string html_page(const Json& results, const std::vector<ReportTable>& tables);

// The page's style sheet, without that of its charts.
std::string_view page_style();

}  // namespace leq
