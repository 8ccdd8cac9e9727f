//! The measure of a head that somebody else has parsed: one of HTTP/2 is as large as it would be in HTTP/1, for on its way to
//! the cluster it becomes one.

use http::{HeaderMap, Uri};

use super::{LONG, MANY, MAX_FIELDS, MAX_HEAD, Violation};

/// `HTTP/1.1`, the method and what stands around them; `: ` and the line's end.
const REQUEST_LINE: usize = 32;
const FIELD: usize = 4;

/// Refuses what [`super::head`] would.
pub fn measured(uri: &Uri, headers: &HeaderMap) -> Result<(), Violation> {
    // Of HTTP/2 it is what Host is of HTTP/1.
    let authority = uri.authority().map(|authority| authority.as_str().len());
    if headers.len() + usize::from(authority.is_some()) > MAX_FIELDS {
        return Err(Violation::HeadSize(MANY));
    }
    let target = uri
        .path_and_query()
        .map_or(0, |target| target.as_str().len());
    let fields = headers
        .iter()
        .map(|(name, value)| name.as_str().len() + value.len() + FIELD);
    let all = REQUEST_LINE + target + authority.unwrap_or_default() + fields.sum::<usize>();
    if all > MAX_HEAD {
        return Err(Violation::HeadSize(LONG));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use http::Request;

    use super::*;

    fn of(target: usize, fields: usize, value: usize) -> Result<(), Violation> {
        let uri = format!("https://localhost/{}", "y".repeat(target));
        let mut request = Request::get(uri);
        for _ in 0..fields {
            request = request.header("x", "y".repeat(value));
        }
        let parts = request.body(()).unwrap().into_parts().0;
        measured(&parts.uri, &parts.headers)
    }

    /// L11, L40
    #[test]
    fn a_parsed_head_has_the_bounds_of_one_in_bytes() {
        let many = Err(Violation::HeadSize("more than 100 header fields"));
        let long = Err(Violation::HeadSize("more than 64 KiB"));
        for (target, fields, value, expected) in [
            (10, 99, 1, Ok(())),
            (10, 100, 1, many),
            (10, 1, 65_000, Ok(())),
            (10, 1, 65_600, long),
            (60_000, 1, 5_000, Ok(())),
            (60_000, 1, 6_000, long),
            (10, 99, 700, long),
            (10, 2_000, 700, many),
        ] {
            assert_eq!(
                of(target, fields, value),
                expected,
                "{target} {fields} {value}"
            );
        }
    }
}
