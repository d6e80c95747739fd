# Two images: `contextd`, only the program, for an external PostgreSQL; and `embedded`, which also contains the PostgreSQL server, for trials:
#   docker build --target contextd --tag contextd:0.1.0 .
#   docker build --target embedded --tag contextd:0.1.0-embedded .
# Both run as user 65532 on a read-only root file system.

FROM rust:1.95-bookworm@sha256:6258907abe69656e41cd992e0b705cdcfabcbbe3db374f92ed2d47121282d4a1 AS build
SHELL ["/bin/bash", "-o", "pipefail", "-c"]
WORKDIR /src
# The TLS library is built with cmake.
# hadolint ignore=DL3008
RUN apt-get update && apt-get install --no-install-recommends --yes cmake && rm -rf /var/lib/apt/lists/*
# Dependencies are built in a separate layer, which is cached until one of these changes.
COPY Cargo.toml Cargo.lock ./
COPY crates crates
COPY proto proto
RUN mkdir -p src benches \
    && echo 'fn main() {}' | tee src/main.rs build.rs >/dev/null \
    && touch src/lib.rs \
    && sed -n '/^\[\[bench\]\]/{n;s/name = "\(.*\)"/\1/p}' Cargo.toml | while read -r name; do echo 'fn main() {}' >"benches/$name.rs"; done \
    && cargo build --release --locked --bin contextd
COPY build.rs ./
COPY migrations migrations
COPY src src
ARG GIT_COMMIT=""
# cargo compares modification times: without touch it would reuse the build of the empty program.
RUN touch build.rs src/main.rs src/lib.rs && GIT_COMMIT="$GIT_COMMIT" cargo build --release --locked --bin contextd

FROM debian:bookworm-slim@sha256:7c7b2c966bc9ee8cedfeef67e0e279108992c77681fa595db4a9d65c06ccc587 AS embedded
# hadolint ignore=DL3008
RUN apt-get update \
    && apt-get install --no-install-recommends --yes ca-certificates postgresql-common \
    && echo 'create_main_cluster = false' >>/etc/postgresql-common/createcluster.conf \
    && apt-get install --no-install-recommends --yes postgresql-15 \
    && rm -rf /var/lib/apt/lists/* \
    && useradd --uid 65532 --user-group --home-dir /var/lib/contextd --create-home --shell /usr/sbin/nologin nonroot
COPY --from=build /src/target/release/contextd /usr/local/bin/contextd
COPY LICENSE /usr/share/doc/contextd/LICENSE
USER 65532:65532
ENV CONTEXTD_DATA_DIR=/var/lib/contextd/data
VOLUME /var/lib/contextd
EXPOSE 7070 9090
HEALTHCHECK --interval=10s --timeout=5s --start-period=60s CMD ["/usr/local/bin/contextd", "health"]
ENTRYPOINT ["/usr/local/bin/contextd"]
CMD ["serve"]

# Contains the C library, libgcc and certificate authorities, but no shell.
FROM gcr.io/distroless/cc-debian12:nonroot@sha256:9dac0a79194e45a7da0158a9c6da57b217585af0786db3845d1f0ec1a0dd182f AS contextd
COPY --from=build /src/target/release/contextd /usr/local/bin/contextd
COPY LICENSE /usr/share/doc/contextd/LICENSE
USER 65532:65532
EXPOSE 7070 9090
HEALTHCHECK --interval=10s --timeout=5s --start-period=60s CMD ["/usr/local/bin/contextd", "health"]
ENTRYPOINT ["/usr/local/bin/contextd"]
CMD ["serve"]
