//! The one place that reads the wall clock and the system's randomness; everything that decides takes them
//! as arguments.

use std::time::{Duration, Instant};

use time::OffsetDateTime;
use time::format_description::well_known::{Rfc2822, Rfc3339};

#[expect(
    clippy::disallowed_methods,
    reason = "this is the one owner of the wall clock"
)]
pub fn now() -> OffsetDateTime {
    OffsetDateTime::now_utc()
}

/// The last year of times that are read from outside.
const LAST_YEAR: i32 = 9000;

/// A clock that was read once and goes on by the monotonic one, so that setting a wall clock moves it at no end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Steady {
    read: OffsetDateTime,
    at: Instant,
}

impl Steady {
    /// A clock that showed `millis`, unix milliseconds, at that instant. What is no time is 1970.
    pub fn new(millis: i64, at: Instant) -> Self {
        let read = OffsetDateTime::from_unix_timestamp_nanos(i128::from(millis) * 1_000_000);
        Self::showing(read.unwrap_or(OffsetDateTime::UNIX_EPOCH), at)
    }

    /// A clock that showed `read` at that instant.
    pub fn showing(read: OffsetDateTime, at: Instant) -> Self {
        Self { read, at }
    }

    pub fn at(&self, now: Instant) -> OffsetDateTime {
        let since = now.saturating_duration_since(self.at);
        let since = time::Duration::try_from(since).unwrap_or(time::Duration::MAX);
        self.read.saturating_add(since)
    }
}

/// One boot of the node, and how long ago that was: a clock that nobody sets, and that goes on over a restart of the process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Boot {
    pub id: String,
    pub up: Duration,
}

/// What Linux says of it (proc(5)); none where it does not.
pub fn boot() -> Option<Boot> {
    let read = |path| std::fs::read_to_string(path).ok();
    let id = read("/proc/sys/kernel/random/boot_id")?.trim().to_owned();
    let up = read("/proc/uptime")?;
    let up: f64 = up.split_whitespace().next()?.parse().ok()?;
    let up = Duration::try_from_secs_f64(up).ok()?;
    (!id.is_empty()).then_some(Boot { id, up })
}

/// RFC 3339 in UTC with milliseconds, `2026-11-21T04:15:19.123Z`.
pub fn rfc3339(at: OffsetDateTime) -> String {
    let at = at.to_offset(time::UtcOffset::UTC);
    let (date, time) = (at.date(), at.time());
    format!(
        "{:04}-{:02}-{:02}T{:02}:{:02}:{:02}.{:03}Z",
        date.year(),
        u8::from(date.month()),
        date.day(),
        time.hour(),
        time.minute(),
        time.second(),
        time.millisecond()
    )
}

/// In UTC. What no clock shows is no time: anybody may write one into an object, and to each time that is read something is added.
pub fn parse_rfc3339(text: &str) -> Option<OffsetDateTime> {
    let at = OffsetDateTime::parse(text, &Rfc3339).ok()?;
    at.checked_to_offset(time::UtcOffset::UTC).filter(is_shown)
}

/// The same of nanoseconds since 1970.
pub fn from_nanoseconds(nanoseconds: i128) -> Option<OffsetDateTime> {
    let at = OffsetDateTime::from_unix_timestamp_nanos(nanoseconds).ok()?;
    Some(at).filter(is_shown)
}

/// A time to which centuries can be added.
fn is_shown(at: &OffsetDateTime) -> bool {
    (0..=LAST_YEAR).contains(&at.year())
}

/// The longest that somebody else's answer keeps a call waiting.
const LONGEST: Duration = Duration::from_mins(15);

/// How long `Retry-After` asks to wait, in seconds or up to a date (RFC 9110 §10.2.3), of which one that is over is no wait.
pub fn retry_after(text: &str, now: OffsetDateTime) -> Option<Duration> {
    let text = text.trim();
    let wait = if let Ok(seconds) = text.parse::<u64>() {
        Duration::from_secs(seconds)
    } else {
        let at = OffsetDateTime::parse(text, &Rfc2822).ok()?;
        Duration::try_from(at - now).unwrap_or_default()
    };
    Some(wait.min(LONGEST))
}

/// Random bytes of the system's generator.
pub fn random<const N: usize>() -> [u8; N] {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes).expect("the system gives random bytes");
    bytes
}

/// A new id: UUIDv7, which is of this time and random.
#[expect(
    clippy::disallowed_methods,
    reason = "this is the one owner of the wall clock and of randomness"
)]
pub fn id() -> String {
    uuid::Uuid::now_v7().to_string()
}

/// A random number in 0..1.
pub fn unit() -> f64 {
    f64::from(u32::from_le_bytes(random())) / f64::from(u32::MAX)
}

#[cfg(test)]
mod tests {
    use time::macros::datetime;

    use super::*;

    #[test]
    fn a_steady_clock_goes_on_from_what_was_read() {
        let at = Instant::now();
        let clock = Steady::new(1_767_323_045_678, at);
        let read = datetime!(2026-01-02 03:04:05.678 UTC);
        assert_eq!(clock.at(at), read);
        let later = clock.at(at + Duration::from_millis(90_322));
        assert_eq!(later, datetime!(2026-01-02 03:05:36 UTC));
        // Before it was read, and for what is no time, it stands.
        assert_eq!(
            clock.at(at.checked_sub(Duration::from_secs(5)).unwrap()),
            read
        );
        assert_eq!(Steady::new(i64::MAX, at).at(at), OffsetDateTime::UNIX_EPOCH);
    }

    #[test]
    fn a_time_that_no_clock_shows_is_none() {
        let read = datetime!(2026-01-02 03:04:05 UTC);
        for (text, told) in [
            ("2026-01-02T03:04:05Z", Some(read)),
            ("2026-01-02T04:04:05+01:00", Some(read)),
            // What Go has for no time at all.
            (
                "0001-01-01T00:00:00Z",
                Some(datetime!(0001-01-01 00:00 UTC)),
            ),
            ("0000-01-01T00:00:00+23:59", None),
            ("9001-01-01T00:00:00Z", None),
            ("9999-12-31T23:59:59Z", None),
            ("9999-12-31T23:59:59-01:00", None),
            ("2026-01-02", None),
        ] {
            assert_eq!(parse_rfc3339(text), told, "{text}");
        }
        let (now, end) = (read.unix_timestamp_nanos(), i128::MAX);
        assert_eq!(from_nanoseconds(now), Some(read));
        let far = datetime!(9999-12-31 23:59:59 UTC).unix_timestamp_nanos();
        assert_eq!([far, end, -end].map(from_nanoseconds), [None; 3]);
    }

    #[test]
    fn retry_after_is_read_in_both_forms_and_bounded() {
        let now = datetime!(2026-01-02 03:04:05 UTC);
        for (text, seconds) in [
            ("0", Some(0)),
            (" 7 ", Some(7)),
            ("901", Some(900)),
            ("18446744073709551615", Some(900)),
            ("Fri, 02 Jan 2026 03:04:35 GMT", Some(30)),
            ("Fri, 02 Jan 2026 03:04:05 GMT", Some(0)),
            ("Thu, 01 Jan 2026 03:04:05 GMT", Some(0)),
            ("Fri, 31 Dec 9999 23:59:59 GMT", Some(900)),
            ("", None),
            ("-1", None),
            ("soon", None),
            ("2026-01-02T03:04:35Z", None),
        ] {
            let wait = seconds.map(Duration::from_secs);
            assert_eq!(retry_after(text, now), wait, "{text}");
        }
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn a_node_has_one_boot_and_its_clock_goes_on() {
        let (before, after) = (boot().unwrap(), boot().unwrap());
        assert_eq!(before.id, after.id);
        assert!(after.up >= before.up);
    }
}
