//! What an identity provider's word on a user is still worth. Pure.

use std::fmt;

use time::OffsetDateTime;

use super::Role;
use crate::hub::access::Denied;
use crate::hub::oidc;
use crate::hub::store::UserRow;

/// Why groups that the provider named are not in force any more. The user logs in, and they are those of then.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lapsed {
    /// The hub asked, and the provider does not vouch for the user.
    Refused,
    /// Nobody could be asked for too long: there is no session of the user, or the provider does not answer.
    Old,
}

/// What to do about it.
pub const LOG_IN: &str = "its user runs: linesman login HUB";

impl Lapsed {
    /// A no to a user of such groups, who may have it for want of them only.
    #[must_use]
    pub fn told(self, no: &Denied) -> Denied {
        Denied {
            rule: no.rule,
            reason: format!("{}; {self}", no.reason),
            next: LOG_IN.to_owned(),
        }
    }
}

impl fmt::Display for Lapsed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Refused => {
                "groups do not count, for the identity provider does not vouch for the user now"
            }
            Self::Old => {
                "groups do not count, for the identity provider was not heard on the user for too long"
            }
        })
    }
}

/// Until when a user's own tokens and SSH keys hold, whatever their own end: the identity provider tells the hub nothing of
/// who left, but it does not vouch for them any more. None = a local user, or it was said so.
pub fn vouched_until(row: &UserRow, oidc: Option<&oidc::Config>) -> Option<OffsetDateTime> {
    let provided = row.provider.as_ref()?;
    vouched_within(oidc).map(|within| provided.vouched_at.saturating_add(within))
}

/// The same of a token with this end of its own, where it is before that.
pub fn vouched_before(
    end: Option<OffsetDateTime>,
    row: &UserRow,
    oidc: Option<&oidc::Config>,
) -> Option<OffsetDateTime> {
    vouched_until(row, oidc).filter(|until| end.is_none_or(|end| *until < end))
}

/// How long that is after the provider vouched for them last. None = it was said so.
pub fn vouched_within(oidc: Option<&oidc::Config>) -> Option<time::Duration> {
    let within = oidc.map_or(oidc::VOUCHED_WITHIN, |config| config.vouched_within);
    (!within.is_zero()).then(|| length(within))
}

/// Why the groups on record are not in force. None = they are, or a local user's.
pub fn lapsed(row: &UserRow, oidc: Option<&oidc::Config>, now: OffsetDateTime) -> Option<Lapsed> {
    let provided = row.provider.as_ref()?;
    let within = oidc.map_or(oidc::GROUPS_WITHIN, |config| config.groups_within);
    if provided.refused {
        return Some(Lapsed::Refused);
    }
    (now >= later(provided.vouched_at, within)).then_some(Lapsed::Old)
}

/// The groups that are in force.
pub fn groups<'a>(
    row: &'a UserRow,
    oidc: Option<&oidc::Config>,
    now: OffsetDateTime,
) -> &'a [String] {
    match lapsed(row, oidc, now) {
        Some(_) => &[],
        None => &row.groups,
    }
}

/// A user's own roles, and those that groups of the identity provider give to its users.
pub fn roles(row: &UserRow, oidc: Option<&oidc::Config>, now: OffsetDateTime) -> Vec<Role> {
    roles_by(row, oidc, groups(row, oidc, now))
}

/// The same with those by groups that have lapsed: after a login they are the user's again.
pub fn roles_on_record(row: &UserRow, oidc: Option<&oidc::Config>) -> Vec<Role> {
    roles_by(row, oidc, &row.groups)
}

/// Those that groups of the identity provider give, each with its group, also where that has lapsed.
pub fn roles_given<'a>(
    row: &UserRow,
    oidc: Option<&'a oidc::Config>,
) -> impl Iterator<Item = &'a (Role, String)> {
    let all = ours(row, oidc).into_iter().flat_map(|config| &config.roles);
    all.filter(move |(_, group)| row.groups.contains(group))
}

/// The provider whose word the user's groups are.
fn ours<'a>(row: &UserRow, oidc: Option<&'a oidc::Config>) -> Option<&'a oidc::Config> {
    let provided = row.provider.as_ref()?;
    oidc.filter(|config| provided.issuer == config.issuer)
}

fn roles_by(row: &UserRow, oidc: Option<&oidc::Config>, groups: &[String]) -> Vec<Role> {
    let mut roles: Vec<Role> = row.roles.iter().filter_map(|r| Role::parse(r)).collect();
    for role in oidc::roles(ours(row, oidc), groups) {
        if !roles.contains(&role) {
            roles.push(role);
        }
    }
    roles
}

fn later(at: OffsetDateTime, within: std::time::Duration) -> OffsetDateTime {
    at.saturating_add(length(within))
}

fn length(within: std::time::Duration) -> time::Duration {
    time::Duration::try_from(within).unwrap_or(time::Duration::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hub::store::Provided;

    fn heard() -> OffsetDateTime {
        OffsetDateTime::UNIX_EPOCH + time::Duration::days(1)
    }

    fn row(provider: Option<bool>) -> UserRow {
        UserRow {
            id: "u".to_owned(),
            name: "ada".to_owned(),
            roles: vec![],
            groups: vec!["sre".to_owned()],
            disabled: false,
            provider: provider.map(|refused| Provided {
                issuer: "https://id.example".to_owned(),
                subject: "1".to_owned(),
                vouched_at: heard(),
                refused,
            }),
            rev: 1,
        }
    }

    #[test]
    fn a_token_is_said_to_end_with_the_providers_word_where_that_is_before_its_own_end() {
        let until = heard() + oidc::VOUCHED_WITHIN;
        let moment = time::Duration::milliseconds(1);
        for (provider, end, expected) in [
            (Some(false), Some(until + moment), Some(until)),
            (Some(false), None, Some(until)),
            (Some(false), Some(until), None),
            (Some(false), Some(until - moment), None),
            (None, Some(until + moment), None),
            (None, None, None),
        ] {
            let before = vouched_before(end, &row(provider), None);
            assert_eq!(before, expected, "{provider:?} {end:?}");
        }
    }

    /// H32
    #[test]
    fn groups_are_in_force_as_long_as_the_provider_was_heard_lately() {
        let heard = heard();
        let end = heard + oidc::GROUPS_WITHIN;
        let moment = time::Duration::milliseconds(1);
        for (provider, now, why) in [
            (None, end + time::Duration::days(900), None),
            (Some(false), heard, None),
            (Some(false), end - moment, None),
            (Some(false), end, Some(Lapsed::Old)),
            (Some(true), heard, Some(Lapsed::Refused)),
            (Some(true), end, Some(Lapsed::Refused)),
        ] {
            let row = row(provider);
            assert_eq!(lapsed(&row, None, now), why, "{provider:?} {now}");
            let left: &[String] = if why.is_some() { &[] } else { &row.groups };
            assert_eq!(groups(&row, None, now), left);
        }
    }
}
