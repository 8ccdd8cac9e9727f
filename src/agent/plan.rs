//! The whole judgement of the watchdog: now, desired, observed to steps and the next look.
