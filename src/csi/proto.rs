//! What `build.rs` makes of `proto/csi.proto`: the messages and the client code.
#![allow(clippy::all, clippy::pedantic, missing_docs, unreachable_pub)] // generated

tonic::include_proto!("csi.v1");
