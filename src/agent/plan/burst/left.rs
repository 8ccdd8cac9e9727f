//! A burst in the midst of which an agent ended, and what the one after it knows of that. Who deleted what, and how much of it together,
//! was known to the former alone. See `docs/decisions/0044-the-guard-outlives-its-agent.md`.

use time::OffsetDateTime;

use super::{LATE, MANY, TOGETHER};
use crate::agent::engine::Install;
use crate::agent::plan::state::{Answer, Child, History, Observed};
use crate::bundle::{Kind, ObjectId};

/// Whether the guard is known to have taken rights that are not back.
pub(super) fn is_cut(install: &Install, observed: &Observed, history: &History) -> bool {
    let mut cut = history.cut.keys();
    cut.any(|id| is_absent(install, observed, id))
}

/// Whether a guard that is on no record came as far as to the rights: the engine lacks them for as long as this agent looks, and so many
/// of what Git still brings go together since before that. `dying`: what goes and is not let go yet.
pub(super) fn is_likely<'a>(
    install: &Install,
    observed: &Observed,
    history: &History,
    dying: impl Iterator<Item = &'a Child>,
) -> bool {
    // What was taken later was taken by somebody else, and what hangs for days is no burst of today.
    let before = history.adopted && !history.had_rights;
    let Some(since) = observed.since.filter(|_| before) else {
        return false;
    };
    let fates = dying.map(|child| &child.fate);
    let brought = fates.filter(|fate| fate.prunes && fate.owner.is_some());
    let began = brought.filter_map(|fate| fate.began);
    // It is the API server's clock that says when.
    let mut began: Vec<OffsetDateTime> = began.filter(|at| *at <= since + LATE).collect();
    began.sort_unstable();
    let together = began.windows(MANY).any(|many| {
        let both = many.first().zip(many.last());
        both.is_some_and(|(first, last)| *last - *first <= TOGETHER)
    });
    together && has_none(install, observed)
}

/// Whether rights of the engine's are known not to be there.
fn has_none(install: &Install, observed: &Observed) -> bool {
    let kind = Kind::ClusterRoleBinding;
    let scope = observed.scopes.get(&kind).copied().unwrap_or_default();
    let told = scope.answered.is_some() && scope.answer == Answer::Whole;
    let rights = install.traits.rights.iter();
    let mut rights = rights.map(|name| ObjectId::new(kind, "", name));
    told && rights.any(|id| is_absent(install, observed, &id))
}

fn is_absent(install: &Install, observed: &Observed, id: &ObjectId) -> bool {
    install.wanted.contains_key(id) && !observed.objects.contains_key(id)
}
