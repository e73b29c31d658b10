#include "compare/page/write_report.h"

#include "compare/claims.h"
#include "compare/page/figures.h"
#include "compare/page/html_page.h"
#include "compare/page/report_tables.h"
#include "compare/result_store.h"

namespace leq {
namespace {

// The facts, followed by every table as an array of objects; keys keep their order.
std::string report_json(const Json& results, const std::vector<ReportTable>& tables) {
  std::string out = "{\n";
  for (const char* key : {"model", "machine", "text", "calibration_text", "quick", "version"}) {
    out += Json(key).dump() + ": " + results[key].dump_any() + ",\n";
  }
  for (std::size_t i = 0; i < tables.size(); ++i) {
    out += Json(tables[i].id).dump() + ": " + tables[i].table.json();
    out += i + 1 < tables.size() ? ",\n" : "";
  }
  return out + "}\n";
}

std::string terminal_summary(const Json& results) {
  std::string out = head_to_head_table(results).table.text() + "\n";
  for (const Claim& claim : try_claims(results)) {
    if (claim.verdict == ClaimVerdict::not_tried) continue;
    out += std::string(verdict_text(claim.verdict)) + ": " + claim.text + " (" + claim.place +
           ")\n    " + claim.found + "\n";
  }
  return out;
}

}  // namespace

WrittenReport write_report(const Json& results, const std::filesystem::path& folder) {
  const std::vector<ReportTable> tables = report_tables(results);
  const std::string page = html_page(results, tables);
  write_whole_file(folder / "report.json", report_json(results, tables));
  for (const ReportTable& table : tables) {
    write_whole_file(folder / (table.id + ".csv"), table.table.csv());
  }
  write_whole_file(folder / "size_and_kl.svg", pareto_figure(results, 720, 420).drawing.document());
  write_whole_file(folder / "index.html", page);
  return {folder / "index.html", page.size(), terminal_summary(results)};
}

}  // namespace leq
