//! H34: whom the line's account may act as, as the API server itself says it.

use std::path::Path;
use std::process::Output;

use http::Request;
use serde_json::{Value, json};

use super::asked::line_account;
use crate::kubectl;
use crate::support::api::Api;
use crate::support::place::output;
use crate::support::world::{self, CLUSTER, World};
use crate::support::{figure, seconds, shown, until};

/// The rules' forms: since ever, and KEP-5284.
const FORMS: [(&str, &str); 2] = [
    ("", "impersonate"),
    ("authentication.k8s.io", "impersonate:user-info"),
];
/// What nobody grants; without a name it is any.
const NEVER: [(&str, &str); 12] = [
    ("groups", "system:masters"),
    ("groups", "system:authenticated"),
    ("groups", "linesman:nobody"),
    ("groups", "admin"),
    ("groups", ""),
    ("users", "system:admin"),
    ("users", "system:serviceaccount:linesman:linesman-agent"),
    ("users", "linesman:nobody"),
    ("users", "linesman:"),
    ("users", ""),
    ("serviceaccounts", ""),
    ("uids", ""),
];

/// `kubectl auth can-i` as `linesman-line`.
struct Account(Api);

impl Account {
    fn of(world: &World) -> Self {
        Self(Api::of(&line_account(world)))
    }

    fn may_act_as(&self, resource: &str, name: &str) -> bool {
        FORMS.iter().any(|&(group, verb)| {
            let asked = json!({
                "apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview",
                "spec": {"resourceAttributes": {
                    "group": group, "resource": resource, "verb": verb, "name": name,
                }},
            });
            let path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
            let request = Request::post(path).header("content-type", "application/json");
            let request = request.body(asked.to_string().into_bytes()).unwrap();
            let (code, _, body) = self.0.raw(request);
            let said: Value = serde_json::from_slice(&body).unwrap();
            assert_eq!(code, 201, "{said}");
            said["status"]["allowed"] == json!(true)
        })
    }

    /// What of that it may which nobody granted.
    fn too_much(&self) -> Vec<(&'static str, &'static str)> {
        let all = NEVER.into_iter();
        all.filter(|(resource, name)| self.may_act_as(resource, name))
            .collect()
    }
}

fn asks(world: &World, kubeconfig: &Path) -> Output {
    let mut kubectl = crate::support::place::kubectl();
    kubectl.arg("--kubeconfig").arg(kubeconfig);
    kubectl.args(["-n", kubectl::NAMESPACE, "get", "pods", "-o", "name"]);
    world.hub.environment(&mut kubectl);
    output(&mut kubectl)
}

/// H34: granted names only, `system:masters` never; a new grant's name is there, and works, ≤ 5 s later, and an old one's is gone.
#[test]
#[ignore = "needs a real cluster: make test"]
fn the_lines_account_may_act_as_whom_grants_name_and_nobody_else() {
    acts_as_granted_only(&world::adopted(), "");
}

/// Whom grants name, and nobody else. `at` is which cluster it is, for the figures.
pub(super) fn acts_as_granted_only(world: &World, at: &str) {
    const USER: &str = "linesman:trainee";
    kubectl::ready(world);
    let account = Account::of(world);
    until("the admin's grant is there", seconds(60), || {
        account.may_act_as("users", "linesman:admin")
    });
    assert!(account.may_act_as("groups", "linesman:admin"));
    assert_eq!(account.too_much(), []);
    assert!(!account.may_act_as("users", USER));

    let kubeconfig = kubectl::user(world, "trainee", &["--group", "view"]);
    let there = until("the new grant's name is there", seconds(60), || {
        account.may_act_as("users", USER)
    });
    let works = until("the new grant works", seconds(60), || {
        asks(world, &kubeconfig).status.success()
    });
    figure(
        "H34",
        &format!("grant and token made → its name may be acted as, kubectl works{at}"),
        "≤ 5 s",
        format!("{}, {}", shown(there), shown(there + works)),
    );
    assert!(account.may_act_as("groups", "linesman:view"));
    assert_eq!(account.too_much(), []);

    let grants = world.hub.json(&["grant", "list"]);
    let grants = grants.as_array().unwrap().iter();
    let mut own = grants.filter(|grant| grant["subject"] == json!("user:trainee"));
    let id = own.next().unwrap()["id"].as_str().unwrap().to_owned();
    world.hub.linesman(&["grant", "revoke", &id, "--yes"]);
    let refused = until("the old grant is dead", seconds(60), || {
        !asks(world, &kubeconfig).status.success()
    });
    let gone = until("its name is gone", seconds(60), || {
        !account.may_act_as("users", USER)
    });
    figure(
        "H34",
        &format!("grant revoked → kubectl refused, its name may not be acted as any more{at}"),
        "≤ 5 s",
        format!("{}, {}", shown(refused), shown(refused + gone)),
    );
    let said = String::from_utf8_lossy(&asks(world, &kubeconfig).stderr).into_owned();
    assert!(said.contains("hub: ") && said.contains(CLUSTER), "{said}");
    assert!(account.may_act_as("users", "linesman:admin"));
    assert_eq!(account.too_much(), []);
}
