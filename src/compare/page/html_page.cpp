#include "compare/page/html_page.h"

#include <algorithm>

#include "base/text.h"
#include "compare/analysis.h"
#include "compare/claims.h"
#include "compare/page/figures.h"
#include "report/svg.h"

namespace leq {
namespace {

std::string text_of(const Json& json) { return escaped(json.text()); }

std::string paragraph(const std::string& text) { return "<p>" + escaped(text) + "</p>\n"; }

constexpr double kColumn = 560;  // width of a grid column for figures

std::string figures_html(const std::vector<Figure>& figures) {
  if (figures.empty()) return "";
  std::string out = "<div class=\"figures\">\n";
  for (const Figure& figure : figures) {
    // Wide figures, such as heat maps of many layers, keep their size and scroll.
    const bool wide = figure.drawing.width() > kColumn;
    const bool fixed_size = figure.drawing.width() > 2 * kColumn;
    out += std::string("<figure class=\"") + (wide ? "wide" : "") + (fixed_size ? " fixed" : "") +
           "\"><h3>" + escaped(figure.title) + "</h3><div class=\"scroll\">" +
           figure.drawing.markup() + "</div>";
    if (!figure.caption.empty()) out += "<figcaption>" + escaped(figure.caption) + "</figcaption>";
    out += "</figure>\n";
  }
  return out + "</div>\n";
}

class PageWriter {
 public:
  PageWriter(const Json& results, const std::vector<ReportTable>& tables)
      : results_(results), tables_(tables) {}

  std::string write() {
    section("head", "Head to head", head_to_head());
    section("tests", "Which differences are real", significance());
    section("accuracy", "Accuracy",
            (results_["tasks"].empty() ? paragraph("No file of questions was given.") : "") +
                paragraph(
                    "A question's choices are appended to its context, and the most likely one is "
                    "the answer: acc by log-likelihood, acc_norm by log-likelihood for each "
                    "character.") +
                figures_html(choice_figures(results_)) + shown({"choices"}));
    section("layers", "Layer by layer", layers());
    section("distributions", "Weights, activations, hidden states",
            figures_html(distribution_figures(results_)) + folded({"weights"}) +
                paragraph("Inputs site by site and the points of histograms, maps and clouds are "
                          "in the CSV files and in "
                          "report.json."));
    section("curves", "Over calibration, context and batch",
            or_not_measured(figures_html(curve_figures(results_)) +
                            folded({"calibration", "inputs", "contexts", "batches", "ranks"})));
    section("latency", "Latency by part",
            or_not_measured(figures_html(latency_figures(results_)) + folded({"parts", "fusion"})));
    section("claims", "The paper's claims, tried here", claims());
    section("answers", "The paper's tables and figures, answered here", answers());
    section("reported", "Reported by the paper", reported());
    section("how", "How this was measured", method());
    return document();
  }

 private:
  // The charts and tables of a part, or "Not measured." if there are none.
  static std::string or_not_measured(const std::string& parts) {
    return parts.empty() ? paragraph("Not measured.") : parts;
  }

  void section(const std::string& id, const std::string& title, const std::string& body) {
    navigation_ += "<a href=\"#s-" + id + "\">" + escaped(title) + "</a>\n";
    body_ +=
        "<section id=\"s-" + id + "\"><h2>" + escaped(title) + "</h2>\n" + body + "</section>\n";
  }

  const ReportTable* find(const std::string& id) const {
    const auto found = std::ranges::find(tables_, id, &ReportTable::id);
    return found == tables_.end() ? nullptr : &*found;
  }
  std::string shown(const std::vector<std::string>& ids) const {
    std::string out;
    for (const std::string& id : ids) {
      if (const ReportTable* table = find(id)) {
        out += "<div class=\"table\" id=\"" + id + "\">" + table->table.html() + "</div>\n";
      }
    }
    return out;
  }
  std::string folded(const std::vector<std::string>& ids) const {
    std::string out;
    for (const std::string& id : ids) {
      const ReportTable* table = find(id);
      if (table == nullptr) continue;
      out += "<details><summary>" + escaped(table->title) + ": " +
             std::to_string(table->table.size()) + " rows</summary>\n" + shown({id}) +
             "</details>\n";
    }
    return out;
  }

  std::string titled(const std::vector<std::string>& ids) const {
    std::string out;
    for (const std::string& id : ids) {
      if (const ReportTable* table = find(id))
        out += "<h3>" + escaped(table->title) + "</h3>" + shown({id});
    }
    return out;
  }

  std::string head_to_head() const {
    return shown({"head_to_head"}) +
           paragraph(
               "Perplexity with its standard error over windows. KL: mean divergence of the "
               "next-token distributions from the unquantized model's, with a 95 % bootstrap "
               "interval. Speeds are medians. Memory is weights, cache and scratch for one "
               "window.") +
           figures_html(overview_figures(results_)) +
           (spindle_figures(results_).empty() ? "" : spindles());
  }

  std::string spindles() const {
    return "<details><summary>Spindles, as the paper's Figure 6</summary>" +
           figures_html(spindle_figures(results_)) + "</details>\n";
  }

  std::string matrix() const {
    const std::vector<std::string> specs = compared_specs(results_, false);
    const std::vector<PairOutcome> outcomes = pair_outcomes(results_, "window_kl");
    std::string out = "<div class=\"table\" id=\"matrix\"><table><thead><tr><th></th>";
    for (std::size_t i = 0; i < specs.size(); ++i) out += "<th>" + std::to_string(i + 1) + "</th>";
    out += "</tr></thead><tbody>\n";
    for (std::size_t i = 0; i < specs.size(); ++i) {
      out += "<tr><td>" + std::to_string(i + 1) + " " + escaped(specs[i]) + "</td>";
      for (const std::string& other : specs) {
        const auto outcome = pair_outcome(outcomes, specs[i], other);
        const std::string verdict = outcome ? outcome->verdict : "";
        out += verdict == "better"  ? "<td class=\"plus\" title=\"better\">+</td>"
               : verdict == "worse" ? "<td class=\"minus\" title=\"worse\">\xE2\x88\x92</td>"
               : outcome            ? "<td title=\"no difference shown\">\xC2\xB7</td>"
                                    : "<td></td>";
      }
      out += "</tr>\n";
    }
    return out + "</tbody></table></div>\n";
  }

  std::string significance() const {
    return paragraph(
               "KL divergence of each pair of methods, window by window: + where the method of "
               "the row is nearer to the unquantized model than that of the column, \xE2\x88\x92 "
               "where it is farther, \xC2\xB7 where the text does not tell. Paired t-tests, "
               "Bonferroni's correction over all pairs, 5 %.") +
           matrix() + folded({"pairs"});
  }

  std::string layers() const {
    return paragraph(
               "The paper says that errors grow as O(L e) over L layers (theorems 7 and 10); "
               "its proof ends with L e C^L, C the largest gain of a layer. Both stand beside "
               "what is measured, and beside the proof's own sum with the gains that were "
               "measured.") +
           or_not_measured(figures_html(layer_figures(results_)) +
                           folded({"layers", "bits", "cache_bound"}));
  }

  std::string claims() const {
    std::string out =
        "<div class=\"table wrap\" id=\"claims\"><table><thead><tr><th>The paper says</th><th>where"
        "</th><th>here</th><th>found</th></tr></thead><tbody>\n";
    for (const Claim& claim : try_claims(results_)) {
      out += "<tr><td>" + escaped(claim.text) + "</td><td>" + escaped(claim.place) +
             "</td><td><span class=\"badge v" + std::to_string(static_cast<int>(claim.verdict)) +
             "\">" + escaped(verdict_text(claim.verdict)) + "</span></td><td>" +
             escaped(claim.found) + "</td></tr>\n";
    }
    return out + "</tbody></table></div>\n" +
           paragraph("On one model, one text and one machine: another may say otherwise.");
  }

  std::string answers() const {
    return "<div class=\"wrap\">" + shown({"answers"}) + "</div>" + titled({"table3", "table4"});
  }

  std::string reported() const {
    std::string out = "<div class=\"reported\">" +
                      paragraph(
                          "Quoted from arXiv 2406.19657, not measured here: other models, "
                          "texts, machines and protocols. Nothing above compares with them.");
    for (const ReportTable& table : tables_) {
      if (table.id.starts_with("reported_")) out += titled({table.id});
    }
    return out + "</div>\n";
  }

  std::string method() const {
    const Json& text = results_["text"];
    const Json& calibration = results_["calibration_text"];
    std::string out = paragraph("Text: " + text["name"].text() + ", SHA-256 " +
                                text["sha256"].text() + ". Protocol " + text["protocol"].text() +
                                "; " + std::to_string(text["windows"].get<std::int64_t>()) +
                                " windows, " + with_commas(text["scored"].get<std::int64_t>()) +
                                " tokens scored. Keys and values are exact (f32) unless the method "
                                "is a cache; speeds are with a cache of f16.");
    out += paragraph("Calibration text: " + calibration["source"].text() + ", " +
                     std::to_string(calibration["windows"].get<std::int64_t>()) + " windows of " +
                     std::to_string(calibration["length"].get<std::int64_t>()) + " tokens.");
    out += "<div class=\"wrap\">" + titled({"not_measured"}) + "</div>";
    return out + paragraph(
                     "All numbers of this page, with every digit, are in report.json and the "
                     "CSV files beside it; those of a file are what leq-quantize, "
                     "leq-perplexity and leq-bench print, by the same functions.");
  }

  std::string facts() const {
    const Json& model = results_["model"];
    const Json& machine = results_["machine"];
    const std::pair<const char*, std::string> rows[] = {
        {"model", text_of(model["name"]) + ", " + text_of(model["description"]) + ", " +
                      with_commas(model["parameters"].get<std::int64_t>()) + " parameters, " +
                      std::to_string(model["layers"].get<std::int64_t>()) + " layers of width " +
                      std::to_string(model["width"].get<std::int64_t>())},
        {"text", text_of(results_["text"]["name"]) + ", " + text_of(results_["text"]["protocol"]) +
                     ", " + std::to_string(results_["text"]["windows"].get<std::int64_t>()) +
                     " windows"},
        {"machine", text_of(machine["cpu"]) + " (" + text_of(machine["isa"]) + ")"},
        {"made by", "leq " + text_of(results_["version"]) +
                        (results_["quick"].get<bool>() ? ", a quick comparison" : "")}};
    std::string out = "<dl class=\"facts\">";
    for (const auto& [name, value] : rows) {
      out += "<dt>" + std::string(name) + "</dt><dd>" + value + "</dd>\n";
    }
    return out + "</dl>\n";
  }

  // The candidate with the lowest KL, the smallest file below kNear, and the claims' outcomes.
  std::string tiles() const {
    std::string nearest, smallest;
    double least = 1e300, bytes = 1e300;
    for (const std::string& spec : compared_specs(results_, false)) {
      const double kl = kl_interval(results_, "quality", spec).mean;
      const double size = *result_number(results_, "file", spec, "file_bytes");
      const bool weights = size < 0.99 * *result_number(results_, "file", "base", "file_bytes");
      if (weights && kl < least) {
        least = kl;
        nearest = spec;
      }
      if (weights && kl < kNear && size < bytes) {
        bytes = size;
        smallest = spec;
      }
    }
    int refused = 0, tried = 0;
    for (const Claim& claim : try_claims(results_)) {
      tried += claim.verdict != ClaimVerdict::not_tried ? 1 : 0;
      refused += claim.verdict == ClaimVerdict::does_not_hold ? 1 : 0;
    }
    std::string out = "<div class=\"tiles\">";
    if (!nearest.empty()) {
      out += tile(nearest, "nearest to the unquantized model: KL " + fixed(least, 5) + " nats");
    }
    if (!smallest.empty()) {
      out += tile(smallest, "smallest file below KL " + fixed(kNear, 2) + ": " +
                                human_bytes(static_cast<std::uint64_t>(bytes)));
    }
    out += tile(fixed(*result_number(results_, "quality", "base", "ppl"), 3),
                "perplexity of the unquantized model");
    return out +
           tile(std::to_string(refused) + " of " + std::to_string(tried),
                "claims of the paper that do not hold here") +
           "</div>\n";
  }
  static std::string tile(const std::string& value, const std::string& text) {
    return "<div class=\"tile\"><b>" + escaped(value) + "</b><span>" + escaped(text) +
           "</span></div>\n";
  }

  std::string document() const {
    const std::string title = "Quantizing " + text_of(results_["model"]["name"]);
    return "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\n<meta "
           "name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n<meta "
           "name=\"color-scheme\" content=\"light dark\">\n<title>" +
           title + "</title>\n<style>" + std::string(chart_colours()) + std::string(chart_style()) +
           std::string(page_style()) + "</style></head>\n<body><main>\n<h1>" + title + "</h1>\n" +
           facts() + tiles() + "<nav>" + navigation_ + "</nav>\n" + body_ +
           "</main></body></html>\n";
  }

  static constexpr double kNear = 0.02;  // nats

  const Json& results_;
  const std::vector<ReportTable>& tables_;
  std::string navigation_, body_;
};

}  // namespace

std::string html_page(const Json& results, const std::vector<ReportTable>& tables) {
  return PageWriter(results, tables).write();
}

}  // namespace leq
