#!/bin/sh
# Runs the clients from the registries against the server: every method of some, and the additions of each recipe. A
# client that cannot be installed is skipped with a message. If CI is set, that fails.
set -eu
cd "$(dirname "$0")/../.."
here=tests/clients
kept=$PWD/target/clients # what was fetched, so that the next run needs no network
missing=0

skip() {
    echo "clients: skipped $1" >&2
    missing=1
}

run() { python3 tests/with_server.py "$@"; }
# Beside the servers of servers.py: a plain one, one with access rules and TLS, and one that asks for certificates.
run_additions() { python3 $here/servers.py "$@"; }

if ! command -v python3 >/dev/null || ! command -v openssl >/dev/null; then
    skip "all: there is no python3, or no openssl"
    [ -z "${CI:-}" ]
    exit
fi

python3 -B $here/tools_test.py

if python3 -m venv "$kept/python" >/dev/null 2>&1 \
    && "$kept/python/bin/pip" install --quiet --disable-pip-version-check -r $here/python/requirements.txt; then
    run "$kept/python/bin/python" $here/python/every_method.py
    for client in greenstalk aiostalk; do
        run_additions "$kept/python/bin/python" -B $here/python/${client}_extended_test.py
    done
    "$kept/python/bin/python" $here/python/corpus_test.py
else
    skip "Python: greenstalk and aiostalk cannot be installed"
fi

mkdir -p "$kept/node"
if command -v npm >/dev/null && cp $here/node/package*.json "$kept/node" \
    && npm ci --prefix "$kept/node" --prefer-offline --no-audit --no-fund --loglevel=error >/dev/null; then
    export NODE_PATH="$kept/node/node_modules"
    run node $here/node/every_method.js
    run_additions node $here/node/node_beanstalk_extended_test.js
else
    skip "Node: node-beanstalk cannot be installed"
fi

if ruby -e "require 'beaneater'" 2>/dev/null; then
    run_additions ruby $here/ruby/beaneater_extended_test.rb
else
    skip "Ruby: there is no ruby with beaneater (Debian: ruby-beaneater)"
fi

# Debian's packages of PHP have a file each that loads them, and the files that it needs.
for client in pheanstalk:Pheanstalk:php-pda-pheanstalk \
    laravel:Illuminate/Queue:php-illuminate-queue \
    symfony:Symfony/Component/Messenger/Bridge/Beanstalkd:php-symfony-beanstalkd-messenger; do
    library=${client#*:}
    if php -r "exit((int) !stream_resolve_include_path('${library%%:*}/autoload.php'));" 2>/dev/null; then
        run_additions php $here/php/${client%%:*}_test.php
    else
        skip "PHP: there is no ${library%%:*} (Debian: ${library##*:})"
    fi
done

# Rules for tubes together with the retries of the frameworks.
if php -r "foreach (['Illuminate/Queue', 'Symfony/Component/Messenger/Bridge/Beanstalkd'] as \$library)
    stream_resolve_include_path(\"\$library/autoload.php\") || exit(1);" 2>/dev/null; then
    run_additions php $here/php/rules_test.php
else
    skip "PHP: the rules below Laravel and Symfony"
fi

if CARGO_TARGET_DIR=$kept/rust cargo build --quiet --locked --manifest-path $here/rust/Cargo.toml; then
    run "$kept/rust/debug/every-method"
    run "$kept/rust/debug/opentelemetry"
else
    skip "Rust: beanstalkc and the crates of OpenTelemetry cannot be fetched"
fi

# The recipe and its test run with go-beanstalk if a module proxy has it, else with its replacement.
if ! command -v go >/dev/null; then
    skip "Go: there is no go (Debian: golang-go)"
else
    mkdir -p "$kept/go"
    cp $here/go/go.mod $here/go/go.sum "$kept/go"
    export GOMODCACHE="$kept/go/modules" GOFLAGS="-modcacherw -mod=mod -modfile=$kept/go/go.mod"
    if ! (cd $here/go && go mod download) 2>"$kept/go/log"; then
        echo "clients: go-beanstalk cannot be fetched, so its replacement is used: $(tail -n 1 "$kept/go/log")" >&2
        go mod edit -replace "github.com/beanstalkd/go-beanstalk=$PWD/$here/go/stand_in" "$kept/go/go.mod"
    fi
    (cd $here/go && python3 ../servers.py sh -c 'go vet . && go test -count=1 .')
    if ! { unformatted=$(gofmt -l $here/go) && [ -z "$unformatted" ]; }; then
        echo "clients: gofmt would change these files of $here/go: $unformatted" >&2
        exit 1
    fi
fi

if [ $missing = 1 ] && [ -n "${CI:-}" ]; then
    echo "clients: CI is set, so no client may be skipped" >&2
    exit 1
fi
