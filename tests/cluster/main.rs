//! Real-cluster tests: a lab, or the cluster of `LINESMAN_TEST_KUBECONFIG`.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

mod watchdog;
