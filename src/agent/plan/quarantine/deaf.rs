//! A controller that was told to look at its own namespace alone (`--watch-all-namespaces=false`). It is available and answers for
//! the roots, which are there; of what the catalog brought elsewhere it hears nothing (F10).

use serde_json::Value;

use crate::agent::engine::Install;
use crate::agent::plan::state::{Object, Observed};
use crate::agent::plan::undecodable::aside::is_covered;
use crate::bundle::ObjectId;
use crate::wire::api::EngineKind;

/// Without it, a controller of Flux looks at all namespaces (its `main.go`).
const FLAG: &str = "--watch-all-namespaces";

/// Why a controller is of no use as it is, whoever wrote it last. One that looked no further when the engine last worked was meant
/// so, and so was it where nothing is elsewhere.
pub(super) fn deaf(
    install: &Install,
    observed: &Observed,
    (id, live): (&ObjectId, &Object),
) -> Option<String> {
    if install.traits.kind != EngineKind::Flux || hears_all(&live.fields) {
        return None;
    }
    let wanted = install.wanted.get(id)?;
    if wanted.taken || !hears_all(&wanted.expect) {
        return None;
    }
    let unheard = elsewhere(install, observed, id)?;
    Some(format!(
        "runs, but hears of its own namespace alone ({FLAG}=false), and not of {unheard}"
    ))
}

/// An object of the controller's kinds in another namespace than the engine's, which no other install there is for.
fn elsewhere<'a>(
    install: &Install,
    observed: &'a Observed,
    controller: &ObjectId,
) -> Option<&'a ObjectId> {
    let children = observed.children.keys().chain(observed.sources.iter());
    let mut all = children.chain(observed.witnesses.keys());
    all.find(|id| {
        let of = if id.kind.is_source() {
            install.controller(&install.source)
        } else {
            install.controller(id)
        };
        of == *controller
            && id.namespace != install.namespace
            && !observed.elsewhere.contains(&id.namespace)
            && is_covered(install, observed, id)
    })
}

/// What the last of a container's arguments says of it. What is no word for yes or no keeps the controller from its start.
fn hears_all(fields: &Value) -> bool {
    let containers = fields.pointer("/spec/template/spec/containers");
    let containers = containers.and_then(Value::as_array).into_iter().flatten();
    let args = containers.filter_map(|c| c.get("args")?.as_array());
    let args = args.flatten().filter_map(Value::as_str);
    let said = args.filter_map(|arg| arg.strip_prefix(FLAG)).next_back();
    // As Go's `strconv.ParseBool` takes it.
    !matches!(
        said,
        Some("=false" | "=False" | "=FALSE" | "=f" | "=F" | "=0")
    )
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::sync::Arc;

    use serde_json::json;

    use super::*;
    use crate::agent::plan::state::Child;
    use crate::agent::plan::tests::Cluster;
    use crate::agent::plan::witness::Witness;
    use crate::bundle::Kind;

    const ARGS: &str = "/spec/template/spec/containers/0/args";

    fn of(kind: Kind, namespace: &str) -> ObjectId {
        ObjectId::new(kind, namespace, "shop")
    }

    /// What is said of a controller with these arguments, where these objects are; `known` are those with which it worked last.
    fn said(name: &str, args: &[&str], known: &[&str], there: &[ObjectId]) -> Option<String> {
        let mut cluster = Cluster::working();
        let id = ObjectId::new(Kind::Deployment, "flux-system", name);
        let wanted = cluster.install.wanted.get_mut(&id).unwrap();
        let mut expect = wanted.expect.as_ref().clone();
        *expect.pointer_mut(ARGS).unwrap() = json!(known);
        wanted.expect = Arc::new(expect);
        let live = cluster.objects.get_mut(&id).unwrap();
        *live.fields.pointer_mut(ARGS).unwrap() = json!(args);
        let mut observed = cluster.observed();
        for id in there {
            if id.kind.is_source() {
                observed.sources.insert(id.clone());
            } else if id.kind.is_witness() {
                observed.witnesses.insert(id.clone(), Witness::default());
            } else {
                Arc::make_mut(&mut observed.children).insert(id.clone(), Child::default());
            }
        }
        observed.elsewhere = BTreeSet::from(["flux-system".to_owned(), "other".to_owned()]);
        let live = &observed.objects[&id];
        deaf(&cluster.install, &observed, (&id, live))
    }

    /// W18: the root is in the engine's own namespace, so that its answers show nothing of it.
    #[test]
    fn a_controller_that_looks_at_its_own_namespace_is_deaf_where_its_objects_are_elsewhere() {
        const SYNC: &str = "kustomize-controller";
        let app = || [of(Kind::Kustomization, "apps")];
        let off: &[&str] = &["--watch-all-namespaces=false"];
        let on: &[&str] = &["--watch-all-namespaces=true"];
        let last: &[&str] = &["--watch-all-namespaces=true", "--watch-all-namespaces=0"];
        let undone: &[&str] = &["--watch-all-namespaces=false", "--watch-all-namespaces"];
        for (what, name, args, known, there, deaf) in [
            ("another namespace", SYNC, off, on, &app()[..], true),
            ("the default before", SYNC, off, &[][..], &app(), true),
            ("the last one counts", SYNC, last, on, &app(), true),
            ("taken back", SYNC, undone, on, &app(), false),
            ("all", SYNC, on, on, &app(), false),
            ("all, by default", SYNC, &[], on, &app(), false),
            ("as ever", SYNC, off, off, &app(), false),
            ("nothing is there", SYNC, off, on, &[], false),
            (
                "its own namespace",
                SYNC,
                off,
                on,
                &[of(Kind::Kustomization, "flux-system")],
                false,
            ),
            (
                "another install's",
                SYNC,
                off,
                on,
                &[of(Kind::Kustomization, "other")],
                false,
            ),
            (
                "another controller's",
                SYNC,
                off,
                on,
                &[of(Kind::GitRepository, "apps")],
                false,
            ),
            (
                "a source",
                "source-controller",
                off,
                on,
                &[of(Kind::GitRepository, "apps")],
                true,
            ),
        ] {
            let said = said(name, args, known, there);
            assert_eq!(said.is_some(), deaf, "{what}: {said:?}");
        }
    }

    /// W18
    #[test]
    fn the_object_that_is_not_heard_of_is_named() {
        let there = [of(Kind::Kustomization, "apps")];
        let said = said(
            "kustomize-controller",
            &["--watch-all-namespaces=f"],
            &[],
            &there,
        );
        let text = "runs, but hears of its own namespace alone (--watch-all-namespaces=false), and not of \
                    Kustomization apps/shop";
        assert_eq!(said.as_deref(), Some(text));
    }
}
