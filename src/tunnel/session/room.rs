//! Room in memory for what arrives: who gives his up when there is too little.
//!
//! The order in which streams make way is kept from one time to the next. A line that is full asks for it with each OPEN
//! and with each DATA, and a peer has many streams: looked for each time, they would cost a core for a trickle of frames.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::time::{Duration, Instant};

use super::{Event, Session, StreamState};
use crate::tunnel::LineError;
use crate::tunnel::budget::Level;
use crate::wire::frame::Code;

/// The order is made anew after this part of the line's memory has come: what was small may be large.
const GROWN: usize = 16;

/// Streams with unread bytes. Each is in one of the two, once; those that were read meanwhile are, too.
#[derive(Debug)]
pub(super) struct Unread {
    start: Instant,
    /// By when the order was made they had no bytes, or were read since: younger than all that are in it.
    came: Vec<u32>,
    /// The last one makes way first, unless it was read since then.
    order: Vec<(Instant, u32)>,
    /// Bytes that came since the order was made.
    grown: usize,
    /// Entries that were looked at.
    #[cfg(test)]
    pub(super) looks: usize,
}

impl Unread {
    pub(super) fn new(start: Instant) -> Self {
        Self {
            start,
            came: Vec::new(),
            order: Vec::new(),
            grown: 0,
            #[cfg(test)]
            looks: 0,
        }
    }

    /// `len` bytes came for `id`.
    pub(super) fn came(&mut self, id: u32, stream: &mut StreamState, len: usize) {
        self.grown = self.grown.saturating_add(len);
        if !stream.ranked {
            stream.ranked = true;
            self.came.push(id);
        }
    }

    /// Streams end whose names are left here; they must not outgrow the table.
    pub(super) fn forget(&mut self, streams: &HashMap<u32, StreamState>, most: usize) {
        if self.came.len() + self.order.len() > most {
            self.came.retain(|id| streams.contains_key(id));
            self.order.retain(|(_, id)| streams.contains_key(id));
        }
    }

    /// Whose bytes lie longest, in whole seconds of the line, and of these the largest; and since when they do.
    fn oldest(
        &mut self,
        streams: &mut HashMap<u32, StreamState>,
        memory: usize,
    ) -> Option<(Instant, u32)> {
        if self.grown > memory / GROWN {
            self.came.extend(self.order.drain(..).map(|(_, id)| id));
        }
        loop {
            while let Some(&(since, id)) = self.order.last() {
                #[cfg(test)]
                {
                    self.looks += 1;
                }
                match streams.get_mut(&id) {
                    Some(stream) if stream.buffer.len() == 0 => stream.ranked = false,
                    Some(stream) if stream.unread_since == since => return Some((since, id)),
                    Some(_) => self.came.push(id),
                    None => {}
                }
                self.order.pop();
            }
            if self.came.is_empty() {
                return None;
            }
            self.rank(streams);
        }
    }

    fn rank(&mut self, streams: &mut HashMap<u32, StreamState>) {
        #[cfg(test)]
        {
            self.looks += self.came.len();
        }
        self.grown = 0;
        let mut ranks = Vec::with_capacity(self.came.len());
        for id in std::mem::take(&mut self.came) {
            let Some(stream) = streams.get_mut(&id) else {
                continue;
            };
            let (since, len) = (stream.unread_since, stream.buffer.len());
            stream.ranked = len > 0;
            if stream.ranked {
                let age = since.saturating_duration_since(self.start).as_secs();
                ranks.push((Reverse(age), len, Reverse(since), Reverse(id)));
            }
        }
        ranks.sort_unstable();
        self.order = ranks
            .into_iter()
            .map(|(_, _, Reverse(since), Reverse(id))| (since, id))
            .collect();
    }
}

impl Session {
    /// Gives memory back where the line, or the process, has too little of it: of what nobody reads a quarter, so
    /// that it is not full again at once; of what was read lately no more than is needed.
    pub(super) fn relieve(&mut self, now: Instant) {
        if self.meter.level() < Level::Over {
            return;
        }
        self.full = true;
        self.drop_unread(now, self.config.unread_long, Level::Tight);
        self.drop_unread(now, Duration::ZERO, Level::Over);
    }

    /// Whether a new stream is taken. A line that was full takes none before a quarter of its memory is free again,
    /// and what nobody reads makes way for it; so whoever leaves streams unread cannot keep others out. The peer cannot
    /// know that it is full, so to be refused is no offence however often; it costs no more than any other frame.
    pub(super) fn takes_streams(&mut self, now: Instant) -> bool {
        self.relieve(now);
        if self.full {
            self.drop_unread(now, self.config.unread_long, Level::Tight);
            self.full = self.meter.level() >= Level::Tight;
        }
        !self.full
    }

    /// Resets streams that nobody has read for `least`, until the memory is filled to less than `level`: those
    /// whose bytes lie longest first, and the largest of these.
    fn drop_unread(&mut self, now: Instant, least: Duration, level: Level) {
        while self.meter.level() >= level {
            let Some((since, id)) = self.unread.oldest(&mut self.streams, self.config.budget)
            else {
                return;
            };
            if now.saturating_duration_since(since) < least {
                return;
            }
            self.give_up(id);
        }
    }

    fn give_up(&mut self, id: u32) {
        let text = "unread input took the line's memory";
        let live = |stream: &StreamState| stream.live && stream.rst.is_none();
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
