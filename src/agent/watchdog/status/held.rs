//! What is held back from Git, or out of the engine's way.

use super::{Because, MAX_TEXT, Moment};
use crate::agent::plan::quarantine::Undone;
use crate::agent::plan::undecodable::aside;
use crate::agent::plan::{Class, quarantine};
use crate::bundle::ObjectId;
use crate::clock::rfc3339;
use crate::wire::api::EngineKind;

/// Sync objects that are out of the way; more do not fit into a text.
const MAX_ASIDE: usize = 8;
/// The same of those at which a hold is undone.
const MAX_UNDONE: usize = 2;
/// The same of those that are held.
const MAX_NAMED: usize = 4;
/// So many characters of what is said of one are kept at least: object and commit.
const LEAST: usize = 150;
/// Between what is said of two.
const APART: usize = 2;
/// That there are others, in characters at most.
const MORE: usize = 20;

/// What is held back from Git, why, and how that ends.
pub(super) fn held(moment: &Moment<'_>) -> Because {
    let Moment {
        now,
        install,
        observed,
        history,
        ..
    } = *moment;
    let held = quarantine::holds(install, observed);
    let waits = quarantine::waits(now, install, observed);
    let all = held.iter().map(|(id, quarantine::Held { hold, .. })| {
        let waits = waits.iter().find(|wait| wait.object == *id);
        let next = waits.and_then(|wait| wait.came.as_ref());
        let next = next.map_or_else(String::new, |(_, at)| {
            format!(", next try at {}", rfc3339(*at))
        });
        format!(
            "{id} since {} because of {}{next}: {}",
            hold.since, hold.revision, hold.reason
        )
    });
    // First, for the text has an end.
    let undone = quarantine::undone(now, install, observed, history);
    let undone = undone.iter().take(MAX_UNDONE).map(Undone::text);
    let mut named: Vec<String> = undone.collect();
    let way_out = way_out(moment, held.keys());
    let taken = length(&named) + way_out.chars().count() + MORE;
    named.extend(fitting(all.collect(), MAX_TEXT.saturating_sub(taken)));
    let text = format!("{}; {way_out}", named.join("; "));
    let aside = aside::all(observed).take(MAX_ASIDE);
    let aside: Vec<String> = aside.map(|(id, aside)| aside.told(id)).collect();
    match (named.is_empty(), aside.is_empty()) {
        (true, true) => None,
        (true, false) => Some((Class::UndecodableObject.to_string(), aside.join("; "))),
        (false, true) => Some(("BadEngineCommit".to_owned(), text)),
        (false, false) => {
            let text = format!("{text}; {}", aside.join("; "));
            Some(("BadEngineCommit".to_owned(), text))
        }
    }
}

/// As many as have place, and how many more there are. How they end is told behind them, and must not be cut off.
pub(super) fn fitting(mut all: Vec<String>, place: usize) -> Vec<String> {
    let count = all.len();
    all.truncate((place / LEAST).clamp(1, MAX_NAMED));
    if length(&all) > place {
        let each = (place / all.len()).saturating_sub(APART).max(LEAST);
        for text in &mut all {
            *text = quarantine::cut(text, each);
        }
    }
    let more = count - all.len();
    if more > 0 {
        all.push(format!("and {more} more"));
    }
    all
}

fn length(all: &[String]) -> usize {
    all.iter().map(|text| text.chars().count() + APART).sum()
}

/// How these holds end: of what the catalog no longer has, no commit but one that has it again gives anything back.
fn way_out<'a>(moment: &Moment<'_>, held: impl Iterator<Item = &'a ObjectId>) -> String {
    let Moment {
        install, observed, ..
    } = *moment;
    let lift = format!("linesman cluster lift {} --reason TEXT", install.cluster);
    let (gone, there): (Vec<&ObjectId>, Vec<&ObjectId>) =
        held.partition(|id| quarantine::removed(install, observed, id));
    let (forsaken, others): (Vec<&ObjectId>, Vec<&ObjectId>) = gone
        .iter()
        .copied()
        .partition(|id| quarantine::is_forsaken(install, observed, id));
    let (waiting, kept): (Vec<&ObjectId>, Vec<&ObjectId>) = others
        .into_iter()
        .partition(|id| quarantine::may_be_ours(install, observed, id));
    let mut ways = Vec::new();
    if !there.is_empty() || gone.is_empty() {
        ways.push(format!(
            "mend it in the catalog: a commit gives it back to Git, and so does {lift}"
        ));
    }
    if let Some(id) = forsaken.first() {
        let of = more(forsaken.len(), id);
        ways.push(format!(
            "the catalog no longer has {of}: commit it again, or leave it to the agent: {lift}"
        ));
    }
    if let Some(id) = waiting.first() {
        let of = more(waiting.len(), id);
        let done = match install.traits.kind {
            EngineKind::Flux => "Flux is done with its commit, and not while that fails",
            EngineKind::Argocd => "Argo CD is done with its commit",
        };
        ways.push(format!(
            "the catalog no longer has {of}: commit it again, or leave it to the agent: {lift}, which is carried out when {done}"
        ));
    }
    if let Some(id) = kept.first() {
        let of = more(kept.len(), id);
        ways.push(format!(
            "the catalog no longer has {of}: it stays held until a commit has it again"
        ));
    }
    ways.join("; ")
}

fn more(count: usize, first: &ObjectId) -> String {
    match count {
        0 | 1 => first.to_string(),
        more => format!("{first} and {} more", more - 1),
    }
}
