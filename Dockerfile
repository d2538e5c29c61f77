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
RUN make && strip target/release/beanstalkd target/release/beanstalkctl && mkdir -p /out/var/lib/beanstalkd

FROM busybox:stable-musl
COPY --from=build /src/target/release/beanstalkd /src/target/release/beanstalkctl /src/packaging/health-check /usr/bin/
# A new volume gets the owner of this directory.
COPY --from=build --chown=65532:65532 /out/var/lib/beanstalkd /var/lib/beanstalkd
USER 65532:65532
EXPOSE 11300
VOLUME /var/lib/beanstalkd
# If you change the port, set --health-cmd too: health-check PORT.
HEALTHCHECK --interval=10s --timeout=3s --start-period=60s CMD ["/bin/sh", "/usr/bin/health-check"]
ENTRYPOINT ["/usr/bin/beanstalkd"]
