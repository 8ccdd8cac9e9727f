//! How the pings of a switched protocol look, so that they can wait where nothing else does.

use std::time::Duration;

/// What two ends talk after a switch of protocol, by its name in `Upgrade`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Dialect {
    Spdy,
    WebSocket,
    Other,
}

/// A PING of SPDY/3.1 (2.6.5) but for its number: control frame of version 3, type 6, no flags, 4 bytes.
const SPDY_PING: [u8; 8] = [0x80, 3, 0, 6, 0, 0, 0, 4];
const SPDY_NUMBER: usize = 4;
/// The last piece of a ping of WebSocket (RFC 6455, 5.2 and 5.5.2), masked: a length of at most 125, a key of 4 bytes, the payload.
const WEBSOCKET_PING: u8 = 0x89;
const MASKED: u8 = 0x80;
const MAX_CONTROL: u8 = 125;
const KEY: usize = 4;

impl Dialect {
    pub fn of(upgrade: &[u8]) -> Self {
        if upgrade.len() >= 5 && upgrade[..5].eq_ignore_ascii_case(b"SPDY/") {
            Self::Spdy
        } else if upgrade.eq_ignore_ascii_case(b"websocket") {
            Self::WebSocket
        } else {
            Self::Other
        }
    }

    /// Whether these bytes, read at once, are whole pings of a user and nothing else. In the middle of a frame of data bytes can look
    /// alike: then they wait as long as a ping does.
    pub fn is_pings(self, mut bytes: &[u8]) -> bool {
        let any = !bytes.is_empty();
        while !bytes.is_empty() {
            let Some(rest) = self.ping(bytes).and_then(|size| bytes.get(size..)) else {
                return false;
            };
            bytes = rest;
        }
        any
    }

    /// The size of the ping that these bytes begin with.
    fn ping(self, bytes: &[u8]) -> Option<usize> {
        match (self, bytes) {
            (Self::Spdy, _) => bytes
                .starts_with(&SPDY_PING)
                .then_some(SPDY_PING.len() + SPDY_NUMBER),
            (Self::WebSocket, [WEBSOCKET_PING, size, ..]) => {
                let size = size.checked_sub(MASKED).filter(|n| *n <= MAX_CONTROL)?;
                Some(2 + KEY + usize::from(size))
            }
            (Self::WebSocket | Self::Other, _) => None,
        }
    }

    /// How long a ping may wait while the server says on and on. `kubectl` does nothing about a SPDY ping without an answer, and
    /// ends a WebSocket after 61 s; other clients of WebSocket do after 20 s.
    pub fn patience(self) -> Duration {
        match self {
            Self::Spdy => Duration::from_mins(1),
            Self::WebSocket | Self::Other => Duration::from_secs(10),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Dialect::{Other, Spdy, WebSocket};
    use super::*;

    fn spdy(number: u8) -> Vec<u8> {
        [&SPDY_PING[..], &[0, 0, 0, number]].concat()
    }

    fn websocket(payload: &[u8]) -> Vec<u8> {
        let size = MASKED | u8::try_from(payload.len()).unwrap();
        [&[WEBSOCKET_PING, size, 1, 2, 3, 4], payload].concat()
    }

    #[test]
    fn a_protocol_is_known_by_its_name() {
        let names = [
            "SPDY/3.1",
            "spdy/3.1",
            "websocket",
            "WebSocket",
            "h2c",
            "S",
            "",
        ];
        let known = names.map(|name| Dialect::of(name.as_bytes()));
        assert_eq!(
            known,
            [Spdy, Spdy, WebSocket, WebSocket, Other, Other, Other]
        );
    }

    #[test]
    fn whole_pings_alone_are_pings() {
        let (one, two) = (spdy(1), [spdy(1), spdy(3)].concat());
        let (empty, long) = (websocket(b""), websocket(&[7; 125]));
        let unmasked = [WEBSOCKET_PING, 0];
        let with_data = [&spdy(1)[..], b"x"].concat();
        let text = [0x82, MASKED, 1, 2, 3, 4];
        for (dialect, bytes, is) in [
            (Spdy, &one[..], true),
            (Spdy, &two, true),
            (Spdy, &two[..23], false),
            (Spdy, &one[..11], false),
            (Spdy, &with_data, false),
            (Spdy, b"", false),
            (Spdy, &empty, false),
            (WebSocket, &empty, true),
            (WebSocket, &long, true),
            (WebSocket, &[&long[..], &empty].concat(), true),
            (WebSocket, &long[..130], false),
            (WebSocket, &empty[..1], false),
            (WebSocket, &unmasked, false),
            (WebSocket, &text, false),
            (WebSocket, &one, false),
            (Other, &one, false),
        ] {
            assert_eq!(dialect.is_pings(bytes), is, "{dialect:?} {bytes:?}");
        }
    }
}
