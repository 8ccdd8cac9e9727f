//! What who has no grant on a cluster is told of the one that let them there until lately. Pure.

use time::{Duration, OffsetDateTime};

use super::{Asker, Clusters, Denied, Grant, Mode, NO_GRANT};
use crate::clock;
use crate::wire::id::ClusterName;

/// How long one that ended is told of; it is kept no longer.
const TOLD: Duration = Duration::days(30);
/// Characters of a grant's reason that are told, and the most groups and namespaces that a command is made of.
const REASON: usize = 100;
const WORDS: usize = 8;

/// The denial that names the last of the asker's own grants on this cluster to end; None = there is none that may be told of. It goes by
/// the cluster's name alone, and is the same where there is no such cluster: which labels one has, a grant that has ended tells nobody
/// any more.
pub fn ended<'a>(
    asker: &Asker<'_>,
    cluster: &ClusterName,
    grants: impl IntoIterator<Item = &'a Grant>,
    now: OffsetDateTime,
) -> Option<Denied> {
    let own = grants
        .into_iter()
        .filter(|grant| grant.subject.fits(asker) && names(grant, cluster));
    let over = own.filter_map(|grant| Some((end(grant, now)?, grant)));
    let (at, last) = over
        .filter(|(at, _)| now - *at <= TOLD)
        .max_by_key(|(at, _)| *at)?;
    let how = match (last.revoked_at, &last.revoked_by) {
        (Some(_), Some(by)) => format!("was revoked by {by}"),
        (Some(_), None) => "was revoked".to_owned(),
        (None, _) => "ended".to_owned(),
    };
    Some(Denied {
        rule: NO_GRANT,
        reason: format!(
            "{} has no grant on cluster {cluster} any more: grant {} ({}) {how} at {}",
            asker.name,
            last.id,
            described(last),
            clock::rfc3339(at)
        ),
        next: another(last, cluster),
    })
}

fn names(grant: &Grant, cluster: &ClusterName) -> bool {
    match &grant.clusters {
        Clusters::All => true,
        Clusters::Named(names) => names.contains(cluster),
        Clusters::Labelled(_) => false,
    }
}

fn end(grant: &Grant, now: OffsetDateTime) -> Option<OffsetDateTime> {
    let expired = grant.expires_at.filter(|end| *end <= now);
    grant.revoked_at.or(expired)
}

/// Its groups, why it was given, and by whom.
fn described(grant: &Grant) -> String {
    let groups: Vec<&str> = grant.groups.iter().map(String::as_str).collect();
    let mut text = groups.join(", ");
    if !grant.reason.is_empty() {
        let reason: String = grant.reason.chars().take(REASON).collect();
        text = format!("{text}; {reason}");
    }
    format!("{text}; by {}", grant.created_by)
}

/// What helps: the same once more, where that is a command that one reads.
fn another(grant: &Grant, cluster: &ClusterName) -> String {
    let namespaces = grant.namespaces.iter().flatten();
    let short = grant.groups.len() + namespaces.clone().count() <= WORDS;
    if !short || !grant.act_as.is_empty() {
        return "ask a hub admin for another one".to_owned();
    }
    let mut command = format!("linesman grant add {} --cluster {cluster}", grant.subject);
    let words = namespaces.map(|name| ("--namespace", name));
    let words = words.chain(grant.groups.iter().map(|name| ("--group", name)));
    for (flag, name) in words {
        command.extend([" ", flag, " ", name.as_str()]);
    }
    if grant.mode == Mode::Read {
        command.push_str(" --read-only");
    }
    format!("ask a hub admin for another one: {command} --for 2h")
}

#[cfg(test)]
mod tests {
    use super::super::tests::{at, grant};
    use super::*;

    fn told(grants: &[Grant], cluster: &str, seconds: i64) -> Option<(String, String)> {
        let groups = ["sre".to_owned()];
        let asker = Asker {
            name: "ada",
            groups: &groups,
        };
        let denied = ended(&asker, &cluster.parse().unwrap(), grants, at(seconds))?;
        Some((denied.reason, denied.next))
    }

    #[test]
    fn who_was_let_in_until_lately_is_told_which_grant_ended_and_when() {
        let grants = [
            "g1 user:ada eu1 view for=-90",
            "g2 group:sre eu1,us1 edit,view ns=shop read for=-60",
            "g3 user:ada eu1 admin for=60",
        ];
        let mut grants: Vec<Grant> = grants.iter().map(|text| grant(text)).collect();
        let reason = format!(
            "ada has no grant on cluster eu1 any more: grant g2 (edit, view; TICKET-1; by admin) ended at {}",
            clock::rfc3339(at(-60))
        );
        let next = "ask a hub admin for another one: linesman grant add group:sre --cluster eu1 --namespace shop --group edit --group view --read-only --for 2h";
        assert_eq!(told(&grants, "eu1", 0), Some((reason, next.to_owned())));
        grants[2].revoked_at = Some(at(-1));
        let reason = format!(
            "ada has no grant on cluster eu1 any more: grant g3 (admin; TICKET-1; by admin) was revoked at {}",
            clock::rfc3339(at(-1))
        );
        let next = "ask a hub admin for another one: linesman grant add user:ada --cluster eu1 --group admin --for 2h";
        let by_bob = reason.replace("was revoked at", "was revoked by bob at");
        assert_eq!(told(&grants, "eu1", 0), Some((reason, next.to_owned())));
        grants[2].revoked_by = Some("bob".to_owned());
        assert_eq!(told(&grants, "eu1", 0), Some((by_bob, next.to_owned())));
        let why = grants[2].ended(at(0)).unwrap().to_string();
        let expected = format!("it was revoked by bob at {}", clock::rfc3339(at(-1)));
        assert_eq!(why, expected);
    }

    #[test]
    fn nobody_is_told_of_others_grants_of_labels_or_of_what_ended_long_ago() {
        let month = TOLD.whole_seconds();
        for (text, cluster, seconds) in [
            ("g1 user:bob eu1 view for=-1", "eu1", 0),
            ("g1 group:dev * view for=-1", "eu1", 0),
            ("g1 user:ada us1 view for=-1", "eu1", 0),
            ("g1 user:ada ?env=prod view for=-1", "eu1", 0),
            ("g1 user:ada eu1 view for=60", "eu1", 0),
            ("g1 user:ada eu1 view", "eu1", 0),
            ("g1 user:ada eu1 view for=0", "eu1", month + 1),
        ] {
            assert_eq!(told(&[grant(text)], cluster, seconds), None, "{text}");
        }
        // Be there such a cluster or not.
        assert!(told(&[grant("g1 user:ada * view for=0")], "eu9", month).is_some());
    }

    #[test]
    fn a_grant_of_many_words_makes_no_command() {
        let many = "g1 user:ada eu1 view ns=a,b,c,d,e,f,g,h for=-1";
        for text in [many, "g1 user:ada eu1 view as=user:bob for=-1"] {
            let (_, next) = told(&[grant(text)], "eu1", 0).unwrap();
            assert_eq!(next, "ask a hub admin for another one", "{text}");
        }
    }
}
