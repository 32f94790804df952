//! The messages and clients that `build.rs` generates from `proto/csi.proto`.
#![allow(clippy::all, clippy::pedantic, missing_docs, unreachable_pub)] // generated

tonic::include_proto!("csi.v1");
