"""leq-compare: ways to quantize a model beside each other, on one page. docs/comparing.md is the manual.

Needs scipy, matplotlib and Jinja2: the extra compare."""
