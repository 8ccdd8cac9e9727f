//! What agent and hub say to each other: identifiers, HTTP bodies, reports and line frames.
//!
//! Pure: this module and all below it import std, serde, bytes, thiserror and themselves. Both sides are
//! built from it, so one field is written once. Bodies that an agent writes are read with unknown fields
//! ignored (N-1 and N+1 work together); bodies that a person writes refuse unknown fields by name.

pub mod api;
pub mod frame;
pub mod id;
pub mod report;
pub mod word;

/// The oldest and newest protocol that this build speaks on `/v1/join` and on the line.
pub const PROTOCOL: Protocol = Protocol { min: 1, max: 1 };

/// An inclusive range of protocol versions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Protocol {
    pub min: u16,
    pub max: u16,
}
