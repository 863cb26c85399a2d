//! Messages of kubelet and to it, generated from `k8s/csi/proto` by `cargo xtask proto`. Everything in them is
//! unchecked: [`crate::volume`] checks it.

#![expect(clippy::pedantic, reason = "generated; the proto files are the documentation")]
#![expect(clippy::allow_attributes, reason = "generated")]

pub mod csi;
pub mod registration;
