# The program alone, statically linked, as a user without rights:
#   docker build -t csi-provisioner .
FROM rust:1.89-bookworm AS build
WORKDIR /source
COPY . .
# The target is named so that build scripts and macros are not linked statically too.
# RUSTFLAGS replaces those of .cargo/config.toml: the frame pointers are named again.
RUN RUSTFLAGS="-C target-feature=+crt-static -C force-frame-pointers=yes" \
    cargo build --release --locked --bin csi-provisioner --target x86_64-unknown-linux-gnu

FROM scratch
COPY --from=build /source/target/x86_64-unknown-linux-gnu/release/csi-provisioner /csi-provisioner
USER 65532:65532
ENTRYPOINT ["/csi-provisioner"]
