//! What a project has to lose before it is applied.

use std::collections::BTreeMap;

use super::*;
use crate::wire::api::SignerRef;

/// W43: to apply leaves what others have set, and with their policies Argo CD would pass the keys over.
#[tokio::test]
async fn policies_of_others_go_before_the_keys_are_applied() {
    let mut desired = plan::tests::desired_of(EngineKind::Argocd);
    desired.assignment.catalog.signers = vec![SignerRef {
        fingerprint: "A8".repeat(20),
        public_key: "armor".to_owned(),
        subkeys: Vec::new(),
    }];
    let install = Install::new(&desired, &BTreeMap::new(), None);
    let id = ObjectId::new(Kind::AppProject, "argocd", "default");
    let step = Step {
        action: Action::WriteSecret,
        target: id.clone(),
        cause: None,
    };
    let mut seen = live(&id);
    seen.fields["spec"] = json!({"sourceIntegrity": {"git": {"policies": []}}});
    let mut observed = Observed::default();
    observed.objects.insert(id.clone(), Arc::new(seen));
    let made = json!({"metadata": {"name": "default", "resourceVersion": "9"}});
    let answer = move |_: &Method, _: &Uri| Some((200, made.clone()));
    let (calls, done) = done_to(&install, &step, &observed, &[], answer).await;
    let patches = calls.iter().filter(|(method, _)| *method == Method::PATCH);
    let patches: Vec<&Value> = patches.map(|(_, body)| body).collect();
    let gone = json!({"spec": {"sourceIntegrity": null}});
    assert_eq!(patches.first(), Some(&&gone));
    let keys = patches.get(1).map(|body| &body["spec"]["signatureKeys"]);
    assert_eq!(keys, Some(&json!([{"keyID": "A8".repeat(8)}])));
    assert_eq!((patches.len(), done.outcome), (2, Outcome::Done));
}
