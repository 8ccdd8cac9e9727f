//! HTTP/1 requests as bytes, checked more strictly than a lenient parser does (RFC 9112): what two servers
//! could frame differently is refused before anyone acts on it. Sans-IO; heads are held back until they are
//! whole, bodies pass as they come. What the server's own parser would refuse is refused here too, for it has no words.
#![cfg_attr(not(test), deny(clippy::indexing_slicing, clippy::expect_used))]

use http::{StatusCode, Uri};

use super::status::{Hop, Refusal};

mod measure;
mod scanner;

pub use measure::measured;
pub use scanner::Scanner;

/// The longest head, and the most header fields of one: hyper's own bounds.
pub const MAX_HEAD: usize = 64 << 10;
const MAX_FIELDS: usize = 100;
const MANY: &str = "more than 100 header fields";
const LONG: &str = "more than 64 KiB";
/// Why a request is not taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Violation {
    /// It is none, or two servers could frame it differently.
    #[error("not a well-formed HTTP request: {0}")]
    Framing(&'static str),
    /// More than anybody needs.
    #[error("the request's head has {0}")]
    HeadSize(&'static str),
}

impl Violation {
    /// What the user is told. Nothing behind it on the connection can be trusted.
    pub fn refusal(self) -> Refusal {
        let (code, reason, next) = match self {
            Self::Framing(_) => (
                StatusCode::BAD_REQUEST,
                "Framing",
                "send one well-formed HTTP request",
            ),
            Self::HeadSize(_) => (
                StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE,
                "HeadSize",
                "send fewer or shorter headers, and a shorter URL",
            ),
        };
        Refusal::new(Hop::Hub, code, reason, self.to_string())
            .next(next)
            .close()
    }
}

/// What a head says of what follows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Head {
    pub body: Framing,
    /// A switch of protocol is asked for.
    pub upgrade: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Framing {
    Length(u64),
    Chunked,
}

/// Checks a head, given to its blank line.
pub fn head(bytes: &[u8]) -> Result<Head, Violation> {
    let text = bytes
        .strip_suffix(b"\r\n\r\n")
        .ok_or(Violation::Framing("a head without an end"))?;
    let mut lines = Lines(Some(text));
    request_line(lines.next().unwrap_or_default())?;
    let (mut hosts, mut lengths, mut codings) = (0, 0, 0);
    let (mut length, mut upgrade) = (0, false);
    for (number, line) in lines.enumerate() {
        if number == MAX_FIELDS {
            return Err(Violation::HeadSize(MANY));
        }
        let (name, value) = field(line)?;
        match name.to_ascii_lowercase().as_slice() {
            b"host" => hosts += 1,
            b"content-length" => {
                lengths += 1;
                length = decimal(value)
                    .ok_or(Violation::Framing("a Content-Length that is no number"))?;
            }
            b"transfer-encoding" if value.eq_ignore_ascii_case(b"chunked") => codings += 1,
            b"transfer-encoding" => {
                return Err(Violation::Framing("a Transfer-Encoding other than chunked"));
            }
            b"upgrade" => upgrade = true,
            _ => {}
        }
    }
    if hosts > 1 || lengths > 1 || codings > 1 {
        return Err(Violation::Framing(
            "Host, Content-Length or Transfer-Encoding twice",
        ));
    }
    if lengths + codings > 1 {
        return Err(Violation::Framing(
            "both Content-Length and Transfer-Encoding",
        ));
    }
    if hosts == 0 && text_version(text) != b"HTTP/1.0" {
        return Err(Violation::Framing("no Host"));
    }
    if codings > 0 && text_version(text) == b"HTTP/1.0" {
        return Err(Violation::Framing("Transfer-Encoding with HTTP/1.0"));
    }
    let body = if codings > 0 {
        Framing::Chunked
    } else {
        Framing::Length(length)
    };
    Ok(Head { body, upgrade })
}

struct Lines<'a>(Option<&'a [u8]>);

impl<'a> Iterator for Lines<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        let all = self.0?;
        let end = all.windows(2).position(|two| two == b"\r\n");
        let (line, rest) = match end.and_then(|end| all.split_at_checked(end)) {
            Some((line, rest)) => (line, rest.get(2..)),
            None => (all, None),
        };
        self.0 = rest;
        Some(line)
    }
}

fn text_version(text: &[u8]) -> &[u8] {
    let line = Lines(Some(text)).next().unwrap_or_default();
    line.rsplit(|byte| *byte == b' ').next().unwrap_or_default()
}

fn request_line(line: &[u8]) -> Result<(), Violation> {
    let mut words = line.split(|byte| *byte == b' ');
    let (method, target, version) = (words.next(), words.next(), words.next());
    let good = method.is_some_and(is_token)
        && target.is_some_and(is_target)
        && matches!(version, Some(b"HTTP/1.1" | b"HTTP/1.0"))
        && words.next().is_none();
    good.then_some(())
        .ok_or(Violation::Framing("a bad request line"))
}

fn is_target(text: &[u8]) -> bool {
    let printable = text.iter().all(|byte| *byte > b' ' && *byte != 0x7f);
    let text = std::str::from_utf8(text).ok().filter(|_| printable);
    text.is_some_and(|text| text.parse::<Uri>().is_ok())
}

/// Name and value of one line.
fn field(line: &[u8]) -> Result<(&[u8], &[u8]), Violation> {
    if matches!(line.first(), Some(b' ' | b'\t')) {
        return Err(Violation::Framing("a folded line"));
    }
    let colon = line.iter().position(|byte| *byte == b':');
    let (name, value) = colon
        .and_then(|colon| line.split_at_checked(colon))
        .ok_or(Violation::Framing("a line without a colon"))?;
    if !is_token(name) {
        return Err(Violation::Framing("a bad field name"));
    }
    let value = value.get(1..).unwrap_or_default();
    let bad = |byte: &u8| (*byte < b' ' && *byte != b'\t') || *byte == 0x7f;
    if value.iter().any(bad) {
        return Err(Violation::Framing("a control character"));
    }
    // What is white space besides blank and tab was refused above.
    Ok((name, value.trim_ascii()))
}

/// RFC 9110 5.6.2
fn is_token(text: &[u8]) -> bool {
    let of = |byte: &u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(byte);
    !text.is_empty() && text.iter().all(of)
}

fn decimal(text: &[u8]) -> Option<u64> {
    let digits = !text.is_empty() && text.len() <= 18 && text.iter().all(u8::is_ascii_digit);
    std::str::from_utf8(text)
        .ok()
        .filter(|_| digits)?
        .parse()
        .ok()
}
