//! The hub: wires its parts and owns their tasks.

pub mod access;
pub mod api;
pub mod assertion;
pub mod audit;
pub mod auth;
pub mod catalog;
pub mod fleet;
pub mod git;
pub mod githost;
pub mod proxy;
pub mod registration;
pub mod store;
pub mod tls;
pub mod tunnels;
