#include "report/svg.h"

#include <algorithm>
#include <cmath>

#include "base/text.h"

namespace leq {
namespace {

constexpr std::string_view kChartStyle = R"(
.chart{display:block;width:100%;height:auto;font:13px/1.2 system-ui,-apple-system,"Segoe UI",Roboto,sans-serif}
.chart text{fill:var(--ink)}
.chart .small{font-size:11px}
.chart .muted{fill:var(--muted)}
.chart .strong{font-weight:600}
.chart .axis{stroke:var(--muted);stroke-width:1;fill:none}
.chart .grid{stroke:var(--grid);stroke-width:1;fill:none}
.chart .mark{stroke:var(--muted);stroke-width:1.5;fill:none;stroke-dasharray:5 4}
.chart .frame{fill:none;stroke:var(--grid)}
.chart .halo{stroke:var(--paper);stroke-width:3;paint-order:stroke;stroke-linejoin:round}
.chart .heat-dark{fill:var(--on-high)}
.chart .heat-light{fill:var(--ink)}
.chart .none{fill:var(--grid)}
.chart [class^="line-"]{fill:none;stroke-width:2;stroke-linejoin:round}
.chart .thin{stroke-width:1.2}
.chart .dashed{stroke-dasharray:5 4}
.chart .fill-0{fill:var(--c0)}.chart .fill-1{fill:var(--c1)}.chart .fill-2{fill:var(--c2)}.chart .fill-3{fill:var(--c3)}
.chart .fill-4{fill:var(--c4)}.chart .fill-5{fill:var(--c5)}.chart .fill-6{fill:var(--c6)}.chart .fill-7{fill:var(--c7)}
.chart .line-0{stroke:var(--c0)}.chart .line-1{stroke:var(--c1)}.chart .line-2{stroke:var(--c2)}.chart .line-3{stroke:var(--c3)}
.chart .line-4{stroke:var(--c4)}.chart .line-5{stroke:var(--c5)}.chart .line-6{stroke:var(--c6)}.chart .line-7{stroke:var(--c7)}
.chart .heat-0{fill:var(--h0)}.chart .heat-1{fill:var(--h1)}.chart .heat-2{fill:var(--h2)}.chart .heat-3{fill:var(--h3)}
.chart .heat-4{fill:var(--h4)}.chart .heat-5{fill:var(--h5)}.chart .heat-6{fill:var(--h6)}.chart .heat-7{fill:var(--h7)}
)";

constexpr std::string_view kChartColourRules = R"(
:root{--paper:#ffffff;--ink:#1c1f24;--muted:#666d78;--grid:#dfe3e8;--on-high:#ffffff;--c0:#6b7280;--c1:#0b66c3;--c2:#c2410c;--c3:#15803d;--c4:#9333ea;--c5:#b58900;--c6:#0891b2;--c7:#be185d;--h0:#f1f5fb;--h1:#d8e5f6;--h2:#b5cdee;--h3:#86abe0;--h4:#5585cd;--h5:#3463b0;--h6:#21478a;--h7:#142d5c}
@media screen and (prefers-color-scheme:dark){:root{--paper:#14171c;--ink:#e8eaed;--muted:#9aa3b0;--grid:#2d333c;--on-high:#0b0e12;--c0:#a3abb8;--c1:#60a5fa;--c2:#fb923c;--c3:#4ade80;--c4:#c084fc;--c5:#facc15;--c6:#22d3ee;--c7:#f472b6;--h0:#1c222b;--h1:#1e2f4a;--h2:#21416f;--h3:#2b5898;--h4:#3f74bd;--h5:#6697d6;--h6:#98bce9;--h7:#d0e1f7}}
)";

std::string_view anchor_name(Anchor anchor) {
  return anchor == Anchor::start ? "start" : anchor == Anchor::middle ? "middle" : "end";
}

std::string attribute(std::string_view name, std::string_view value) {
  return " " + std::string(name) + "=\"" + std::string(value) + '"';
}

std::string place(std::string_view name, double value) {
  return attribute(name, coordinate(value));
}

}  // namespace

std::string escaped(std::string_view text) {
  std::string out;
  while (!text.empty()) {
    const std::size_t length = utf8_length(text);
    const char c = text.front();
    if (length == 0) {
      out += "\xEF\xBF\xBD";
    } else if (length > 1) {
      out += text.substr(0, length);
    } else if (c == '&') {
      out += "&amp;";
    } else if (c == '<') {
      out += "&lt;";
    } else if (c == '>') {
      out += "&gt;";
    } else if (c == '"') {
      out += "&quot;";
    } else if (static_cast<unsigned char>(c) >= 0x20 || c == '\n' || c == '\t') {
      out += c;
    }
    text.remove_prefix(std::max<std::size_t>(1, length));
  }
  return out;
}

std::string coordinate(double value) {
  std::string text = fixed(std::isfinite(value) ? value : 0, 2);
  while (text.ends_with('0')) text.pop_back();
  if (text.ends_with('.')) text.pop_back();
  return text == "-0" ? "0" : text;
}

Svg::Svg(double width, double height, std::string_view title)
    : width_(width), height_(height), title_(title) {}

void Svg::add(const std::string& tag, std::string_view hint) {
  // A shape with a hint becomes an element that contains a title.
  if (hint.empty()) {
    shapes_ += '<' + tag + "/>\n";
    return;
  }
  shapes_ +=
      '<' + tag + "><title>" + escaped(hint) + "</title></" + tag.substr(0, tag.find(' ')) + ">\n";
}

void Svg::line(double x1, double y1, double x2, double y2, std::string_view style) {
  add("line" + attribute("class", style) + place("x1", x1) + place("y1", y1) + place("x2", x2) +
          place("y2", y2),
      "");
}

void Svg::rect(double x, double y, double width, double height, std::string_view style,
               std::string_view hint) {
  add("rect" + attribute("class", style) + place("x", x) + place("y", y) +
          place("width", std::max(0.0, width)) + place("height", std::max(0.0, height)),
      hint);
}

void Svg::circle(double x, double y, double radius, std::string_view style, std::string_view hint) {
  add("circle" + attribute("class", style) + place("cx", x) + place("cy", y) + place("r", radius),
      hint);
}

void Svg::path(std::string_view d, std::string_view style, std::string_view hint) {
  add("path" + attribute("class", style) + attribute("d", d), hint);
}

void Svg::text(double x, double y, std::string_view text, std::string_view style, Anchor anchor,
               double angle) {
  std::string tag = "<text" + attribute("class", style) + place("x", x) + place("y", y) +
                    attribute("text-anchor", anchor_name(anchor));
  if (angle != 0) {
    tag += attribute("transform", "rotate(" + coordinate(angle) + ' ' + coordinate(x) + ' ' +
                                      coordinate(y) + ')');
  }
  shapes_ += tag + '>' + escaped(text) + "</text>\n";
}

std::string Svg::open_tag(bool alone) const {
  std::string tag = "<svg class=\"chart\" role=\"img\" viewBox=\"0 0 " + coordinate(width_) + ' ' +
                    coordinate(height_) + '"';
  // Limits the width, so that text has about the same size in all charts of a page.
  if (!alone) tag += " style=\"max-width:" + coordinate(width_ * 1.15) + "px\"";
  if (alone) {
    tag +=
        " xmlns=\"http://www.w3.org/2000/svg\"" + place("width", width_) + place("height", height_);
  }
  return tag + "><title>" + escaped(title_) + "</title>\n";
}

std::string Svg::markup() const { return open_tag(false) + shapes_ + "</svg>"; }

std::string Svg::document() const {
  return open_tag(true) + "<style>" + std::string(kChartColourRules) + std::string(kChartStyle) +
         "</style>\n<rect width=\"100%\" height=\"100%\" fill=\"var(--paper)\"/>\n" + shapes_ +
         "</svg>\n";
}

std::string_view chart_style() { return kChartStyle; }
std::string_view chart_colours() { return kChartColourRules; }

std::string colour_class(std::string_view kind, int index) {
  return std::string(kind) + '-' + std::to_string(index % kChartColours);
}

}  // namespace leq
