"""Reads a scrape with the parser of Prometheus' own client, strictly, and prints how many families there are."""

import sys

from prometheus_client.openmetrics.parser import text_string_to_metric_families

with open(sys.argv[1], encoding="utf-8") as scrape:
    families = list(text_string_to_metric_families(scrape.read()))
for family in families:
    assert family.documentation, f"{family.name} has no help"
    assert family.type != "unknown", f"{family.name} has no type"
print(len(families))
