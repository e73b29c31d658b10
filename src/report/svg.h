// Writes SVG as text, shape by shape. Colours are classes, which the style sheet of the drawing
// defines for light pages, dark pages and print; text remains text.
#pragma once

#include <string>
#include <string_view>

namespace leq {

// Escapes text for content and attributes of HTML and SVG; invalid UTF-8 becomes U+FFFD.
std::string escaped(std::string_view text);
// Formats a coordinate with at most two decimals.
std::string coordinate(double value);

enum class Anchor { start, middle, end };

class Svg {
 public:
  // `title`: read by screen readers.
  Svg(double width, double height, std::string_view title);

  // `style`: classes of the style sheet, such as "axis", "fill-3".
  void line(double x1, double y1, double x2, double y2, std::string_view style);
  // `hint`: a tooltip for the shape; may be empty.
  void rect(double x, double y, double width, double height, std::string_view style,
            std::string_view hint = "");
  void circle(double x, double y, double radius, std::string_view style,
              std::string_view hint = "");
  // `d`: path data as in SVG.
  void path(std::string_view d, std::string_view style, std::string_view hint = "");
  // Rotated by `angle` degrees around its position.
  void text(double x, double y, std::string_view text, std::string_view style,
            Anchor anchor = Anchor::start, double angle = 0);

  double width() const { return width_; }
  double height() const { return height_; }
  // For a page that includes the style sheet.
  std::string markup() const;
  // A standalone file that includes the style sheet.
  std::string document() const;

 private:
  std::string open_tag(bool alone) const;
  void add(const std::string& tag, std::string_view hint);

  double width_, height_;
  std::string title_;
  std::string shapes_;
};

inline constexpr int kChartColours = 8;
// The style rules for all charts; colours are variables that chart_colours() defines.
std::string_view chart_style();
std::string_view chart_colours();  // :root { ... }, also for dark pages and print
std::string colour_class(std::string_view kind, int index);  // "fill", 11 -> "fill-3"

}  // namespace leq
