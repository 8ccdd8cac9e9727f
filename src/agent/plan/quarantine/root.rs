//! The engine's own roots. They are never Git's: what the engine follows is what the hub assigned. A commit may have them
//! all the same, and then the engine takes back each repair, until it follows something else and no commit reaches it.

use super::commit;
use crate::agent::engine::Install;
use crate::agent::plan::find::Finding;
use crate::agent::plan::state::{Object, Observed};
use crate::bundle::ObjectId;
use crate::wire::api::EngineKind;

/// A root that differs: with the commit that made it so, where it was the engine that wrote it last.
pub fn brought(
    install: &Install,
    observed: &Observed,
    (id, live): (&ObjectId, &Object),
    mut finding: Finding,
) -> Finding {
    let root = install.roots().any(|root| root == id);
    let flux = install.traits.kind == EngineKind::Flux;
    if !root || !flux || live.writer != install.traits.applier {
        return finding;
    }
    let commit = commit(install, observed, id);
    if commit.is_empty() {
        return finding;
    }
    finding.evidence = format!("{}; commit {commit} has it so", finding.evidence);
    finding.brought_by(commit)
}

/// Whether what was fetched is of what the source is told now. While a root is bent, it may be of another catalog, whose
/// commits say nothing of ours.
pub(super) fn is_fetched_anew(install: &Install, observed: &Observed) -> bool {
    let source = observed.objects.get(&install.source);
    source.is_some_and(|live| {
        live.number("/status/observedGeneration") >= live.generation && live.is_true("Ready")
    })
}

#[cfg(test)]
mod tests;
