# What the tests of this directory share; they read this file with `.`, in the directory of the repository.

test=$(basename "$0" .sh)

fail() { # MESSAGE
    echo "$test: $1" >&2
    exit 1
}

skip() { # REASON: a skipped test fails if CI is not empty, because it would look like a passed one
    echo "$test: skipped, $1" >&2
    [ -z "${CI:-}" ] || fail "CI is set, so nothing may be skipped"
    exit 0
}

soon() { # COMMAND...: waits until the command succeeds, for a minute at most
    tries=6000
    until "$@"; do
        tries=$((tries - 1))
        [ $tries -gt 0 ] || return 1
        sleep 0.01
    done
}

accepts() { # SOCKET: whether a server accepts connections there; the socket exists a moment before that
    printf 'quit\r\n' | nc -w 60 -U "$1" 2>/dev/null
}
