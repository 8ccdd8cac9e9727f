//! How many Pods a controller has again that somebody scaled to none.

use super::*;

/// F3: Argo CD's manifest says nothing of their number, and what somebody said of it stands beside that of the shards.
#[tokio::test]
async fn a_controller_is_scaled_to_as_many_pods_as_were_last_known_good() {
    let id = ObjectId::new(Kind::StatefulSet, "argocd", "argocd-application-controller");
    let mut seen = live(&id);
    seen.fields["spec"] = json!({"replicas": 0});
    let mut observed = Observed::default();
    observed.objects.insert(id.clone(), Arc::new(seen));
    let step = Step {
        action: Action::Apply,
        target: id.clone(),
        cause: None,
    };
    for (known, expected) in [(None, 1), (Some(2), 2), (Some(0), 1)] {
        let mut install = plan::tests::install_of(EngineKind::Argocd);
        if let Some(known) = known {
            let added = json!({"spec": {"replicas": known}});
            install.keep(&[(id.clone(), added)].into());
        }
        let made = json!({"metadata": {"name": id.name, "resourceVersion": "9"}});
        let answer = move |_: &Method, _: &Uri| Some((200, made.clone()));
        let (calls, _) = done_to(&install, &step, &observed, &[], answer).await;
        let sent: Vec<&Value> = calls.iter().map(|(_, b)| &b["spec"]["replicas"]).collect();
        assert_eq!(sent, [&json!(expected)], "{known:?}");
    }
}
