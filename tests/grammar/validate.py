#!/usr/bin/env python3
"""Validates [{"schema": ..., "documents": [text, ...]}, ...] with the jsonschema package.

Formats are checked by Python's own modules, numbers as decimals."""
import datetime
import decimal
import ipaddress
import json
import sys
import urllib.parse
import uuid

try:
    import jsonschema
except ImportError:
    print("needs python3 with jsonschema")
    sys.exit(0)

checker = jsonschema.FormatChecker(formats=())


def checks(name):
    """Registers a check of texts, which returns false or raises ValueError if one is wrong."""

    def register(check):
        checker.checks(name, raises=ValueError)(
            lambda value: not isinstance(value, str) or bool(check(value))
        )
        return check

    return register


@checks("date")
def is_date(text):
    return datetime.date.fromisoformat(text)


@checks("time")
def is_time(text):
    return datetime.datetime.strptime(text[:8], "%H:%M:%S") and text[-6:].strip("Z")


@checks("date-time")
def is_date_time(text):
    day, time = text[:-1].split("T") if text.endswith("Z") else text.split("T")
    return datetime.date.fromisoformat(day) and len(time) >= 8


@checks("duration")
def is_duration(text):
    def is_run(part, units):  # numbers of consecutive units
        found = [c for c in part if not c.isdigit()]
        numbers = part
        for unit in found:
            number, numbers = numbers.split(unit, 1)
            if not number:
                return False
        return numbers == "" and found and "".join(found) in units

    day, mark, time = text[1:].partition("T")
    right = text.startswith("P") and (is_run(day, "YMD") or is_run(day, "W") or (mark and day == ""))
    return right and (not mark or is_run(time, "HMS"))


@checks("hostname")
def is_host(text):
    labels = text.split(".")
    return len(text) <= 253 and all(
        0 < len(label) <= 63
        and label.isascii()
        and label.replace("-", "a").isalnum()
        and "-" not in (label[0], label[-1])
        for label in labels
    )


@checks("email")
def is_email(text):
    name, at, host = text.partition("@")
    return at and 0 < len(name) <= 64 and all(name.split(".")) and "." in host and is_host(host)


@checks("uri")
def is_uri(text):
    parts = urllib.parse.urlsplit(text)
    return parts.scheme and (parts.netloc or parts.path) and parts.port != -1


checks("ipv4")(ipaddress.IPv4Address)
checks("ipv6")(ipaddress.IPv6Address)
checks("uuid")(uuid.UUID)


def validator_of(schema):
    jsonschema.Draft202012Validator.check_schema(schema)
    return jsonschema.Draft202012Validator(schema, format_checker=checker)


def main():
    count = 0
    for case in json.load(open(sys.argv[1], encoding="utf-8"), parse_float=decimal.Decimal):
        validator = validator_of(case["schema"])
        for text in case["documents"]:
            document = json.loads(text, parse_float=decimal.Decimal)
            error = next(validator.iter_errors(document), None)
            if error is not None:
                schema = json.dumps(case["schema"], default=str)
                print("schema", schema, "document", text, ":", error.message)
                sys.exit(1)
            count += 1
    print("all valid:", count)


if __name__ == "__main__":
    main()
