#!/usr/bin/env python3
"""Validates [{"schema": ..., "documents": [text, ...]}, ...] with the jsonschema package."""
import datetime
import json
import sys

try:
    import jsonschema
except ImportError:
    print("needs python3 with jsonschema")
    sys.exit(0)

checker = jsonschema.FormatChecker(formats=())


@checker.checks("date", raises=ValueError)
def is_date(text):
    return not isinstance(text, str) or bool(datetime.date.fromisoformat(text))


@checker.checks("date-time", raises=ValueError)
def is_date_time(text):
    if not isinstance(text, str):
        return True
    day, time = text[:-1].split("T") if text.endswith("Z") else text.split("T")
    return bool(datetime.date.fromisoformat(day)) and len(time) >= 8


count = 0
for case in json.load(open(sys.argv[1], encoding="utf-8")):
    jsonschema.Draft202012Validator.check_schema(case["schema"])
    validator = jsonschema.Draft202012Validator(case["schema"], format_checker=checker)
    for text in case["documents"]:
        error = next(validator.iter_errors(json.loads(text)), None)
        if error is not None:
            print("schema", json.dumps(case["schema"]), "document", text, ":", error.message)
            sys.exit(1)
        count += 1
print("all valid:", count)
