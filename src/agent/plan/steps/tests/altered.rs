//! Whether what was altered is applied, or the whole of it put in its place.

use super::*;
use crate::agent::plan::state::Refused;

/// F3: Argo CD's manifest has no number of Pods, so that one without any differs in nothing.
#[test]
fn a_controller_that_stands_still_is_started_as_it_is() {
    let id = ObjectId::new(Kind::Deployment, "argocd", "argocd-repo-server");
    for (replicas, action) in [(1, Action::Replace), (0, Action::Apply)] {
        let mut cluster = Cluster::working_of(EngineKind::Argocd);
        let live = cluster.objects.get_mut(&id).unwrap();
        live.fields["spec"]["replicas"] = json!(replicas);
        let container = live.fields.pointer_mut("/spec/template/spec/containers/0");
        container.unwrap()["env"] = json!([{"name": "HTTPS_PROXY", "value": "example.org"}]);
        let expected = [(action, id.clone())];
        let taken = taken(&cluster, Class::ObjectAltered, &id, "");
        assert_eq!(taken, expected, "{replicas}");
    }
}

/// To apply takes no action or condition away that others added, and a server that takes the two together refuses some of them.
#[test]
fn the_whole_spec_of_a_guard_policy_that_somebody_changed_is_put_back() {
    let cluster = Cluster::working();
    for (kind, path, action) in [
        (
            Kind::ValidatingAdmissionPolicyBinding,
            "/spec/validationActions/0",
            Action::Replace,
        ),
        (
            Kind::ValidatingAdmissionPolicy,
            "/spec/matchConditions",
            Action::Replace,
        ),
        (
            Kind::ValidatingAdmissionPolicy,
            "/metadata/labels",
            Action::Apply,
        ),
    ] {
        let id = ObjectId::new(kind, "", "linesman-guard");
        let text = "has another /spec";
        let finding = Finding::new(Class::ObjectAltered, &id, text).at(vec![path.to_owned()]);
        let taken = taken_against(&cluster, finding);
        assert_eq!(taken, [(action, id)], "{path}");
    }
}

/// F2: to apply does not take away that an account gives no tokens.
#[test]
fn an_account_is_only_replaced_for_the_tokens_that_it_does_not_give() {
    let cluster = Cluster::working();
    let id = ObjectId::new(Kind::ServiceAccount, "flux-system", "source-controller");
    for (path, action) in [
        ("/automountServiceAccountToken", Action::Replace),
        ("/metadata/labels", Action::Apply),
    ] {
        let finding = Finding::new(Class::ObjectAltered, &id, "").at(vec![path.to_owned()]);
        let taken = taken_against(&cluster, finding);
        assert_eq!(taken, [(action, id.clone())], "{path}");
    }
}

/// W8: only what others put into a workload that is there can stand in the way of what is applied to it.
#[test]
fn what_the_api_server_refused_is_replaced_only_where_it_is_a_workload_that_is_there() {
    let (apply, replace) = (Action::Apply, Action::Replace);
    let reinstate = Action::Reinstate { items: Vec::new() };
    for (kind, is_there, failures, action, expected) in [
        (Kind::Deployment, true, 1, &apply, &replace),
        (Kind::Deployment, true, 1, &reinstate, &replace),
        (Kind::Deployment, true, 1, &Action::Create, &Action::Create),
        (Kind::Deployment, true, 0, &apply, &apply),
        (Kind::Deployment, false, 1, &apply, &apply),
        (Kind::Service, true, 1, &apply, &apply),
    ] {
        let cluster = Cluster::working();
        let id = ObjectId::new(kind, "flux-system", "source-controller");
        let mut observed = cluster.observed();
        if !is_there {
            observed.objects.remove(&id);
        }
        let refused = Refused {
            failures,
            given_up: 0,
        };
        let history = History {
            refused: [(id.clone(), refused)].into(),
            ..History::default()
        };
        let said = cleared(&observed, &history, action.clone(), &id);
        assert_eq!(said, *expected, "{id} {is_there} {failures} {action:?}");
    }
}
