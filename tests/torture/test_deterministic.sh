#!/bin/sh
# tests/cli/test_deterministic.sh on all meshes.
MESHES=all
. "$(dirname "$0")/../cli/test_deterministic.sh"
