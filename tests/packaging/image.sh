#!/bin/sh
# Builds the container image with buildah, which needs no daemon, and runs it: the server starts, without root and with
# a binlog in the volume, its health check and beanstalkctl in the image say so, and it stops cleanly.
#
# It uses no registry. An empty image that sees the /usr of this machine replaces rust:1-alpine; its cargo copies the
# programs of the directory PROGRAMS (default: target/debug). Debian's busybox replaces busybox:stable-musl. So this
# does not test that the programs are static.
set -eu
here=$(dirname "$(realpath "$0")")
cd "$here/../.."
. tests/packaging/common.sh
command -v buildah >/dev/null || skip "there is no buildah"
[ "$(id -u)" = 0 ] || skip "buildah needs root"
busybox=$(command -v busybox) && ! ldd "$busybox" >/dev/null 2>&1 || skip "there is no busybox-static"
if [ "${1:-}" != inside ]; then
    # So the port is free, and the mounts of buildah end with this script.
    exec unshare --mount --net sh "$here/image.sh" inside
fi
ip link set lo up
programs=$(realpath "${PROGRAMS:-target/debug}")
directory=$(mktemp -d)
export STORAGE_DRIVER=vfs BUILDAH_ISOLATION=chroot
images() { buildah --root "$directory/images" --runroot "$directory/run" "$@"; }
pid=
clean_up() {
    [ -z "$pid" ] || kill -KILL "$pid" || :
    images rm --all >/dev/null 2>&1 || :
    while umount "$directory/images/overlay" 2>/dev/null; do :; done # which buildah leaves behind
    rm -rf "$directory"
}
trap clean_up EXIT

image_of() { # DIRECTORY NAME [OPTION VALUE]...: makes an image
    container=$(images from scratch)
    images copy --quiet "$container" "$1" / >/dev/null
    [ $# = 2 ] || images config "$3" "$4" "$container"
    images commit --quiet "$container" "$2" >/dev/null
    images rm "$container" >/dev/null
}
for base in build runtime; do
    mkdir -p "$directory/$base/usr/bin" "$directory/$base/tmp"
    for link in lib lib64; do ln -s usr/$link "$directory/$base/$link"; done
done
ln -s usr/bin "$directory/build/bin"
mkdir -p "$directory/build/stand-in" "$directory/runtime/bin"
printf '#!/bin/sh\n' >"$directory/build/stand-in/apk"
cat >"$directory/build/stand-in/cargo" <<'END'
#!/bin/sh
program=beanstalkd
case $* in
"build --release --locked") ;;
"build --release --locked -p beanstalkctl") program=beanstalkctl ;;
*) echo "the replacement of cargo does not know: cargo $*" >&2; exit 1 ;;
esac
mkdir -p target/release && cp "/programs/$program" target/release/
END
chmod +x "$directory"/build/stand-in/*
cp "$busybox" "$directory/runtime/bin/busybox"
for applet in $("$busybox" --list | grep -vx busybox); do ln -sf busybox "$directory/runtime/bin/$applet"; done
image_of "$directory/build" docker.io/library/rust:1-alpine --env PATH=/stand-in:/usr/bin
image_of "$directory/runtime" docker.io/library/busybox:stable-musl

images bud --quiet --format docker --pull-never --volume /usr:/usr:ro --volume "$programs:/programs:ro" \
    --tag beanstalkd . >"$directory/said" 2>&1 || fail "buildah cannot build the image: $(cat "$directory/said")"
words() { images inspect --type image --format "{{range .Docker.Config.$1}}{{.}} {{end}}" beanstalkd; }
container=$(images from --pull-never beanstalkd)
in_image() { images run --volume /usr/lib:/usr/lib:ro --volume /usr/lib64:/usr/lib64:ro "$container" -- "$@"; }
# shellcheck disable=SC2046 # words
in_image $(words Entrypoint) -b /var/lib/beanstalkd -l 127.0.0.1 </dev/null >"$directory/log" 2>&1 &
served_by() { printf 'stats\r\nquit\r\n' | nc -w 2 127.0.0.1 11300 | tr -d '\r' | sed -n 's/^pid: //p'; }
answers() { pid=$(served_by) && [ -n "$pid" ]; }
soon answers || fail "the server does not answer: $(cat "$directory/log")"
[ "$(stat -c %u /proc/"$pid")" = 65532 ] || fail "the server runs as user $(stat -c %u /proc/"$pid"), expected 65532"
check=$(words Healthcheck.Test)
# shellcheck disable=SC2086 # words
checks() { in_image ${check#CMD }; }
# The check gives a server two seconds, which a busy machine may miss.
checks || checks || checks || fail "the health check fails while the server answers"
in_image beanstalkctl put mail 'to: ann' >/dev/null || fail "beanstalkctl in the image cannot put a job"
[ -n "$(in_image sh -c 'ls /var/lib/beanstalkd/binlog.*')" ] || fail "there is no binlog in the volume"
kill -TERM "$pid"
pid=
wait $! || fail "the server did not stop cleanly: $(cat "$directory/log")"
echo "$test: built without a registry, and its server answers: good"
