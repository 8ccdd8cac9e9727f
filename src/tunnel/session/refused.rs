//! OPENs that get RST without ever having had a state. The reader never waits for the writer: what a burst is refused is kept as
//! one range of ids, however many they are.

use std::collections::VecDeque;

use crate::wire::frame::Code;

/// Ranges that wait for the writer; they begin anew wherever a stream was taken in between.
const MAX_RUNS: usize = 1024;

#[derive(Debug, Clone, Copy)]
struct Run {
    next: u32,
    last: u32,
    code: Code,
}

/// Refused and not yet answered.
#[derive(Debug, Default)]
pub(super) struct Refused(VecDeque<Run>);

impl Refused {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Ids rise. False where there is no room.
    pub(super) fn push(&mut self, id: u32, code: Code) -> bool {
        // An opener's ids are all odd or all even.
        if let Some(run) = self.0.back_mut()
            && run.code == code
            && run.last.checked_add(2) == Some(id)
        {
            run.last = id;
            return true;
        }
        if self.0.len() >= MAX_RUNS {
            return false;
        }
        let (next, last) = (id, id);
        self.0.push_back(Run { next, last, code });
        true
    }

    pub(super) fn pop(&mut self) -> Option<(u32, Code)> {
        let run = self.0.front_mut()?;
        let refused = (run.next, run.code);
        if run.next >= run.last {
            self.0.pop_front();
        } else {
            run.next = run.next.saturating_add(2);
        }
        Some(refused)
    }
}
