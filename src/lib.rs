//! Linesman adopts Kubernetes clusters into a GitOps catalog and keeps them there.
//!
//! The map (`docs/ARCHITECTURE.md` has the invariants). P = pure: no async, files, clocks, randomness.
//!
//! - [`cli`]: flags and environment become validated configuration; one file a verb.
//! - [`client`]: the typed HTTP client of the hub, for operators.
//! - [`agent`]: the part that runs in a cluster: enrols, installs the engine, watches and heals it, keeps the line.
//! - [`hub`]: the central part: API, store, line endpoint, Kubernetes proxy, built-in Git.
//! - [`tunnel`]: streams on the line, for both ends; [`tunnel::session`] is P.
//! - [`wire`] (P): what agent and hub say to each other.
//! - [`bundle`] (P): an engine version's install objects in normal form, named by their digest.
//! - [`manifests`] (P): the YAML that a cluster owner applies, and that of a hub in Kubernetes.
//! - [`kubeapi`] (P), [`assertion`] (P): what hub and agent must agree on about a Kubernetes request.
//! - [`trust`] (P): what makes an agent believe that a hub is its hub.
//! - [`heal`] (P): what both ends count of heals.
//! - [`address`] (P), [`yaml`] (P), [`backoff`] (P), [`secret`] (P), [`keys`] (P), [`ssh`], [`tcp`], [`lifetime`], [`telemetry`], [`clock`]: the foundation.

pub mod address;
pub mod agent;
pub mod assertion;
pub mod backoff;
pub mod bundle;
pub mod cli;
pub mod client;
pub mod clock;
pub mod heal;
pub mod hub;
pub mod keys;
pub mod kubeapi;
pub mod lifetime;
pub mod manifests;
pub mod secret;
pub mod ssh;
pub mod tcp;
pub mod telemetry;
pub mod trust;
pub mod tunnel;
pub mod wire;
pub mod yaml;
