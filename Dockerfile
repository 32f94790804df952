# The program and its CLI, statically linked, in an otherwise empty image: no shell, no package, no library.
#   docker build -t registry.example.com/csi-provisioner:0.1.0 .
# It is built for amd64 (CONTRIBUTING.md, "Release", says what arm64 lacks). `.ci/release` makes the same image without a
# daemon, and takes from the last stage below what is in it.
#
# The build image is the one that this command prints; no layer of it comes into the result:
#   docker buildx imagetools inspect rust:1.89-bookworm --format '{{.Manifest.Digest}}'
ARG RUST=rust:1.89-bookworm@sha256:948f9b08a66e7fe01b03a98ef1c7568292e07ec2e4fe90d88c07bb14563c84ff
FROM ${RUST} AS build
WORKDIR /source
COPY . .
# The command of CI, which plays a scenario with its result in an empty root (.ci/empty-root).
RUN .ci/static
RUN .ci/contents notices >target/shipped/THIRD-PARTY-NOTICES

FROM scratch
LABEL org.opencontainers.image.title="csi-provisioner" \
      org.opencontainers.image.description="Kubernetes sidecar that turns PersistentVolumeClaims into volumes of a CSI driver" \
      org.opencontainers.image.version="0.1.0" \
      org.opencontainers.image.licenses="Apache-2.0"
COPY --from=build /source/LICENSE /source/target/shipped/THIRD-PARTY-NOTICES /
COPY --from=build /source/target/shipped/csi-provisioner /csi-provisioner
# What an admin runs by hand, also as a plugin of kubectl.
COPY --from=build /source/target/shipped/kubectl-csi_provisioner /kubectl-csi_provisioner
# No certificates of public authorities: in a cluster, the API server's authority comes with the
# service account (deploy/README.md).
#
# Root, as in external-provisioner's image, so that exchanging the image line is enough: most drivers run
# as root, and only root can open their socket. Where the driver allows another user, a pod's
# securityContext names it: deploy/kubernetes runs as 65532, with no capability and a read-only root.
USER 0:0
ENTRYPOINT ["/csi-provisioner"]
