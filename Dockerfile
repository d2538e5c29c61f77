# A static program, not run by root, beside the busybox that asks after its health.
#
#   docker build -t beanstalkd .
#   docker run -p 11300:11300 -v jobs:/var/lib/beanstalkd beanstalkd -b /var/lib/beanstalkd
#
# As PID 1 it needs no init: it handles SIGTERM itself, and has no children to reap.
FROM rust:1-alpine AS build
RUN apk add --no-cache musl-dev gcc make
WORKDIR /src
COPY . .
RUN cargo build --release --locked && mkdir -p /out/var/lib/beanstalkd

FROM busybox:stable-musl
COPY --from=build /src/target/release/beanstalkd /usr/bin/beanstalkd
# A fresh volume takes over the owner of the directory beneath it.
COPY --from=build --chown=65532:65532 /out/var/lib/beanstalkd /var/lib/beanstalkd
USER 65532:65532
EXPOSE 11300
VOLUME /var/lib/beanstalkd
# Whoever changes the port gives --health-cmd, too.
HEALTHCHECK --interval=10s --timeout=3s --start-period=60s \
    CMD printf 'stats\r\n' | nc -w 2 127.0.0.1 11300 | grep -q '^OK '
ENTRYPOINT ["/usr/bin/beanstalkd"]
