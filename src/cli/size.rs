//! Sizes as people write them: `500MiB`, `10GiB`.

/// Reads a size in bytes; a number alone is bytes.
pub(super) fn parse(text: &str) -> Result<u64, String> {
    let wrong = || format!("'{text}' is not a size; write 64KiB, 500MiB, 10GiB or 1TiB");
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let number: u64 = digits.parse().map_err(|_| wrong())?;
    let shift = match text.get(digits.len()..).unwrap_or_default() {
        "" => 0,
        "KiB" => 10,
        "MiB" => 20,
        "GiB" => 30,
        "TiB" => 40,
        _ => return Err(wrong()),
    };
    number.checked_mul(1 << shift).ok_or_else(wrong)
}

/// The same where less would do harm; `why` says what.
pub(super) fn at_least(text: &str, least: u64, why: &str) -> Result<u64, String> {
    let size = parse(text)?;
    if size < least {
        return Err(format!("less than {least} bytes: {why}"));
    }
    Ok(size)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_in_binary_units() {
        for (text, bytes) in [
            ("0", 0),
            ("1500", 1_500),
            ("64KiB", 65_536),
            ("500MiB", 524_288_000),
            ("10GiB", 10_737_418_240),
            ("1TiB", 1 << 40),
        ] {
            assert_eq!(parse(text), Ok(bytes), "{text}");
        }
        for text in ["", "GiB", "1 GiB", "-1", "1GB", "1gib", "99999999999TiB"] {
            assert!(parse(text).is_err(), "{text}");
        }
    }
}
