//! The headers of a webhook whose receiver wants others than `Authorization: Bearer`: read from a text with one `Name: value` a line.
//! No error shows a value, nor a name that may be one. Pure.

use http::header::{HeaderMap, HeaderName, HeaderValue};

/// Headers in one file.
const MOST: usize = 16;
/// What says how a body is sent, or is of one connection alone (RFC 9110 7.6.1), is not the file's to say.
const OURS: [&str; 11] = [
    "host",
    "expect",
    "connection",
    "keep-alive",
    "proxy-connection",
    "proxy-authenticate",
    "proxy-authorization",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];
const OUR_PREFIX: &str = "content-";

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum HeadersError {
    #[error("there is no header in it")]
    Empty,
    #[error("there are more than {most} headers in it", most = MOST)]
    TooMany,
    #[error("line {0} is not 'Name: value'")]
    Line(usize),
    #[error("the value in line {0} is empty, or not in printable ASCII")]
    Value(usize),
    #[error("'{1}' (line {0}) is not sent by a file: the hub says itself how it sends")]
    Ours(usize, String),
    #[error("the header in line {0} is there twice")]
    Twice(usize),
}

/// Empty lines count as none.
pub fn parse(text: &str) -> Result<HeaderMap, HeadersError> {
    let mut headers = HeaderMap::new();
    let lines = (1_usize..).zip(text.lines());
    for (number, line) in lines.filter(|(_, line)| !line.trim().is_empty()) {
        let (name, value) = line.split_once(':').ok_or(HeadersError::Line(number))?;
        let name = HeaderName::from_bytes(name.trim().as_bytes());
        let name = name.map_err(|_| HeadersError::Line(number))?;
        if OURS.contains(&name.as_str()) || name.as_str().starts_with(OUR_PREFIX) {
            return Err(HeadersError::Ours(number, name.to_string()));
        }
        if headers.contains_key(&name) {
            return Err(HeadersError::Twice(number));
        }
        if headers.len() >= MOST {
            return Err(HeadersError::TooMany);
        }
        let value = value.trim();
        let good = !value.is_empty() && value.chars().all(|c| matches!(c, ' '..='~'));
        let value = HeaderValue::from_str(value).ok().filter(|_| good);
        let mut value = value.ok_or(HeadersError::Value(number))?;
        value.set_sensitive(true);
        headers.insert(name, value);
    }
    if headers.is_empty() {
        return Err(HeadersError::Empty);
    }
    Ok(headers)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_are_read_line_by_line() {
        let text = "Authorization: Splunk 1234-canary\r\n\n  X-Splunk-Request-Channel :a:b c \n";
        let read = parse(text).unwrap();
        let mut pairs: Vec<(&str, &str)> = read
            .iter()
            .map(|(name, value)| (name.as_str(), value.to_str().unwrap()))
            .collect();
        pairs.sort_unstable();
        assert_eq!(
            pairs,
            [
                ("authorization", "Splunk 1234-canary"),
                ("x-splunk-request-channel", "a:b c"),
            ]
        );
        assert!(!format!("{read:?}").contains("canary"), "{read:?}");
    }

    #[test]
    fn what_is_no_header_for_a_file_is_refused_and_no_value_is_shown() {
        let named = |name: &str| name.to_owned();
        let many: Vec<String> = (0..=MOST).map(|n| format!("x-{n}: canary")).collect();
        let many = many.join("\n");
        for (text, why) in [
            ("", HeadersError::Empty),
            ("\n \n", HeadersError::Empty),
            ("canary", HeadersError::Line(1)),
            ("a: 1\nnot a name: canary", HeadersError::Line(2)),
            ("a:", HeadersError::Value(1)),
            ("a: canary\u{1}", HeadersError::Value(1)),
            ("a: canary-é", HeadersError::Value(1)),
            ("Host: canary", HeadersError::Ours(1, named("host"))),
            (
                "\nContent-Type: canary",
                HeadersError::Ours(2, named("content-type")),
            ),
            (
                "Transfer-Encoding: canary",
                HeadersError::Ours(1, named("transfer-encoding")),
            ),
            ("A: canary\na: canary", HeadersError::Twice(2)),
            (many.as_str(), HeadersError::TooMany),
        ] {
            let refused = parse(text).unwrap_err();
            assert_eq!(refused, why, "{text}");
            assert!(!refused.to_string().contains("canary"), "{refused}");
        }
    }
}
