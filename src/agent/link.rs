//! Dial the hub, back off, keep the line and hand out its streams.
