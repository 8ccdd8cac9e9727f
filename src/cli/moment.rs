//! Moments as people write them: a length of time ago (`2h`), the time of today in UTC (`03:12`), or RFC 3339.

use time::{Duration, OffsetDateTime, Time};

use super::duration;
use super::exit::{Code, Failure};
use crate::clock;

/// A moment as RFC 3339, as a flag's value.
pub(super) fn parse(text: &str) -> Result<String, String> {
    at(text, clock::now())
}

fn at(text: &str, now: OffsetDateTime) -> Result<String, String> {
    if clock::parse_rfc3339(text).is_some() {
        return Ok(text.to_owned());
    }
    if let Some(time) = of_day(text) {
        let today = now.replace_time(time);
        if today > now {
            let before = clock::rfc3339(today - Duration::DAY);
            return Err(format!(
                "{text} (UTC) is yet to come today; of yesterday it is {before}"
            ));
        }
        return Ok(clock::rfc3339(today));
    }
    let ago = duration::parse(text).map_err(|_| {
        format!("'{text}' is neither a length of time such as 2h, nor a time of today (UTC) such as 03:12, nor RFC 3339")
    })?;
    let ago = Duration::try_from(ago).map_err(|e| e.to_string())?;
    let at = now
        .checked_sub(ago)
        .ok_or_else(|| format!("'{text}' is too long ago"))?;
    Ok(clock::rfc3339(at))
}

/// `03:12` or `03:12:45`.
fn of_day(text: &str) -> Option<Time> {
    let part = |part: &str| {
        let digits = part.len() == 2 && part.bytes().all(|b| b.is_ascii_digit());
        digits.then(|| part.parse::<u8>().ok()).flatten()
    };
    let parts: Vec<u8> = text.split(':').map(part).collect::<Option<_>>()?;
    match parts[..] {
        [hour, minute] => Time::from_hms(hour, minute, 0).ok(),
        [hour, minute, second] => Time::from_hms(hour, minute, second).ok(),
        _ => None,
    }
}

/// A span that ends before it begins: nothing is in it, whatever there is.
pub(super) fn backwards(since: Option<&str>, until: Option<&str>) -> Option<Failure> {
    let (since, until) = (since?, until?);
    if clock::parse_rfc3339(since)? <= clock::parse_rfc3339(until)? {
        return None;
    }
    let text = format!("--until ({until}) lies before --since ({since})");
    let next = "give the earlier time to --since; of two lengths of time that is the longer one: --since 2h --until 1h";
    Some(Failure::new(Code::Usage, text, next))
}

#[cfg(test)]
mod tests {
    use time::macros::datetime;

    use super::*;

    const NOW: OffsetDateTime = datetime!(2026-11-30 19:16:30.5 UTC);

    #[test]
    fn a_moment_is_a_length_of_time_ago_a_time_of_today_or_whole() {
        for (text, expected) in [
            ("2h", "2026-11-30T17:16:30.500Z"),
            ("19:16", "2026-11-30T19:16:00.000Z"),
            ("03:12:45", "2026-11-30T03:12:45.000Z"),
            ("00:00", "2026-11-30T00:00:00.000Z"),
            ("2026-11-29T08:00:00+01:00", "2026-11-29T08:00:00+01:00"),
        ] {
            assert_eq!(at(text, NOW), Ok(expected.to_owned()), "{text}");
        }
        for text in [
            "3:12",
            "24:00",
            "03:60",
            "03:12:",
            "03:12:00:00",
            "+3:12",
            "yesterday",
            "",
        ] {
            let told = format!(
                "'{text}' is neither a length of time such as 2h, nor a time of today (UTC) such as 03:12, nor RFC 3339"
            );
            assert_eq!(at(text, NOW), Err(told), "{text}");
        }
    }

    /// Who looks after midnight for what was before it would find nothing.
    #[test]
    fn a_time_of_today_that_is_yet_to_come_is_refused_with_that_of_yesterday() {
        let told = "23:50 (UTC) is yet to come today; of yesterday it is 2026-11-29T23:50:00.000Z";
        assert_eq!(at("23:50", NOW), Err(told.to_owned()));
    }
}
