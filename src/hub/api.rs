//! HTTP routes: extract, call, answer.

pub mod agents;
pub mod audit;
pub mod bundles;
pub mod catalog;
pub mod clusters;
pub mod health;
pub mod hub;
pub mod problem;
pub mod tunnel;
