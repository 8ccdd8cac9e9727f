//! Real-cluster tests: a lab, or the cluster of `LINESMAN_TEST_KUBECONFIG` (`tests/cluster/README.md`).
//!
//! Most of a program's share one lab, one hub and one adopted cluster, so they run one after the other; `make test` runs the program
//! a few times side by side, each with tests and labs of its own (`PARTS` in `tests/run`). Deadlines are generous: the figures
//! of `docs/benchmarks.md` are printed, never asserted.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    clippy::similar_names,
    reason = "a test fails by panicking, and prints its figures"
)]

mod adoption;
mod argocd;
mod blocked;
mod boundaries;
mod cascade;
mod chaos;
mod children;
mod domain;
mod events;
mod figures;
mod foreign;
mod gitline;
mod guard;
mod healing;
mod hosted;
mod hours;
mod impersonation;
mod keys;
mod kubectl;
mod line;
mod named;
#[path = "../it/postgres.rs"]
#[allow(dead_code, reason = "the in-process tests do more with it")]
mod postgres;
mod quarantine;
mod replace;
mod restricted;
mod returned;
mod scope;
mod secrecy;
mod signers;
mod stuck;
mod support;
mod undecodable;
mod upgrade;
mod versions;
mod windows;
