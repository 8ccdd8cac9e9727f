# Two images from one binary.
#   docker build --target agent -t linesman-agent .    what runs in a cluster
#   docker build --target hub   -t linesman-hub .      the hub; its built-in Git server runs the system's git, and backups take its sqlite3
# Without Docker, into a local lab: make image

FROM rust:1.95-slim-bookworm AS build
RUN apt-get update \
 && apt-get install -y --no-install-recommends build-essential cmake \
 && rm -rf /var/lib/apt/lists/*
WORKDIR /src
COPY . .
# --build-arg LINESMAN_COMMIT=$(git rev-parse --short HEAD) has `linesman version` name it.
ARG LINESMAN_COMMIT
RUN --mount=type=cache,target=/usr/local/cargo/registry --mount=type=cache,target=/src/target \
    cargo build --release --locked --bin linesman \
 && cp "target/$(rustc --print host-tuple)/release/linesman" /linesman

FROM debian:12-slim AS system
RUN apt-get update \
 && apt-get install -y --no-install-recommends ca-certificates git sqlite3 \
 && rm -rf /var/lib/apt/lists/*

FROM scratch AS agent
COPY --from=system /etc/ssl/certs/ca-certificates.crt /etc/ssl/certs/ca-certificates.crt
COPY --from=build /linesman /linesman
USER 65532:65532
ENTRYPOINT ["/linesman"]

FROM system AS hub
COPY --from=build /linesman /usr/local/bin/linesman
RUN install -d -o 65532 -g 65532 -m 0700 /var/lib/linesman
USER 65532:65532
ENV HOME=/var/lib/linesman
VOLUME /var/lib/linesman
EXPOSE 8443 2222
ENTRYPOINT ["/usr/local/bin/linesman"]
CMD ["hub", "--data", "/var/lib/linesman"]
