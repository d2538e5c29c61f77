# A static program that runs without root. busybox is in the image for the health check.
#
#   docker build -t beanstalkd .
#   docker run -p 11300:11300 -v jobs:/var/lib/beanstalkd beanstalkd -b /var/lib/beanstalkd
#
# As PID 1 the server needs no init: it handles SIGTERM itself and has no children to reap.
FROM rust:1-alpine AS build
RUN apk add --no-cache musl-dev gcc make
WORKDIR /src
COPY . .
RUN cargo build --release --locked && mkdir -p /out/var/lib/beanstalkd

FROM busybox:stable-musl
COPY --from=build /src/target/release/beanstalkd /usr/bin/beanstalkd
# A new volume gets the owner of this directory.
COPY --from=build --chown=65532:65532 /out/var/lib/beanstalkd /var/lib/beanstalkd
USER 65532:65532
EXPOSE 11300
VOLUME /var/lib/beanstalkd
# If you change the port, set --health-cmd too.
HEALTHCHECK --interval=10s --timeout=3s --start-period=60s \
    CMD printf 'stats\r\n' | nc -w 2 127.0.0.1 11300 | grep -q '^OK '
ENTRYPOINT ["/usr/bin/beanstalkd"]
