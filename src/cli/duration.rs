//! Lengths of time as people write them: `90s`, `5m`, `24h`, `7d`.

use std::time::Duration;

/// A hundred years: what is longer is a slip of the pen, and no clock can be asked for its end.
const MOST: Duration = Duration::from_hours(36_600 * 24);

/// Reads a length of time. Only 0 needs no unit: 400 is meant as days by one and read as seconds by another.
pub(super) fn parse(text: &str) -> Result<Duration, String> {
    let wrong = || format!("'{text}' is not a length of time; write 90s, 5m, 24h or 7d");
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let number: u64 = digits.parse().map_err(|_| wrong())?;
    let unit = match text.get(digits.len()..).unwrap_or_default() {
        "" if number == 0 => 1,
        "" => {
            return Err(format!(
                "'{text}' has no unit; write {number}s, {number}m, {number}h or {number}d"
            ));
        }
        "s" => 1,
        "m" => 60,
        "h" => 3_600,
        "d" => 86_400,
        _ => return Err(wrong()),
    };
    number
        .checked_mul(unit)
        .map(Duration::from_secs)
        .filter(|length| *length <= MOST)
        .ok_or_else(|| format!("'{text}' is more than {}", show(MOST)))
}

/// The same where less would do harm; `why` says what.
pub(super) fn at_least(text: &str, least: Duration, why: &str) -> Result<Duration, String> {
    let length = parse(text)?;
    if length < least {
        return Err(format!("less than {}: {why}", show(least)));
    }
    Ok(length)
}

/// A word that is no length of time. One such is meant for `--wait`, whose value stands behind `=`: behind a blank it would be the next
/// argument.
pub(super) fn other(text: &str) -> Result<String, String> {
    match parse(text) {
        Ok(_) => Err(format!(
            "'{text}' is a length of time; where it is meant for --wait, write --wait={text}"
        )),
        Err(_) => Ok(text.to_owned()),
    }
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
            ("45s", 45, "45s"),
            ("0", 0, "0s"),
        ] {
            assert_eq!(parse(text), Ok(Duration::from_secs(seconds)), "{text}");
            assert_eq!(show(Duration::from_secs(seconds)), shown);
        }
        // A clock cannot be asked what it shows after the last ones.
        let endless = ["99999999999999999999d", "200000000000000d", "36601d"];
        assert_eq!(parse("36600d"), Ok(MOST));
        for text in ["", "m", "5 m", "-1s", "5w", "5mm"].iter().chain(&endless) {
            assert!(parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_number_without_its_unit_is_asked_back() {
        let expected = "'400' has no unit; write 400s, 400m, 400h or 400d";
        assert_eq!(parse("400"), Err(expected.to_owned()));
    }

    #[test]
    fn a_length_of_time_is_no_version_and_no_registry() {
        let told = "'15m' is a length of time; where it is meant for --wait, write --wait=15m";
        assert_eq!(other("15m"), Err(told.to_owned()));
        for text in ["2.9.5", "v3.2.6", "builtin", "r.example.org:5000/5m", "15"] {
            assert_eq!(other(text), Ok(text.to_owned()));
        }
    }

    #[test]
    fn less_than_does_no_harm_is_refused_with_the_reason() {
        let day = Duration::from_hours(24);
        let read = |text| at_least(text, day, "records go");
        assert_eq!(read("1d"), Ok(day));
        for text in ["0", "23h", "400s"] {
            assert_eq!(
                read(text),
                Err("less than 1d: records go".to_owned()),
                "{text}"
            );
        }
        assert!(read("400").is_err_and(|why| why.contains("no unit")));
    }
}
