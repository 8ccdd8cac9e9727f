//! Ends that no watch told of: between two of its lives a watch hears nothing, and the list after that has an object no more, or has
//! it as one that goes. Whether the one that brought it took it away is read from what became of that one in the same time.

use std::collections::BTreeSet;

use time::OffsetDateTime;

use super::{Fate, KEPT, LATE, begins};
use crate::agent::plan::state::Observed;
use crate::bundle::{Kind, ObjectId};

/// The one that brought an object, over the time in which no watch told of it.
#[derive(Debug, Clone, Copy, Default)]
pub struct Owner<'a> {
    pub before: Option<&'a Fate>,
    /// None = it is not in the list.
    pub after: Option<&'a Fate>,
    /// Whether it was done with something new a short time ago.
    pub moved: bool,
    /// Whether it is done by then, and lists the object all the same.
    pub holds: bool,
    /// Whether it may be there although the list does not have it.
    pub cut: bool,
}

/// Whether the end of `id` is its owner's wish: it goes itself, says so, is at work on something new, or was in that time. What
/// began to go after its owner was done goes by itself; of what is gone already nobody knows when it began.
pub fn is_wish(id: &ObjectId, began: Option<OffsetDateTime>, owner: Owner<'_>) -> bool {
    let Some(after) = owner.after else {
        return !owner.cut;
    };
    let said = |fate: &Fate| fate.takes.contains(id);
    if after.dying || after.moving || said(after) {
        return true;
    }
    let was = owner.before.is_some_and(|before| {
        before.moving || before.dying || before.done != after.done || said(before)
    });
    let in_time = began
        .zip(after.done_at)
        .is_none_or(|(began, at)| began <= at + LATE);
    (was || owner.moved) && in_time && !owner.holds
}

/// What one list says.
pub struct List<'a> {
    pub kind: Kind,
    /// Of each that it has, the roots among them.
    pub fate: &'a dyn Fn(&ObjectId) -> Option<&'a Fate>,
    /// Whether there are more.
    pub cut: bool,
}

/// Of those that `end` by this list, the ones whose owner takes them away. To be asked before anything of the list is noted.
pub fn wishes<'a>(
    observed: &Observed,
    list: &List<'_>,
    end: impl Iterator<Item = &'a ObjectId>,
    now: OffsetDateTime,
) -> BTreeSet<ObjectId> {
    let wished = end.filter(|id| {
        let Some(owner) = begins(observed, id) else {
            return false;
        };
        let fate = (list.fate)(id);
        let root = observed.objects.get(owner);
        let root = root.map(|root| Fate::of_root(owner.kind, root));
        let child = observed.children.get(owner).map(|child| &child.fate);
        // Another list has it, which may be older: nothing is left to keep of what is gone.
        let elsewhere = owner.kind != list.kind;
        // A root has a list of its own, too, which may be newer than all that was known of the others.
        let in_order = observed.roots.get(owner).filter(|_| !elsewhere);
        let before = in_order.or(root.as_ref()).or(child);
        if elsewhere && fate.is_none() {
            return true;
        }
        let moved = observed.moved.get(owner);
        let owner = Owner {
            before,
            // That a root is gone has findings of its own.
            after: if elsewhere {
                before
            } else {
                (list.fate)(owner).or(root.as_ref())
            },
            moved: moved.is_some_and(|at| (now - *at).abs() < KEPT),
            // What another list said may be older than the work.
            holds: !elsewhere && (list.fate)(owner).is_some_and(|fate| fate.holds(id)),
            // Of its own kind this is the list that was awaited.
            cut: list.cut
                || observed.cut.contains(&owner.kind)
                || elsewhere && observed.awaited.contains(&owner.kind),
        };
        is_wish(id, fate.and_then(|fate| fate.began), owner)
    });
    wished.cloned().collect()
}

#[cfg(test)]
mod tests;
