#!/bin/sh
# Prints the end of the output of each suite that has failed, from the log of all suites: a failure can be far above the
# end of the log. make prints the output of a suite in one piece.
set -eu
awk '
    !make { make = $1 }
    $1 == make && $2 == "Entering" { count = 0; failed = "" }
    $1 == make && $2 == "***" && $3 ~ /^\[/ { failed = $0 }
    { lines[count++] = $0 }
    $1 == make && $2 == "Leaving" && failed {
        printf "\n== %s ==\n", failed
        for (at = count > 120 ? count - 120 : 0; at < count; at++) print lines[at]
    }
' "$1"
