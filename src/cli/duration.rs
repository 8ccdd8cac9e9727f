//! Lengths of time as people write them: `90s`, `5m`, `24h`, `7d`.

use std::time::Duration;

/// Reads a length of time; a number alone is seconds.
pub(super) fn parse(text: &str) -> Result<Duration, String> {
    let wrong = || format!("'{text}' is not a length of time; write 90s, 5m, 24h or 7d");
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let number: u64 = digits.parse().map_err(|_| wrong())?;
    let unit = match &text[digits.len()..] {
        "" | "s" => 1,
        "m" => 60,
        "h" => 3_600,
        "d" => 86_400,
        _ => return Err(wrong()),
    };
    number
        .checked_mul(unit)
        .map(Duration::from_secs)
        .ok_or_else(wrong)
}

/// The shortest form that says it exactly.
pub(super) fn show(length: Duration) -> String {
    let seconds = length.as_secs();
    match seconds {
        s if s > 0 && s % 86_400 == 0 => format!("{}d", s / 86_400),
        s if s > 0 && s % 3_600 == 0 => format!("{}h", s / 3_600),
        s if s > 0 && s % 60 == 0 => format!("{}m", s / 60),
        s => format!("{s}s"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_of_time_are_read_and_shown() {
        for (text, seconds, shown) in [
            ("90s", 90, "90s"),
            ("5m", 300, "5m"),
            ("24h", 86_400, "1d"),
            ("7d", 604_800, "7d"),
            ("45", 45, "45s"),
        ] {
            assert_eq!(parse(text), Ok(Duration::from_secs(seconds)), "{text}");
            assert_eq!(show(Duration::from_secs(seconds)), shown);
        }
        for text in ["", "m", "5 m", "-1s", "5w", "99999999999999999999d", "5mm"] {
            assert!(parse(text).is_err(), "{text}");
        }
    }
}
