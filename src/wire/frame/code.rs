//! Why a stream or a line ended: the codes and their numbers on the wire.

use std::fmt;

macro_rules! codes {
    ($($(#[$doc:meta])* $name:ident = $value:literal $text:literal,)*) => {
        /// Why a stream or a line ended.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum Code {
            $($(#[$doc])* $name,)*
            /// A code of a newer peer.
            Other(u16),
        }

        impl From<u16> for Code {
            fn from(value: u16) -> Self {
                match value {
                    $($value => Self::$name,)*
                    other => Self::Other(other),
                }
            }
        }

        impl From<Code> for u16 {
            fn from(code: Code) -> Self {
                match code {
                    $(Code::$name => $value,)*
                    Code::Other(other) => other,
                }
            }
        }

        impl fmt::Display for Code {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                match self {
                    $(Self::$name => f.write_str($text),)*
                    Self::Other(other) => write!(f, "code {other}"),
                }
            }
        }

        #[cfg(test)]
        const KNOWN_CODES: &[Code] = &[$(Code::$name,)*];
    };
}

codes! {
    None = 0 "closed",
    Cancelled = 1 "cancelled",
    Refused = 2 "refused",
    Limit = 3 "limit reached",
    OverBudget = 4 "over the memory budget",
    Flow = 5 "flow control broken",
    Protocol = 6 "protocol broken",
    Internal = 7 "internal error",
    /// Never on the wire: the line went away below the stream.
    LineLost = 8 "line lost",
    Draining = 9 "draining",
    Superseded = 10 "superseded by a newer line",
    Ids = 11 "stream ids used up",
    Revoked = 12 "revoked",
    DialRefused = 16 "connection refused",
    DialTimeout = 17 "connection timed out",
    Dns = 18 "name not found",
    Unreachable = 19 "unreachable",
    Tls = 20 "TLS failed",
    DeniedTarget = 21 "target not allowed",
    BadSignature = 32 "bad signature",
    UnknownCluster = 33 "unknown cluster",
    Version = 34 "no common protocol version",
    Busy = 35 "busy",
    Unavailable = 36 "unavailable",
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_keep_their_numbers() {
        for &code in KNOWN_CODES {
            assert_eq!(Code::from(u16::from(code)), code);
            assert!(!matches!(code, Code::Other(_)));
        }
        assert_eq!(Code::from(999), Code::Other(999));
        assert_eq!(
            (u16::from(Code::Superseded), u16::from(Code::Unavailable)),
            (10, 36)
        );
    }
}
