use serde_json::json;

use super::*;
use crate::agent::engine::GIT_OWNER;
use crate::agent::plan::quarantine::{HELD, Hold, RECONCILE};
use crate::agent::plan::tests::Cluster;
use crate::bundle::Kind;
use crate::clock::rfc3339;

/// W20: a first hold waits for nothing, and what comes within moments may be the commit of before.
#[test]
fn a_commit_that_comes_while_an_object_waits_is_told_apart() {
    let mut cluster = Cluster::working();
    let id = ObjectId::new(Kind::Deployment, "flux-system", "source-controller");
    let since = cluster.now;
    for (attempt, seconds, revision, came) in [
        (2, 11, "main@sha1:2", Some(Duration::minutes(10))),
        (3, 11, "main@sha1:2", Some(Duration::minutes(20))),
        (1, 11, "main@sha1:2", None),
        (2, 10, "main@sha1:2", None),
        (2, 600, "main@sha1:2", None),
        (2, 11, "main@sha1:1", None),
        (2, 11, "", None),
    ] {
        let hold = Hold {
            revision: "main@sha1:1".to_owned(),
            since: rfc3339(since),
            reason: String::new(),
            attempt,
            lifted: None,
            order: None,
            removal: false,
        };
        let live = cluster.objects.get_mut(&id).unwrap();
        live.fields["metadata"]["annotations"] =
            json!({HELD: serde_json::to_string(&hold).unwrap(), RECONCILE: "disabled"});
        let sync = cluster.install.sync.clone();
        let root = cluster.objects.get_mut(&sync).unwrap();
        root.fields["status"]["lastAttemptedRevision"] = json!(revision);
        let now = since + Duration::seconds(seconds);
        let expected = Wait {
            object: id.clone(),
            revision: "main@sha1:1".to_owned(),
            came: came.map(|wait| (revision.to_owned(), since + wait)),
        };
        let found = waits(now, &cluster.install, &cluster.observed());
        assert_eq!(found, [expected], "{attempt} {seconds} {revision}");
    }
}

/// W20: a first hold would wait for nothing, a second one for ten minutes; what left the catalog is given back by none of it.
#[test]
fn what_the_catalog_no_longer_has_waits_for_no_time() {
    let id = ObjectId::new(Kind::Deployment, "flux-system", "source-controller");
    let entry = "flux-system_source-controller_apps_Deployment";
    for (entries, comes) in [(json!([{"id": entry}]), true), (json!([]), false)] {
        let mut cluster = Cluster::working();
        cluster.install.take_over(&id);
        let since = cluster.now;
        let hold = Hold {
            revision: "main@sha1:1".to_owned(),
            since: rfc3339(since),
            reason: String::new(),
            attempt: 2,
            lifted: None,
            order: None,
            removal: false,
        };
        let metadata = &mut cluster.objects.get_mut(&id).unwrap().fields["metadata"];
        metadata["annotations"] =
            json!({HELD: serde_json::to_string(&hold).unwrap(), RECONCILE: "disabled"});
        metadata["labels"][GIT_OWNER] = json!("flux-system");
        let sync = cluster.install.sync.clone();
        let status = &mut cluster.objects.get_mut(&sync).unwrap().fields["status"];
        status["inventory"] = json!({"entries": entries});
        for revision in ["lastAttemptedRevision", "lastAppliedRevision"] {
            status[revision] = json!("main@sha1:2");
        }
        let until = since + Duration::minutes(10);
        let expected = Wait {
            object: id.clone(),
            revision: "main@sha1:1".to_owned(),
            came: comes.then(|| ("main@sha1:2".to_owned(), until)),
        };
        let now = since + Duration::seconds(11);
        let found = waits(now, &cluster.install, &cluster.observed());
        assert_eq!(found, [expected], "{entries}");
    }
}
