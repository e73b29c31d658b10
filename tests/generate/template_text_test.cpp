// One spelling for Jinja templates: what has no effect goes, what is printed stays.
#include "generate/template_text.h"

#include <gtest/gtest.h>

namespace leq {
namespace {

std::string canonical(std::string_view jinja) { return canonical_template(jinja).canonical; }

TEST(TemplateText, SpellingsOfOneTagAreOne) {
  const std::string expected = "{%ifmessage['role']=='user'%}";
  for (const std::string_view spelling :
       {"{% if message['role'] == 'user' %}", "{%- if message.role == \"user\" -%}",
        "{%if message[ 'role' ]=='user'%}", "{#- why -#}\n  {%- if\n message.role=='user' %}\n"}) {
    EXPECT_EQ(canonical(spelling), expected) << spelling;
  }
  EXPECT_EQ(canonical("{{ message.content.strip() }}"), "{{message['content']|trim}}");
}

TEST(TemplateText, LiteralsKeepTheirText) {
  EXPECT_EQ(canonical("{{ ' a  \"b\" ' }}"), "{{' a  \"b\" '}}");
  EXPECT_EQ(canonical("{{ \"it's\" }}"), "{{'it\\'s'}}");
  EXPECT_EQ(canonical("{{ \"say \\\"x\\\"\" }}"), "{{'say \"x\"'}}");
  EXPECT_EQ(canonical("{{ 'line\nline' }}"), "{{'line\\nline'}}");
  EXPECT_EQ(canonical("{{ '%} }} #}' }}"), "{{'%} }} #}'}}");
}

TEST(TemplateText, JoinedLiteralsAreOneUnlessAFilterBindsToTheLast) {
  EXPECT_EQ(canonical("{{ 'a' + 'b' + x + 'c' + 'd' }}"), "{{'ab'+x+'cd'}}");
  EXPECT_EQ(canonical("{{ 'a' + ' b ' | trim }}"), "{{'a'+' b '|trim}}");
  EXPECT_EQ(canonical("{{ 'a' + '+' + 'b' }}"), "{{'a+b'}}");
}

// The expected texts are what Jinja 3.1 prints with trim_blocks and lstrip_blocks.
TEST(TemplateText, WhiteSpaceBetweenTagsIsKeptWhereJinjaPrintsIt) {
  EXPECT_EQ(canonical("{% if a %}\n  {% endif %}\n"), "{%ifa%}{%endif%}");
  EXPECT_EQ(canonical("{{ a }}\n{{ b }}"), "{{a}}\n{{b}}");
  EXPECT_EQ(canonical("{{ a -}}\n {{ b }}"), "{{a}}{{b}}");
  EXPECT_EQ(canonical("{% if a %} {{ b }}"), "{%ifa%} {{b}}");
  EXPECT_EQ(canonical("{% if a %}\n\n{% endif %}"), "{%ifa%}\n{%endif%}");
  EXPECT_EQ(canonical("{% if a %}  {% endif %}"), "{%ifa%}  {%endif%}");
  EXPECT_EQ(canonical("  {% if a %}"), "{%ifa%}");
  EXPECT_EQ(canonical("text\n"), "text");
}

TEST(TemplateText, KnowsWhetherTextOutsideOfTagsIsPrinted) {
  EXPECT_FALSE(canonical_template("{% if a %}\n  {{- 'x' }}\n{%- endif %}\n").prints_plain_text);
  EXPECT_TRUE(canonical_template("{% if a %}x{% endif %}").prints_plain_text);
  EXPECT_TRUE(canonical_template("{{ a }} {{ b }}").prints_plain_text);
}

TEST(TemplateText, ListsWhatIsPrintedButNotErrors) {
  const auto text =
      canonical_template("{{ a }}{% set x = 1 %}{{ raise_exception('no') }}{{ 'b' }}");
  EXPECT_EQ(text.outputs, (std::vector<std::string>{"{{a}}", "{{'b'}}"}));
}

TEST(TemplateText, BrokenTemplatesEndSomewhere) {
  for (const std::string_view broken : {"{{", "{% if", "{{ 'open", "{# never closed", "}}",
                                        "{{ '\\", "{", "{{-", "{%-%}", "{{'}}"}) {
    canonical_template(broken);  // no crash, no endless loop
  }
  EXPECT_TRUE(canonical_template("{{ 'open").prints_plain_text);
}

TEST(TemplateText, UnescapesLiterals) {
  EXPECT_EQ(unescape_literal(R"(a\nb\'c\\n\t)"), "a\nb'c\\n\t");
}

}  // namespace
}  // namespace leq
