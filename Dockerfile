# The program alone, statically linked, in an otherwise empty image: no shell, no package, no library.
#   docker build -t registry.example.com/csi-provisioner:0.1.0 .
# It is built for the machine's own architecture (amd64, arm64). For a build that can be repeated, name the
# build image by digest: --build-arg RUST=rust@sha256:...; no layer of it comes into the result.
ARG RUST=rust:1.89-bookworm
FROM ${RUST} AS build
WORKDIR /source
COPY . .
# The very command of CI, which plays a scenario with what it makes, in an empty root (.ci/empty-root).
RUN .ci/static
RUN .ci/notices >target/shipped/THIRD-PARTY-NOTICES

FROM scratch
LABEL org.opencontainers.image.title="csi-provisioner" \
      org.opencontainers.image.description="Kubernetes sidecar that turns PersistentVolumeClaims into volumes of a CSI driver" \
      org.opencontainers.image.version="0.1.0" \
      org.opencontainers.image.licenses="Apache-2.0"
COPY --from=build /source/LICENSE /source/target/shipped/THIRD-PARTY-NOTICES /
COPY --from=build /source/target/shipped/csi-provisioner /csi-provisioner
# No certificates of public authorities: in a cluster, the API server's authority comes with the
# service account (deploy/README.md).
#
# Root, as in the original's image, so that exchanging the image line is enough: the socket of a
# driver that runs as root is root's alone. A pod's securityContext decides otherwise where the
# driver allows it: deploy/kubernetes runs as 65532, with no capability and a read-only root.
USER 0:0
ENTRYPOINT ["/csi-provisioner"]
