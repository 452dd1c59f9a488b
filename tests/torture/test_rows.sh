#!/bin/sh
# tests/cli/test_rows.sh by all strategies.
ROWS=all
. "$(dirname "$0")/../cli/test_rows.sh"
