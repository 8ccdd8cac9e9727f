//! A head that the hub named.

use super::*;
use crate::agent::engine::argocd::REFRESH;

#[test]
fn a_head_that_the_hub_named_is_asked_for_once_until_it_is_fetched() {
    let fresh = (SECOND * 10, true);
    for (head, nudged, due) in [
        ("2", None, true),
        ("1", None, false),
        ("2", Some(SECOND * -9), true),
        ("2", Some(SECOND * -8), false),
        ("2", Some(SECOND * -7), false),
    ] {
        let mut cluster = asked(fresh, fresh);
        cluster.history.head = Some((head.to_owned(), cluster.now - SECOND * 8));
        let source = cluster.install.source.clone();
        if let Some(at) = nudged {
            cluster
                .history
                .nudged
                .insert(source.clone(), cluster.now + at);
        }
        let expected = if due { vec![source] } else { vec![] };
        assert_eq!(next(&cluster).0, expected, "{head} {nudged:?}");
    }
}

/// H30: a look that began before the push takes the question with it, and by itself Argo CD looks two minutes later.
#[test]
fn argo_cd_is_asked_again_for_a_head_that_it_took_the_question_for_and_did_not_see() {
    let head = |name: &str| Some(name.to_owned());
    for (head, told, asked, pending, due, look) in [
        (head("2"), 10, 5, false, true, SPACING),
        (head("2"), 10, 4, false, false, SPACING),
        (head("2"), 10, 5, true, false, SPACING),
        (head("2"), 59, 30, false, true, SPACING),
        (head("2"), 60, 30, false, false, SECOND * 30),
        (head("1"), 10, 5, false, false, SECOND * 30),
        (None, 10, 5, false, false, SECOND * 30),
    ] {
        let mut cluster = Cluster::working_of(EngineKind::Argocd);
        let (root, now) = (cluster.install.source.clone(), cluster.now);
        cluster.install.policy.probe_every = SECOND * 40;
        let sent = rfc3339(now - SECOND * 10);
        let fields = &mut cluster.objects.get_mut(&root).unwrap().fields;
        fields["metadata"]["annotations"][PROBED_AT] = json!(sent);
        if pending {
            fields["metadata"]["annotations"][REFRESH] = json!("normal");
        }
        fields["status"]["reconciledAt"] = json!(rfc3339(now - SECOND * 9));
        fields["status"]["sync"] = json!({"status": "Synced", "revision": "1"});
        cluster.history.head = head.clone().map(|head| (head, now - SECOND * told));
        let at = now - SECOND * asked;
        cluster.history.nudged.insert(root.clone(), at);
        let expected = if due { vec![root] } else { vec![] };
        let asks = next(&cluster);
        assert_eq!(asks, (expected, look), "{head:?} {told} {asked} {pending}");
    }
}
