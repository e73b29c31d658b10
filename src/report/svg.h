// SVG as text, written shape by shape. Colours are classes, which the style sheet that goes with
// the drawing defines for light and dark pages and for print; text stays text.
#pragma once

#include <string>
#include <string_view>

namespace leq {

// For text and attributes of HTML and SVG; bytes that are no UTF-8 become U+FFFD.
std::string escaped(std::string_view text);
// A coordinate: at most two decimals.
std::string coordinate(double value);

enum class Anchor { start, middle, end };

class Svg {
 public:
  // `title` is what a screen reader says.
  Svg(double width, double height, std::string_view title);

  // `style`: classes of the sheet, "axis", "fill-3".
  void line(double x1, double y1, double x2, double y2, std::string_view style);
  // `hint` is shown where a pointer rests on the shape; may be empty.
  void rect(double x, double y, double width, double height, std::string_view style,
            std::string_view hint = "");
  void circle(double x, double y, double radius, std::string_view style,
              std::string_view hint = "");
  // `d` as SVG has it.
  void path(std::string_view d, std::string_view style, std::string_view hint = "");
  // Turned by `angle` degrees about its place.
  void text(double x, double y, std::string_view text, std::string_view style,
            Anchor anchor = Anchor::start, double angle = 0);

  double width() const { return width_; }
  double height() const { return height_; }
  // For a page that has the style sheet.
  std::string markup() const;
  // A file of its own, with the style sheet.
  std::string document() const;

 private:
  std::string open_tag(bool alone) const;
  void add(const std::string& tag, std::string_view hint);

  double width_, height_;
  std::string title_;
  std::string shapes_;
};

inline constexpr int kChartColours = 8;
// The rules for all charts; colours from variables, which chart_colours() sets.
std::string_view chart_style();
std::string_view chart_colours();  // :root { ... }, and for dark and print
std::string colour_class(std::string_view kind, int index);  // "fill", 11 -> "fill-3"

}  // namespace leq
