//! Which end a session is, and the limits that both ends agreed on.

use std::time::Duration;

use crate::tunnel::budget::Budget;
use crate::tunnel::credit::INITIAL_WINDOW;

/// Which end this is; the agent's streams have odd ids.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    Agent,
    Hub,
}

/// What both ends agreed on.
#[derive(Debug, Clone)]
pub struct Config {
    pub role: Role,
    /// What the peer may send on a new stream.
    pub window: u32,
    /// What we may send on a stream that we open.
    pub peer_window: u32,
    /// Streams that the peer may have open.
    pub max_streams: usize,
    /// Streams that we may have open.
    pub peer_max_streams: usize,
    /// Memory that unread input of this line may take.
    pub budget: usize,
    /// The same for all lines of the process.
    pub process: Budget,
    /// Whoever reads nothing for so long makes room for others on a line that was full.
    pub unread_long: Duration,
    /// In 0..1; spreads timers.
    pub unit: f64,
}

/// As the product has it.
pub const UNREAD_LONG: Duration = Duration::from_secs(5);

impl Config {
    pub fn new(role: Role) -> Self {
        Self {
            role,
            window: INITIAL_WINDOW,
            peer_window: INITIAL_WINDOW,
            max_streams: 16_384,
            peer_max_streams: 16_384,
            budget: match role {
                Role::Agent => 24 << 20,
                Role::Hub => 32 << 20,
            },
            process: Budget::unlimited(),
            unread_long: UNREAD_LONG,
            unit: 0.5,
        }
    }
}
