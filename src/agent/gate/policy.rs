//! The owner's policy: the `ConfigMap` `linesman-policy`. It can only narrow what the hub grants or wishes. A value or key
//! that cannot be read makes the whole policy invalid, so that a typing error never widens anything.
#![cfg_attr(not(test), deny(clippy::indexing_slicing, clippy::expect_used))]

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use time::{OffsetDateTime, Weekday};

use crate::agent::plan::window::LONGEST;
use crate::clock::parse_rfc3339;

/// The `ConfigMap`'s name, in the agent's namespace.
pub const CONFIG_MAP: &str = "linesman-policy";

/// What the owner lets the line and the watchdog do.
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a key of the ConfigMap, and any may go with any other"
)]
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Policy {
    /// `line: on | off`
    pub line: bool,
    /// `readOnly: true | false`
    pub read_only: bool,
    /// `maxGroups: 0..32`
    pub max_groups: usize,
    /// `namespaces: a,b`; absent = all.
    pub namespaces: Option<BTreeSet<String>>,
    /// `hours: Mon-Fri 08:00-18:00`, UTC, several with commas; absent = always.
    pub hours: Option<Hours>,
    /// `nodeProxy: allow | deny`
    pub node_proxy: bool,
    /// `ownNamespace: allow | deny`: the agent's own objects and the cluster's keys.
    pub own_namespace: bool,
    /// `heal` and `pausedUntil`
    pub mending: Mending,
}

/// How far the agent mends what is wrong with the engine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Mending {
    /// `heal: on | safe | off`
    pub heal: Heal,
    /// `pausedUntil`, RFC 3339: a maintenance window. One that is over stays here, for what it left behind.
    pub paused_until: Option<OffsetDateTime>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Heal {
    #[default]
    On,
    /// Only what is missing is put back.
    Safe,
    /// Nothing is written, as in a maintenance window.
    Off,
    /// The first policy that was read is invalid: it may have said `off`.
    Unclear,
}

impl Default for Policy {
    fn default() -> Self {
        Self {
            line: true,
            read_only: false,
            max_groups: MAX_GROUPS,
            namespaces: None,
            hours: None,
            node_proxy: false,
            own_namespace: false,
            mending: Mending::default(),
        }
    }
}

/// More groups than this are refused whatever the policy says.
const MAX_GROUPS: usize = 32;

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PolicyError {
    #[error(
        "key '{0}' is not known; known are line, readOnly, maxGroups, namespaces, hours, nodeProxy, ownNamespace, heal, pausedUntil"
    )]
    Key(String),
    #[error("'{key}: {value}' cannot be read; write {expected}")]
    Value {
        key: &'static str,
        value: String,
        expected: &'static str,
    },
    #[error(
        "'pausedUntil: {0}' is more than a day ahead; write a nearer time, and a later one before it is over"
    )]
    Far(String),
}

impl Policy {
    /// Nothing passes, and nothing is mended: what is in force where the first policy that is read is invalid.
    pub fn closed() -> Self {
        Self {
            line: false,
            mending: Mending {
                heal: Heal::Unclear,
                paused_until: None,
            },
            ..Self::default()
        }
    }

    /// Reads the `ConfigMap`'s `data`.
    pub fn parse(
        data: &BTreeMap<String, String>,
        now: OffsetDateTime,
    ) -> Result<Self, PolicyError> {
        let mut policy = Self::default();
        for (key, value) in data {
            let value = value.trim();
            match key.as_str() {
                "line" => policy.line = word("line", value, ["on", "off"])?,
                "readOnly" => policy.read_only = word("readOnly", value, ["true", "false"])?,
                "nodeProxy" => policy.node_proxy = word("nodeProxy", value, ["allow", "deny"])?,
                "ownNamespace" => {
                    policy.own_namespace = word("ownNamespace", value, ["allow", "deny"])?;
                }
                "maxGroups" => {
                    let groups = value.parse().ok().filter(|n| *n <= MAX_GROUPS);
                    policy.max_groups = groups
                        .ok_or_else(|| unreadable("maxGroups", value, "a number from 0 to 32"))?;
                }
                "namespaces" => policy.namespaces = Some(namespaces(value)?),
                "hours" => policy.hours = Some(Hours::parse(value)?),
                "heal" => policy.mending.heal = heal(value)?,
                "pausedUntil" => policy.mending.paused_until = Some(paused_until(value, now)?),
                other => return Err(PolicyError::Key(other.chars().take(60).collect())),
            }
        }
        Ok(policy)
    }
}

fn unreadable(key: &'static str, value: &str, expected: &'static str) -> PolicyError {
    PolicyError::Value {
        key,
        value: value.chars().take(60).collect(),
        expected,
    }
}

/// The first word is true, the second false.
fn word(key: &'static str, value: &str, words: [&'static str; 2]) -> Result<bool, PolicyError> {
    let [yes, no] = words;
    match value {
        v if v == yes => Ok(true),
        v if v == no => Ok(false),
        _ => Err(unreadable(
            key,
            value,
            if yes == "on" {
                "on or off"
            } else if yes == "true" {
                "true or false"
            } else {
                "allow or deny"
            },
        )),
    }
}

fn heal(value: &str) -> Result<Heal, PolicyError> {
    match value {
        "on" => Ok(Heal::On),
        "safe" => Ok(Heal::Safe),
        "off" => Ok(Heal::Off),
        _ => Err(unreadable("heal", value, "on, safe or off")),
    }
}

/// One that is over is no mistake: nobody has to take it away.
fn paused_until(value: &str, now: OffsetDateTime) -> Result<OffsetDateTime, PolicyError> {
    let expected = "a time such as 2026-11-21T18:00:00Z";
    let until = parse_rfc3339(value).ok_or_else(|| unreadable("pausedUntil", value, expected))?;
    if until - now > LONGEST {
        return Err(PolicyError::Far(value.chars().take(60).collect()));
    }
    Ok(until)
}

fn namespaces(value: &str) -> Result<BTreeSet<String>, PolicyError> {
    let fits = |name: &str| {
        (1..=63).contains(&name.len())
            && name
                .bytes()
                .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-')
            && !name.starts_with('-')
            && !name.ends_with('-')
    };
    let names: BTreeSet<String> = value
        .split(',')
        .map(|name| name.trim().to_owned())
        .collect();
    if names.iter().all(|name| fits(name)) {
        return Ok(names);
    }
    Err(unreadable(
        "namespaces",
        value,
        "names of namespaces with commas between",
    ))
}

/// Windows of the week, in UTC.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hours {
    windows: Vec<Window>,
    text: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Window {
    /// Monday = 0; from > to wraps around the week's end.
    days: (u8, u8),
    /// Minutes of the day, from inclusive, to exclusive; from > to runs into the next day.
    minutes: (u16, u16),
}

impl Hours {
    fn parse(value: &str) -> Result<Self, PolicyError> {
        let error = || {
            unreadable(
                "hours",
                value,
                "windows in UTC such as 'Mon-Fri 08:00-18:00, Sat 09:00-12:00'",
            )
        };
        let windows: Option<Vec<Window>> =
            value.split(',').map(|part| window(part.trim())).collect();
        Ok(Self {
            windows: windows.ok_or_else(error)?,
            text: value.to_owned(),
        })
    }

    pub fn contain(&self, at: OffsetDateTime) -> bool {
        let at = at.to_offset(time::UtcOffset::UTC);
        let minute = u16::from(at.hour()) * 60 + u16::from(at.minute());
        self.windows
            .iter()
            .any(|window| window.contains(at.weekday(), minute))
    }
}

/// `Mon 07:59`, in UTC, as the owner writes hours.
pub fn moment(at: OffsetDateTime) -> String {
    let at = at.to_offset(time::UtcOffset::UTC);
    let day = at.weekday().to_string();
    let day: String = day.chars().take(3).collect();
    format!("{day} {:02}:{:02}", at.hour(), at.minute())
}

impl fmt::Display for Hours {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl Window {
    fn contains(self, day: Weekday, minute: u16) -> bool {
        let (from, to) = self.minutes;
        let on = |day: Weekday| {
            let day = day.number_days_from_monday();
            let (first, last) = self.days;
            if first <= last {
                (first..=last).contains(&day)
            } else {
                day >= first || day <= last
            }
        };
        if from <= to {
            return on(day) && (from..to).contains(&minute);
        }
        (on(day) && minute >= from) || (on(day.previous()) && minute < to)
    }
}

/// `[Mon[-Fri] ]08:00-18:00`
fn window(text: &str) -> Option<Window> {
    let (days, times) = match text.split_once(' ') {
        Some((days, times)) => (self::days(days)?, times.trim()),
        None => ((0, 6), text),
    };
    let (from, to) = times.split_once('-')?;
    Some(Window {
        days,
        minutes: (minute(from)?, minute(to)?),
    })
}

fn days(text: &str) -> Option<(u8, u8)> {
    let day = |name: &str| {
        let names = ["mon", "tue", "wed", "thu", "fri", "sat", "sun"];
        let at = names.iter().position(|n| name.eq_ignore_ascii_case(n))?;
        u8::try_from(at).ok()
    };
    match text.split_once('-') {
        Some((first, last)) => Some((day(first)?, day(last)?)),
        None => day(text).map(|d| (d, d)),
    }
}

fn minute(text: &str) -> Option<u16> {
    let (hour, minute) = text.trim().split_once(':')?;
    let (hour, minute): (u16, u16) = (hour.parse().ok()?, minute.parse().ok()?);
    let at = hour * 60 + minute;
    (hour <= 24 && minute < 60 && at <= 1440).then_some(at)
}

#[cfg(test)]
mod tests;
