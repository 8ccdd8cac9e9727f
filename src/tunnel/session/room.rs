//! Room in memory for what arrives: who gives his up when there is too little.

use std::cmp::Reverse;
use std::time::{Duration, Instant};

use super::{Event, Session};
use crate::tunnel::LineError;
use crate::tunnel::budget::Level;
use crate::wire::frame::Code;

/// Whoever reads nothing for so long makes room for others on a line that was full.
pub(super) const UNREAD_LONG: Duration = Duration::from_secs(5);

impl Session {
    /// Gives memory back where the line, or the process, has too little of it: of what nobody reads a quarter, so
    /// that it is not full again at once; of what was read lately no more than is needed.
    pub(super) fn relieve(&mut self, now: Instant) {
        if self.meter.level() < Level::Over {
            return;
        }
        self.full = true;
        self.drop_unread(now, UNREAD_LONG, Level::Tight);
        self.drop_unread(now, Duration::ZERO, Level::Over);
    }

    /// Whether a new stream is taken. A line that was full takes none before a quarter of its memory is free again,
    /// and what nobody reads makes way for it; so whoever leaves streams unread cannot keep others out.
    pub(super) fn takes_streams(&mut self, now: Instant) -> bool {
        self.relieve(now);
        if self.full {
            self.drop_unread(now, UNREAD_LONG, Level::Tight);
            self.full = self.meter.level() >= Level::Tight;
        }
        !self.full
    }

    /// Resets streams that nobody has read for `least`, until the memory is filled to less than `level`: those
    /// whose bytes lie longest first, and the largest of these.
    fn drop_unread(&mut self, now: Instant, least: Duration, level: Level) {
        if self.meter.level() < level {
            return;
        }
        let mut unread: Vec<_> = self
            .streams
            .iter()
            .filter(|(_, stream)| stream.buffer.len() > 0)
            .map(|(id, stream)| {
                let since = now.saturating_duration_since(stream.unread_since);
                // In whole seconds, so that among streams of one age the largest goes.
                (Reverse((since.as_secs(), stream.buffer.len())), since, *id)
            })
            .filter(|(_, since, _)| *since >= least)
            .collect();
        unread.sort_unstable();
        for (_, _, id) in unread {
            if self.meter.level() < level {
                return;
            }
            self.give_up(id);
        }
    }

    fn give_up(&mut self, id: u32) {
        let text = "unread input took the line's memory";
        let live = |stream: &super::StreamState| stream.live && stream.rst.is_none();
        if self.streams.get(&id).is_some_and(live) {
            self.reset(id, Code::OverBudget, text);
        } else {
            self.drop_bytes(id);
            if let Some(stream) = self.streams.get_mut(&id) {
                stream.error = Some(LineError::new(Code::OverBudget, text));
            }
        }
        self.events.push_back(Event::Failed(id));
    }
}
