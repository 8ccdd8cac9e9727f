//! Tokens of programs that are about to end: of which people are told, when, and in what words. Pure.
//!
//! Nothing tells of a token's end before it, and with it the program that uses the token is refused: an Argo CD elsewhere loses its
//! cluster. When a token was used last is not on record, so each that a program may have counts: those with scopes.

use std::collections::BTreeSet;

use time::{Duration, OffsetDateTime};

use crate::clock;
use crate::hub::notify::board::{NAMED, Notice, Severity, State, TOGETHER};
use crate::hub::store::ApiToken;
use crate::wire::api::NewApiToken;
use crate::wire::id::ClusterName;

/// The class of the notices.
const CLASS: &str = "TokenEnds";
/// So long before the end people are told: when there is time, and when it is short.
const BEFORE: [Duration; 2] = [Duration::days(14), Duration::days(2)];
/// Tokens that one text names.
const SHOWN: usize = 10;
/// What to do about it.
pub const NEXT: &str = "make another one while it lasts, and give it to the program: linesman token create, or for an Argo CD: \
     linesman cluster argocd-secret; then revoke the one before: linesman token revoke ID";

/// What is told now of tokens in force, each with its user's name: those of which a time has come since something was `told` last;
/// None = nothing ever was.
pub fn due(
    tokens: &[(ApiToken, String)],
    told: Option<OffsetDateTime>,
    now: OffsetDateTime,
) -> Vec<Notice> {
    // A time that is yet to come was noted by a clock that was ahead, and says nothing.
    let told = told.filter(|told| *told <= now);
    let came = |(token, _): &&(ApiToken, String)| {
        times(token).any(|at| at <= now && told.is_none_or(|told| told < at))
    };
    let due: Vec<_> = tokens.iter().filter(came).collect();
    if due.len() >= TOGETHER {
        return vec![notice(&due, now)];
    }
    due.chunks(1).map(|one| notice(one, now)).collect()
}

/// Which of these tokens end soon; the error is what is to be seen to.
pub fn outlook(tokens: &[(ApiToken, String)], now: OffsetDateTime) -> Result<String, String> {
    let ending = tokens
        .iter()
        .filter(|(token, _)| times(token).any(|at| at <= now));
    let ending: Vec<_> = ending.collect();
    if ending.is_empty() {
        return Ok("none of a program's ends soon".to_owned());
    }
    Err(named(&ending))
}

/// When people are told of this one, in order. What was made for a short time ends as it was meant to.
fn times(token: &ApiToken) -> impl Iterator<Item = OffsetDateTime> {
    let ends = token.expires_at.filter(|_| !token.scopes.is_empty());
    let made = token.created_at;
    ends.into_iter().flat_map(move |ends| {
        let long = move |before: &Duration| ends - made > *before + *before;
        let before = BEFORE.into_iter().filter(long);
        before.map(move |before| ends - before)
    })
}

fn notice(some: &[&(ApiToken, String)], now: OffsetDateTime) -> Notice {
    let clusters: BTreeSet<&ClusterName> = some
        .iter()
        .filter_map(|(token, _)| token.clusters.as_ref())
        .flatten()
        .collect();
    let since = some.iter().filter_map(|(token, _)| {
        let came = times(token).filter(|at| *at <= now);
        came.last()
    });
    let next = match some {
        [(token, user)] => renewal(token, user),
        _ => "linesman token list --all".to_owned(),
    };
    Notice {
        state: State::Open,
        severity: Severity::Warning,
        class: CLASS.to_owned(),
        clusters_total: clusters.len(),
        clusters: clusters.into_iter().take(NAMED).cloned().collect(),
        text: format!("{}; what uses it is refused from then on", named(some)),
        since: since.min().map(clock::rfc3339).unwrap_or_default(),
        next: Some(next),
    }
}

/// Tokens in words, those that end first: whose they are, what for, and until when. A token's secret is nowhere to be had.
fn named(some: &[&(ApiToken, String)]) -> String {
    let mut some = some.to_vec();
    some.sort_by_key(|(token, _)| token.expires_at);
    let words = some.iter().take(SHOWN).map(|(token, user)| {
        let ends = token.expires_at.map(clock::rfc3339).unwrap_or_default();
        let (id, title) = (&token.id, &token.title);
        format!("token {id} of {user} ('{title}') ends at {ends}")
    });
    let words: Vec<String> = words.collect();
    let more = some.len() - words.len();
    let words = words.join(", ");
    if more == 0 {
        words
    } else {
        format!("{words}, and {more} more")
    }
}

/// The command that makes the token after this one.
fn renewal(token: &ApiToken, user: &str) -> String {
    let clusters = token.clusters.iter().flatten();
    let argocd = |cluster: &&ClusterName| token.title == NewApiToken::argocd_title(cluster);
    if let Some(cluster) = clusters.clone().find(argocd) {
        return format!("linesman cluster argocd-secret {cluster} --user {user}");
    }
    let scopes = token.scopes.iter().map(|scope| format!(" --scope {scope}"));
    let clusters = clusters.map(|cluster| format!(" --cluster {cluster}"));
    let more: Vec<String> = scopes.chain(clusters).collect();
    let more = more.concat();
    format!("linesman token create --user {user} --title NAME{more}")
}

#[cfg(test)]
mod tests;
