//! The one place that reads the wall clock and the system's randomness; everything that decides takes them
//! as arguments.

use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

#[expect(
    clippy::disallowed_methods,
    reason = "this is the one owner of the wall clock"
)]
pub fn now() -> OffsetDateTime {
    OffsetDateTime::now_utc()
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

pub fn parse_rfc3339(text: &str) -> Option<OffsetDateTime> {
    OffsetDateTime::parse(text, &Rfc3339).ok()
}

/// Random bytes of the system's generator.
pub fn random<const N: usize>() -> [u8; N] {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes).expect("the system gives random bytes");
    bytes
}

/// A random number in 0..1.
pub fn unit() -> f64 {
    f64::from(u32::from_le_bytes(random())) / f64::from(u32::MAX)
}
