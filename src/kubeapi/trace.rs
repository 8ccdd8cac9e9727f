//! `traceparent` (W3C Trace Context, version 00): a user's trace goes on through hub and agent to the API server. Random bytes
//! are arguments.
#![cfg_attr(not(test), deny(clippy::indexing_slicing, clippy::expect_used))]

use std::fmt;

use http::HeaderMap;

pub const TRACEPARENT: &str = "traceparent";
/// Belongs to the `traceparent` that it came with, and to no other.
pub const TRACESTATE: &str = "tracestate";

/// Whoever began the trace records it.
const SAMPLED: u8 = 1;

/// Where a request is in its trace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TraceParent {
    trace: u128,
    /// Of the one who sent it on.
    parent: u64,
    flags: u8,
}

impl TraceParent {
    /// A trace that begins here; nobody asked to have it recorded.
    pub fn begin(trace: [u8; 16], parent: [u8; 8]) -> Self {
        Self {
            trace: u128::from_be_bytes(trace).max(1),
            parent: u64::from_be_bytes(parent).max(1),
            flags: 0,
        }
    }

    /// What the request came with, where that is one well-formed header.
    pub fn of(headers: &HeaderMap) -> Option<Self> {
        let mut values = headers.get_all(TRACEPARENT).iter();
        let value = values.next()?;
        if values.next().is_some() {
            return None;
        }
        value.to_str().ok()?.parse().ok()
    }

    /// The same trace, sent on by us. Of the flags, others than the one that version 00 knows are cleared (§3.2.2.5).
    #[must_use]
    pub fn child(self, parent: [u8; 8]) -> Self {
        Self {
            parent: u64::from_be_bytes(parent).max(1),
            flags: self.flags & SAMPLED,
            ..self
        }
    }

    /// The trace's id, for logs.
    pub fn id(&self) -> impl fmt::Display {
        format!("{:032x}", self.trace)
    }
}

impl fmt::Display for TraceParent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            trace,
            parent,
            flags,
        } = self;
        write!(f, "00-{trace:032x}-{parent:016x}-{flags:02x}")
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not a traceparent of version 00")]
pub struct NoTraceParent;

impl std::str::FromStr for TraceParent {
    type Err = NoTraceParent;

    fn from_str(text: &str) -> Result<Self, NoTraceParent> {
        let mut parts = text.split('-');
        let mut next = |len| {
            let lower = |b: u8| b.is_ascii_digit() || (b'a'..=b'f').contains(&b);
            let part = parts.next().filter(|part| part.len() == len);
            part.filter(|part| part.bytes().all(lower))
                .ok_or(NoTraceParent)
        };
        let [version, trace, parent, flags] = [next(2)?, next(32)?, next(16)?, next(2)?];
        let found = Self {
            trace: u128::from_str_radix(trace, 16).map_err(|_| NoTraceParent)?,
            parent: u64::from_str_radix(parent, 16).map_err(|_| NoTraceParent)?,
            flags: u8::from_str_radix(flags, 16).map_err(|_| NoTraceParent)?,
        };
        let whole = version == "00" && parts.next().is_none();
        if whole && found.trace != 0 && found.parent != 0 {
            Ok(found)
        } else {
            Err(NoTraceParent)
        }
    }
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;
    use proptest::prelude::*;

    use super::*;

    const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
    const GOOD: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

    fn headers(values: &[&[u8]]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for value in values {
            headers.append(TRACEPARENT, HeaderValue::from_bytes(value).unwrap());
        }
        headers
    }

    /// W3C Trace Context §3.2.
    #[test]
    fn what_is_not_well_formed_is_none() {
        let of = |value: &str| TraceParent::of(&headers(&[value.as_bytes()]));
        assert_eq!(of(GOOD).map(|t| t.to_string()).as_deref(), Some(GOOD));
        for wrong in [
            "",
            "00",
            "00---",
            "00-x",
            " 00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-0",
            "00-4BF92F3577B34DA6A3CE929D0E0E4736-00f067aa0ba902b7-01",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00F067aa0ba902b7-01",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-0A",
            "00-00000000000000000000000000000000-00f067aa0ba902b7-01",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000000-01",
            "00-4bf92f3577b34da6a3ce929d0e0e473-00f067aa0ba902b7-01",
            "00-+bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-+0f067aa0ba902b7-01",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-+1",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-1",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-011",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01-",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01-more",
            "00_4bf92f3577b34da6a3ce929d0e0e4736_00f067aa0ba902b7_01",
            // Of a later version, which may mean something else by these parts.
            "01-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
            "cc-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
            "ff-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
        ] {
            assert_eq!(of(wrong), None, "{wrong}");
        }
        let twice = headers(&[GOOD.as_bytes(), GOOD.as_bytes()]);
        assert_eq!(TraceParent::of(&twice), None);
        assert_eq!(TraceParent::of(&headers(&[b"00-\xff"])), None);
        assert_eq!(TraceParent::of(&HeaderMap::new()), None);
    }

    #[test]
    fn what_is_sent_on_is_of_the_same_trace_and_ours() {
        for (flags, kept) in [("00", "00"), ("01", "01"), ("03", "01"), ("fe", "00")] {
            let came: TraceParent = format!("00-{TRACE}-00f067aa0ba902b7-{flags}")
                .parse()
                .unwrap();
            let sent = came.child([0, 1, 2, 3, 4, 5, 6, 7]).to_string();
            assert_eq!(sent, format!("00-{TRACE}-0001020304050607-{kept}"));
        }
        let made = TraceParent::begin([0x0a; 16], [0xb0; 8]);
        assert_eq!(
            (made.to_string(), made.id().to_string()),
            (
                "00-0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a-b0b0b0b0b0b0b0b0-00".to_owned(),
                "0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a".to_owned(),
            )
        );
    }

    proptest! {
        /// Whoever gets it reads what we read.
        #[test]
        fn what_is_read_is_what_was_written(text in "[0-9a-fA-F-]{50,60}|00-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}|.*") {
            if let Ok(found) = text.parse::<TraceParent>() {
                prop_assert_eq!(found.to_string(), text);
            }
        }

        /// Ours are well-formed, whatever the dice say.
        #[test]
        fn what_is_made_is_read_again(trace: [u8; 16], parent: [u8; 8], child: [u8; 8]) {
            let begun = TraceParent::begin(trace, parent);
            let least = TraceParent::begin([0; 16], [0; 8]);
            for made in [begun, begun.child(child), least, least.child([0; 8])] {
                prop_assert_eq!(made.to_string().parse(), Ok(made));
            }
        }
    }
}
