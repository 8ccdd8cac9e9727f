//! What the engine lives on cannot be deleted by accident (W11, guard policy on).

use serde_json::json;

use crate::support::world::{self, FLUX, World};
use crate::support::{figure, seconds, shown, until};

const CRD: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/kustomizations.kustomize.toolkit.fluxcd.io";
const POLICY: &str =
    "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies/linesman-guard";
const BINDING: &str =
    "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings/linesman-guard";

/// W11: CRD, Namespace and roots: 403 for the cluster's admin, with the way in the message, and nothing changes.
#[test]
#[ignore = "needs a real cluster: make test"]
fn deleting_what_the_engine_lives_on_is_refused_and_the_message_names_the_way() {
    let world = world::adopted();
    active(&world);
    let namespace = format!("/api/v1/namespaces/{FLUX}");
    for path in [
        CRD,
        &namespace,
        &world::git_repository(FLUX),
        &world::kustomization(FLUX),
    ] {
        let uid = world.uid(path).unwrap();
        let (code, message) = world.api.try_delete(path).unwrap_err();
        assert_eq!(code, 403, "{path}: {message}");
        assert!(
            message.contains("kubectl annotate --overwrite ")
                && message.contains(" linesman.dev/allow-delete="),
            "{path}: {message}"
        );
        assert_eq!(world.uid(path), Some(uid), "{path}");
    }
    // A whole collection carries no name in its request.
    let sources = world::git_repository(FLUX);
    let (collection, _) = sources.rsplit_once('/').unwrap();
    let (code, message) = world.api.try_delete(collection).unwrap_err();
    assert_eq!(code, 403, "{message}");
    assert!(world.uid(&sources).is_some());
}

/// A permission that is over is taken away, and what is not guarded can be deleted as ever.
#[test]
#[ignore = "needs a real cluster: make test"]
fn a_permission_that_is_over_is_taken_away() {
    let world = world::adopted();
    active(&world);
    let word = "linesman.dev/allow-delete";
    let past = json!({ "metadata": { "annotations": { word: "2020-01-01T00:00:00Z" } } });
    world.api.patch(CRD, &past);
    let took = until("the annotation is gone", seconds(90), || {
        let crd = world.api.get(CRD).unwrap();
        crd["metadata"]["annotations"][word].is_null()
    });
    figure(
        "guard",
        "expired permission to delete → taken away",
        "",
        shown(took),
    );
    assert_eq!(world.api.try_delete(CRD).unwrap_err().0, 403);
}

/// The policy itself is kept like any object of the install.
#[test]
#[ignore = "needs a real cluster: make test"]
fn a_deleted_guard_policy_comes_back() {
    let world = world::adopted();
    active(&world);
    for path in [BINDING, POLICY] {
        let uid = world.uid(path).unwrap();
        assert!(world.api.delete(path));
        let took = until(&format!("{path} is back"), seconds(60), || {
            world.uid(path).is_some_and(|new| new != uid)
        });
        let kind = path.rsplit('/').nth(1).unwrap();
        figure(
            "guard",
            &format!("{kind} deleted → back"),
            "≤ 5 s",
            shown(took),
        );
    }
    active(&world);
}

/// The API server takes a moment to follow its policies: a dry run tells.
fn active(world: &World) {
    until("the guard policy is active", seconds(60), || {
        let refused = world.api.dry_delete(CRD);
        refused.is_err_and(|(code, _)| code == 403)
    });
}
