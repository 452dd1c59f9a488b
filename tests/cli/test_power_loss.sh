#!/bin/sh
# A part of tests/torture/test_power_loss.sh.
EVERY=${EVERY:-11}
KEEP=${KEEP:-60}
PARTS=${PARTS:-7}
. "$(dirname "$0")/../torture/test_power_loss.sh"
